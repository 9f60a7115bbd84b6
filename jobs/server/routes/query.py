"""`POST /v1/query`: a SELECT, all its tables at one consistent cut, within limits, read only; or an EXPLAIN."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Body, Request
from pydantic import BaseModel
from starlette.responses import Response

from jobs.model.serving_errors import RequestRefused
from jobs.server.http.answers import ARROW, About, age_ms, instant, joined_rows, wants_arrow
from jobs.server.http.requests import json_of, server_of

router = APIRouter(tags=["query"])


class QueryBody(BaseModel):
    """The body, for the description of the API."""

    sql: Annotated[str, Body(examples=["SELECT town, SUM(visits) AS visits FROM by_town GROUP BY town"])]


@router.post(
    "/v1/query",
    openapi_extra={"requestBody": {"content": {"application/json": {"schema": QueryBody.model_json_schema()}}}},
)
async def query(request: Request) -> Response:
    """The answer of a SELECT: `{"sql": "…"}`. Each table that it names needs the scope `read`. `EXPLAIN …` answers with
    the plan by which a view, or the SELECT as if it were one, is maintained: a row `{"plan": line}` for each line."""
    server = server_of(request)
    token = server.token_of(request.headers.get("authorization"))
    text = (await json_of(request)).get("sql")
    if not isinstance(text, str):
        raise RequestRefused("'sql' is a text")
    arrow = wants_arrow(request.headers.get("accept"))
    found = await asyncio.to_thread(server.queries.ask, text, token, arrow=arrow)
    about = About(None, instant(found.event_time), age_ms(found.committed), found.versions)
    headers = {**about.headers(), "Strandline-Versions": ",".join(f"{n}={v}" for n, v in found.versions.items())}
    if arrow:
        return Response(found.body, 200, headers, ARROW)
    return joined_rows(found.body, about)
