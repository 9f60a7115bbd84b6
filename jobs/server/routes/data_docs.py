"""`GET /v1/views/{view}/data-docs`: the page on what the expectations of a view came to.

A browser that follows a link sends no token, so here it is told to ask for one: as the password, whatever the user.
"""

from __future__ import annotations

import asyncio
from typing import Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.expect.data_docs import POLICY, read_docs
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.server.http.answers import failure
from strandline.jobs.server.http.requests import named, server_of
from strandline.state_store.wording import Name, sentence

router = APIRouter(tags=["views"])

_HEADERS: Final = {
    # It shows values of rows: nothing in it may run, and it belongs in nobody's cache.
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


@router.get("/v1/views/{view}/data-docs")
async def data_docs(request: Request, view: str) -> Response:
    """The page, as HTML; 404 while the expectations of the view were never validated."""
    try:
        view = named(request, "read", view)
    except Unauthenticated as error:
        answer = failure(error)
        answer.headers["WWW-Authenticate"] = 'Basic realm="a token of Strandline, as the password", charset="UTF-8"'
        return answer
    server = server_of(request)
    server.catalogued.definition(view)
    page = await asyncio.to_thread(read_docs, server.lake, view)
    if page is None:
        hint = "they are validated by Dagster, after each drain"
        raise UnknownName(sentence("the expectations of '{}' were not validated yet", Name(view)), hint=hint)
    return Response(page, headers=_HEADERS, media_type="text/html")
