"""ksqlDB's REST shape for pull queries, push queries and inserts, for clients that were written for it.

/query           [{"header": …},          /query-stream    {"columnNames": …}       a row of a push query comes
                  {"row": …},                              ["Rome", 3]              when its change is committed
                  {"finalMessage": …}]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse

from jobs.catalog.stored_names import stored_statement
from jobs.model.definitions import Source, View
from jobs.model.serving_errors import RequestRefused
from jobs.serve.readable import names_read
from jobs.server.changes.hub import Wish
from jobs.server.http.failures import failure
from jobs.server.http.ksql_shape import given_name, schema, shown_name, shown_type
from jobs.server.http.requests import body_of, json_of, named, server_of
from jobs.sql.statements import parse
from jobs.sql.syntax import Select
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from jobs.model.relation import Relation
    from jobs.model.types import SqlType
    from jobs.serve.subscription import Subscription
    from jobs.server.changes.events import Event
    from jobs.server.queries.worker import Answered
    from jobs.server.state.server import Server

router = APIRouter(tags=["ksqlDB"])

_DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
_LIMIT_REACHED: Final = b'{"finalMessage": "Limit Reached"}'
_COMPLETED: Final = b'{"finalMessage": "Query Completed"}'
_OFFSET_RESETS: Final = ("ksql.streams.auto.offset.reset", "auto.offset.reset")


@dataclass(frozen=True)
class _Asked:
    """A query: its text as it was sent, and the statement over the names that are stored.

    Attributes:
        earliest: a push query begins with the rows that are there.
    """

    text: str
    statement: Select
    earliest: bool


@router.post("/query")
async def query(request: Request) -> Response:
    """`{"ksql": "SELECT …;"}`: an array of a header, rows, and for streams and push queries a final message. With
    `EMIT CHANGES` it is sent as changes are committed; `"streamsProperties": {"auto.offset.reset": "earliest"}` sends
    the rows that are there first."""
    asked = await _asked(request, "ksql", "streamsProperties")
    if asked.statement.emit is not None:
        made, events = _followed(request, asked, "columns")
        header = orjson.dumps({"header": {"schema": schema(made.names, made.types)}})
        return StreamingResponse(_array(header, events, asked.statement.limit), media_type="application/json")
    found = await _pulled(request, asked)
    source = _source(server_of(request), asked.statement)
    key = _key(server_of(request), source) if source is not None else ()
    rows = found.body.splitlines()
    parts = [orjson.dumps({"header": {"schema": schema(found.names, found.types, key)}})]
    parts += [b'{"row": {"columns": ' + row + b"}}" for row in rows]
    if source is not None and source.storage == "append":
        parts.append(_LIMIT_REACHED if len(rows) == asked.statement.limit else _COMPLETED)
    return Response(b"[" + b",\n".join(parts) + b"]", media_type="application/json")


@router.post("/query-stream")
async def query_stream(request: Request) -> Response:
    """`{"sql": "SELECT …;"}`: a line with names and types, then a line for each row. With `EMIT CHANGES` the lines are
    sent as changes are committed; `"properties"` says from where, as of `/query`."""
    asked = await _asked(request, "sql", "properties")
    if asked.statement.emit is not None:
        made, events = _followed(request, asked, "arrays")
        return StreamingResponse(_lines(_header(made.names, made.types), events), media_type=_DELIMITED)
    found = await _pulled(request, asked)
    lines = [_header(found.names, found.types), *found.body.splitlines(), b""]
    return Response(b"\n".join(lines), media_type=_DELIMITED)


@router.post("/inserts-stream")
async def inserts_stream(request: Request) -> Response:
    """A line `{"target": "STREAM"}`, then a line for each row: an answer for each, `ok` or the error."""
    parsed = await asyncio.to_thread(_objects, await body_of(request))
    target = parsed[0].get("target") if parsed else None
    if not isinstance(target, str):
        raise RequestRefused("the first line names the target")
    name = named(request, "write", given_name(target))
    server = server_of(request)
    source = server.catalogued.source(name)
    answers = []
    for number, row in enumerate(parsed[1:]):
        fields = {given_name(field): value for field, value in row.items()}
        try:
            await asyncio.to_thread(server.inserts.insert, source, [fields], None)
            answers.append(orjson.dumps({"status": "ok", "seq": number}))
        except StrandlineError as error:
            told = server.catalogued.catalog.called.told(error)
            body = {"status": "error", "seq": number, **orjson.loads(failure(told).body)}
            answers.append(orjson.dumps(body))
    return Response(b"\n".join([*answers, b""]), media_type=_DELIMITED)


async def _asked(request: Request, member: str, properties: str) -> _Asked:
    """The query of a body; who may read what is checked where it is answered."""
    server = server_of(request)
    server.token_of(request.headers.get("authorization"))
    body = await json_of(request)
    text, given = body.get(member), body.get(properties) or {}
    if not isinstance(text, str) or not isinstance(given, dict):
        raise RequestRefused(f"'{member}' is a text, '{properties}' an object")
    statements = await asyncio.to_thread(parse, text)
    if len(statements) != 1 or not isinstance(statements[0], Select):
        raise RequestRefused("the text is not one SELECT", hint="statements are for `strandline sql`")
    statement = stored_statement(statements[0], server.catalogued.catalog.called)
    return _Asked(text, statement, any(given.get(name) == "earliest" for name in _OFFSET_RESETS))


async def _pulled(request: Request, asked: _Asked) -> Answered:
    server = server_of(request)
    token = server.token_of(request.headers.get("authorization"))
    return await asyncio.to_thread(server.queries.ask, asked.text, token, form="ksql")


def _followed(
    request: Request, asked: _Asked, form: Literal["columns", "arrays"]
) -> tuple[Subscription, AsyncGenerator[Event | None]]:
    """What a push query shows, and its events. Raises as `Hub.follow`."""
    server = server_of(request)
    called = server.catalogued.catalog.called
    names = names_read(asked.statement.query, server.catalogued.catalog)

    def check_allowed() -> None:
        token = server.token_of(request.headers.get("authorization"))
        for name in names:
            token.require("read", called.of(name), name)

    check_allowed()
    wish = Wish(asked.statement, form, snapshot=asked.earliest, limit=asked.statement.limit, allowed=check_allowed)
    return server.hub.follow(wish, server.catalogued.catalog, server.library())


def _source(server: Server, statement: Select) -> Relation | None:
    """The one relation that the query reads; None for several."""
    named = names_read(statement.query, server.catalogued.catalog)
    return server.catalogued.relation(named[0]) if len(named) == 1 else None


def _key(server: Server, source: Relation) -> tuple[str, ...]:
    """The key as it was defined: that of the rows leaves out a column that a WHERE has made a constant."""
    found = server.catalogued.catalog.find(source.name)
    return tuple(found.key) if isinstance(found, Source | View) and source.storage == "keyed" else ()


async def _array(header: bytes, events: AsyncGenerator[Event | None], limit: int | None) -> AsyncIterator[bytes]:
    """A push query's answer as one array, which ends with why it ended; one that the server ended says nothing."""
    yield b"[" + header
    sent = 0

    async for part in _parts(
        events, lambda event: b',\n{"row": ' + event.data.encode() + b"}", b',\n{"errorMessage": %b}'
    ):
        yield part
        sent += 1
    yield b",\n" + _LIMIT_REACHED + b"]" if sent == limit else b"]"


async def _lines(header: bytes, events: AsyncGenerator[Event | None]) -> AsyncIterator[bytes]:
    """A push query's answer as lines."""
    yield header + b"\n"
    async for part in _parts(events, lambda event: event.data.encode() + b"\n", b"%b\n"):
        yield part


async def _parts(
    events: AsyncGenerator[Event | None], row: Callable[[Event], bytes], error: bytes
) -> AsyncIterator[bytes]:
    """The rows and the error of a subscription; marks of progress are not in ksqlDB's shape."""
    async with aclosing(events):
        async for event in events:
            if event is not None and event.kind in ("row", "change"):
                yield row(event)
            elif event is not None and event.kind == "error":
                yield error % event.data.encode()


def _header(names: Iterable[str], types: Iterable[SqlType]) -> bytes:
    return orjson.dumps({"columnNames": [*map(shown_name, names)], "columnTypes": [*map(shown_type, types)]})


def _objects(body: bytes) -> list[dict[str, Any]]:
    return [_object(line) for line in body.split(b"\n") if line.strip()]


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RequestRefused(f"a line is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestRefused("a line is not a JSON object")
    return found
