"""`POST /v1/streams/{stream}`: inserts, exactly once for each idempotency key."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, NoReturn

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.results import to_json
from strandline.jobs.server.http.requests import (
    body_of,
    check_json,
    check_known,
    in_line,
    json_object,
    named,
    server_of,
)
from strandline.jobs.server.state.inserts import let_go

# The rows of an insert's body, `{"rows": [{…}, …]}`: decoded in pieces, so that whoever waits beside them gets a
# turn.
#
# A JSON decoder keeps the interpreter to itself until it returns: for 50 MB at once that is most of a second in which
# no look-up is answered, in whatever thread it runs. Row by row it lets go between two of them.

SMALL_BYTES: Final = 1 << 16
"""Decoded at once, in the event loop: it takes less than a thread's hand-over and a millisecond together."""
_SURROGATES: Final = ("\\ud", "\\uD")
_OPENING: Final = re.compile(r'\s*\{\s*"rows"\s*:\s*\[\s*')
_BETWEEN: Final = re.compile(r"\s*([,\]])\s*")
_CLOSING: Final = re.compile(r"\s*\}\s*")


def rows_in(body: bytes) -> list[dict[str, Any]]:
    """The rows of a body.

    Raises:
        RequestRefused: it is not JSON, or its `rows` are no list of objects, or an empty one.
    """
    rows = _in_pieces(body) if len(body) > SMALL_BYTES else None
    if rows is None:
        found = json_object(body)
        check_known("member", found, ("rows",))
        rows = found.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise RequestRefused("'rows' is a list of objects, one at least")
    return rows


def _in_pieces(body: bytes) -> list[Any] | None:
    """The rows, where the body has no other member and nothing is wrong with it; None: what it is has to be found out
    by decoding all of it."""
    try:
        text = body.decode()
        # The standard library takes half of a surrogate pair for a character, which no topic does.
        found = None if any(mark in text for mark in _SURROGATES) else _OPENING.match(text)
        rows: list[Any] = []
        while found is not None:
            row, at = _DECODER.raw_decode(text, found.end())
            rows.append(row)
            found = _BETWEEN.match(text, at)
            if found is not None and found[1] == "]":
                return rows if _CLOSING.fullmatch(text, found.end()) else None
    except (ValueError, RecursionError):
        return None
    return None


def _no_number(_name: str) -> NoReturn:
    raise ValueError


# NaN and Infinity are no JSON; the standard library takes them unless it is told.
_DECODER: Final = json.JSONDecoder(parse_constant=_no_number)


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
    key = request.headers.get("idempotency-key")
    if key is not None and not 0 < len(key) <= _MOST_KEY:
        raise RequestRefused(f"an Idempotency-Key has 1 to {_MOST_KEY} characters")
    if len(body) <= SMALL_BYTES:
        made = await asyncio.to_thread(server.inserts.insert, source, rows_in(body), key)
    else:
        with in_line(server, len(body)):
            async with server.large_inserts:
                rows = await asyncio.to_thread(rows_in, body)
                made = await asyncio.to_thread(server.inserts.insert, source, rows, key)
                await asyncio.to_thread(let_go, rows)
    answer = {"inserted": len(made.places), "position": made.position}
    return Response(to_json(answer), media_type="application/json")
