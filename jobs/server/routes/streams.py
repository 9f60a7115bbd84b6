"""`POST /v1/streams/{stream}`: inserts, exactly once for each idempotency key."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.format import to_json
from strandline.jobs.server.http.requests import body_of, check_json, named, server_of
from strandline.jobs.server.http.row_list import SMALL_BYTES, rows_in
from strandline.jobs.server.state.inserts import let_go

router = APIRouter(tags=["streams"])

_MOST_KEY = 200
"""Characters of an idempotency key: a UUID has 36. Each is kept for a day."""


@router.post("/v1/streams/{stream}")
async def insert(request: Request, stream: str) -> Response:
    """Append events: `{"rows": [{"id": 1, "town": "Rome"}]}`. With the header `Idempotency-Key` a request that is sent
    again has the same answer and adds nothing. `position` of the answer is what `at_least` of a look-up takes."""
    stream = named(request, "write", stream)
    check_json(request)
    server = server_of(request)
    source = server.catalogued.source(stream)
    body = await body_of(request)
    rows = rows_in(body) if len(body) <= SMALL_BYTES else await asyncio.to_thread(rows_in, body)
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _MOST_KEY:
        raise RequestRefused(f"an Idempotency-Key has 1 to {_MOST_KEY} characters")
    made = await asyncio.to_thread(server.inserts.insert, source, rows, key)
    if len(body) > SMALL_BYTES:
        await asyncio.to_thread(let_go, rows)
    answer = {"inserted": len(made.places), "position": made.position}
    return Response(to_json(answer), media_type="application/json")
