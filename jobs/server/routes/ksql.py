"""ksqlDB's REST shape for pull queries and inserts, for clients that were written for it.

ksqlDB folds names to upper case, we to lower: its clients get, and send, upper. A push query is refused with a pointer
to `GET /v1/views/{view}/changes`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from jobs.model.serving_errors import RequestRefused
from jobs.server.http.failures import failure
from jobs.server.http.requests import allowed, body_of, json_of, server_of
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from jobs.server.queries.worker import Answered

router = APIRouter(tags=["ksqlDB"])

_DELIMITED = "application/vnd.ksqlapi.delimited.v1"


@router.post("/query")
async def query(request: Request) -> Response:
    """`{"ksql": "SELECT …;"}`: an array of a header and rows."""
    found = await _asked(request, "ksql")
    schema = ", ".join(
        f"`{_theirs(name)}` {_their_type(kind)}" for name, kind in zip(found.names, found.types, strict=True)
    )
    header = orjson.dumps({"header": {"schema": schema}})
    rows = [b'{"row": {"columns": ' + row + b"}}" for row in _columns(found)]
    return Response(b"[" + b",\n".join([header, *rows]) + b"]", media_type="application/json")


@router.post("/query-stream")
async def query_stream(request: Request) -> Response:
    """`{"sql": "SELECT …;"}`: a line with names and types, then a line for each row."""
    found = await _asked(request, "sql")
    header = {"columnNames": [*map(_theirs, found.names)], "columnTypes": [*map(_their_type, found.types)]}
    return Response(b"\n".join([orjson.dumps(header), *_columns(found), b""]), media_type=_DELIMITED)


@router.post("/inserts-stream")
async def inserts_stream(request: Request) -> Response:
    """A line `{"target": "STREAM"}`, then a line for each row: an answer for each, `ok` or the error."""
    lines = [line for line in (await body_of(request)).split(b"\n") if line.strip()]
    parsed = [_object(line) for line in lines]
    target = parsed[0].get("target") if parsed else None
    if not isinstance(target, str):
        raise RequestRefused("the first line names the target")
    name = _ours(target)
    allowed(request, "write", name)
    server = server_of(request)
    source = server.catalogued.source(name)
    answers = []
    for number, row in enumerate(parsed[1:]):
        fields = {_ours(field): value for field, value in row.items()}
        try:
            await asyncio.to_thread(server.inserts.insert, source, [fields], None)
            answers.append(orjson.dumps({"status": "ok", "seq": number}))
        except StrandlineError as error:
            body = {"status": "error", "seq": number, **orjson.loads(failure(error).body)}
            answers.append(orjson.dumps(body))
    return Response(b"\n".join([*answers, b""]), media_type=_DELIMITED)


async def _asked(request: Request, member: str) -> Answered:
    server = server_of(request)
    token = server.token_of(request.headers.get("authorization"))
    text = (await json_of(request)).get(member)
    if not isinstance(text, str):
        raise RequestRefused(f"'{member}' is a text")
    return await asyncio.to_thread(server.queries.ask, text, token, arrow=False)


def _columns(found: Answered) -> list[bytes]:
    """The rows as JSON arrays."""
    return [orjson.dumps([row[name] for name in found.names]) for row in orjson.loads(b"[" + found.body + b"]")]


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RequestRefused(f"a line is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestRefused("a line is not a JSON object")
    return found


def _theirs(name: str) -> str:
    return name.upper()


def _ours(name: str) -> str:
    """As the parser folds it; a name in backquotes stays."""
    return name[1:-1] if name.startswith("`") and name.endswith("`") and len(name) > 2 else name.lower()


def _their_type(kind: str) -> str:
    return kind.replace("VARCHAR", "STRING").replace("INT", "INTEGER").replace("BIGINTEGER", "BIGINT")
