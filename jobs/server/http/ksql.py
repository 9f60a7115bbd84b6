"""ksqlDB's REST shape for pull queries, push queries and inserts, for clients that were written for it.

/query           [{"header": …},          /query-stream    {"columnNames": …}       a row of a push query comes
                  {"row": …},                              ["Rome", 3]              when its change is committed
                  {"finalMessage": …}]
/close-query     {"queryId": …}: ends the push query that began with this id
/ws/query        over a web socket: [{"name": …, "schema": …}, …], then {"row": …}, a message each
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast
from uuid import uuid4

import orjson
from anyio import CancelScope
from fastapi import APIRouter, Request, WebSocket, WebSocketDisconnect
from starlette.responses import Response, StreamingResponse

from strandline.jobs.catalog.stored_names import as_stored
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.serve.catalogued import names_read
from strandline.jobs.serve.consistent_snapshot import age_ms, instant
from strandline.jobs.serve.errors import RequestRefused, Unauthenticated
from strandline.jobs.serve.results import to_json
from strandline.jobs.serve.watch import staleness
from strandline.jobs.server.http.answers import (
    MAX_STALENESS,
    OFFSET_RESETS,
    About,
    KsqlRoute,
    failure,
    field_of,
    given_name,
    ksql_failure,
    lag_headers,
    schema,
    shown_name,
    shown_type,
)
from strandline.jobs.server.http.requests import (
    WAIT_SECONDS,
    body_of,
    json_object,
    json_of,
    named,
    reader_of,
    server_of,
)
from strandline.jobs.server.state.hub import SubscriptionRequest
from strandline.jobs.sql.size import check_characters, too_deep
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from starlette.requests import HTTPConnection

    from strandline.jobs.model.tables import Relation
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.subscription import Subscription
    from strandline.jobs.server.state.by_key import Keyed
    from strandline.jobs.server.state.events import PushedEvent
    from strandline.jobs.server.state.server import Server
    from strandline.jobs.server.state.worker import Answered

router = APIRouter(tags=["ksqlDB"], route_class=KsqlRoute)

_DELIMITED: Final = "application/vnd.ksqlapi.delimited.v1"
_STREAMED: Final = "application/vnd.ksql.v1+json"
_JSON: Final = "application/json"
_LIMIT_REACHED: Final = b'{"finalMessage": "Limit Reached"}'
_COMPLETED: Final = b'{"finalMessage": "Query Completed"}'
_END: Final[Any] = object()
_REASON_BYTES: Final = 123
"""Of the reason why a web socket is closed, by its protocol."""


@dataclass(frozen=True)
class _Asked:
    """A query: its text as it was sent, and the statement over the names that are stored.

    Attributes:
        earliest: a push query begins with the rows that are there.
        allowed: the seconds that the answer may be behind its topics.
    """

    text: str
    statement: Select
    earliest: bool
    allowed: float | None


@router.post("/query")
async def query(request: Request) -> Response:
    """`{"ksql": "SELECT …;"}`: an array of a header, rows, and for streams and push queries a final message. With
    `EMIT CHANGES` it is sent as changes are committed; `"streamsProperties": {"auto.offset.reset": "earliest"}` sends
    the rows that are there first."""
    return await _streamed(request, await _said(request, "ksql", "streamsProperties"))


async def _streamed(request: Request, said: tuple[str, dict[str, Any]]) -> Response:
    """The answer as an array of a header, rows and a message, each an object."""
    keyed = await _by_key(request, said)
    if keyed is not None:
        header = _pull_header(keyed, _key(server_of(request), keyed.plan.relation))
        return _elements(header, _arrays(keyed), about=_about(request, keyed))
    asked = await _asked(request, said)
    if asked.statement.emit is not None:
        made, events, about = await _followed(request, asked, "columns")
        pushed = _Pushed(server_of(request).push_queries, events)
        header = orjson.dumps({"header": {"queryId": pushed.id, "schema": schema(made.names, made.types)}})
        parts = _array(header, pushed, asked.statement.limit)
        return StreamingResponse(parts, headers=about, media_type=_JSON)
    found = await _pulled(request, asked)
    source = _source(server_of(request), asked.statement)
    key = _key(server_of(request), source) if source is not None else ()
    rows = found.body.splitlines()
    last = []
    if source is not None and source.storage == "append":
        last.append(_LIMIT_REACHED if len(rows) == asked.statement.limit else _COMPLETED)
    return _elements(_pull_header(found, key), rows, last, _about(request, found))


@router.post("/query-stream")
async def query_stream(request: Request) -> Response:
    """`{"sql": "SELECT …;"}`: a line with names and types, then a line for each row. With `EMIT CHANGES` the lines are
    sent as changes are committed; `"properties"` says from where, as of `/query`. With `Accept: application/json` the
    lines are the elements of one array; `application/vnd.ksql.v1+json` has the answer of `/query`."""
    said = await _said(request, "sql", "properties")
    form = _wanted(request)
    if form == _STREAMED:
        return await _streamed(request, said)
    keyed = await _by_key(request, said)
    if keyed is not None:
        return _joined([_header(_new_id(), keyed.names, keyed.types), *_arrays(keyed)], form, _about(request, keyed))
    asked = await _asked(request, said)
    if asked.statement.emit is not None:
        made, events, about = await _followed(request, asked, "arrays")
        pushed = _Pushed(server_of(request).push_queries, events)
        pieces = _lines(_header(pushed.id, made.names, made.types), pushed, form)
        return StreamingResponse(pieces, headers=about, media_type=form)
    found = await _pulled(request, asked)
    lines = [_header(_new_id(), found.names, found.types), *found.body.splitlines()]
    return _joined(lines, form, _about(request, found))


@router.websocket("/ws/query")
async def query_socket(socket: WebSocket) -> None:
    """`?request={"ksql": "SELECT …;", "streamsProperties": {…}}`: a message with the columns, then one for each row;
    the end and errors are the reason why it is closed. Tokens and limits as of `/query`."""
    server = server_of(socket)
    try:
        server.token_of(socket.headers.get("authorization"))
    except Unauthenticated:
        await socket.close(1008)  # before it is accepted: 403
        return
    await socket.accept()
    code, reason = 1000, "done"
    try:
        await _over_socket(socket)
    except StrandlineError as error:
        told = server.catalogued.catalog.name_map.localized_error(error)
        status = failure(error).status_code
        code = 1003 if status < 429 else 1013 if status in (429, 503) else 1011
        reason = f"[{told.code}] {told.message}"
    except RecursionError:
        code, reason = 1003, too_deep(1, 1).message
    except WebSocketDisconnect:
        return
    with suppress(RuntimeError, WebSocketDisconnect):  # the client may be gone
        await socket.close(code, reason.encode()[:_REASON_BYTES].decode(errors="ignore"))


async def _over_socket(socket: WebSocket) -> None:
    server = server_of(socket)
    said = _said_in(json_object(socket.query_params.get("request", "").encode()), "ksql", "streamsProperties")
    keyed = await _by_key(socket, said)
    asked = None if keyed is not None else await _asked(socket, said)
    if asked is not None and asked.statement.emit is not None:
        made, events, _ = await _followed(socket, asked, "columns")
        await socket.send_text(_columns(made.names, made.types))
        pushed = _Pushed(server.push_queries, events)
        gone = asyncio.ensure_future(_until_gone(socket, pushed))
        try:
            with pushed.open():
                async with aclosing(pushed.told()) as told:
                    async for event in told:
                        if event.kind == "error":
                            raise RequestRefused(orjson.loads(event.data)["message"])
                        await socket.send_text(f'{{"row": {event.data}}}')
        finally:
            gone.cancel()
        return
    found: Any = keyed if keyed is not None else await _pulled(socket, cast("_Asked", asked))
    await socket.send_text(_columns(found.names, found.types))
    for row in found.body.splitlines() if keyed is None else _arrays(keyed):
        await socket.send_text(f'{{"row": {{"columns": {row.decode()}}}}}')


async def _until_gone(socket: WebSocket, pushed: _Pushed) -> None:
    """End a push query when its client goes; whatever else it says means nothing."""
    with suppress(WebSocketDisconnect, RuntimeError):
        while True:
            await socket.receive_text()
    pushed.close()


def _columns(names: Sequence[str], types: Sequence[SqlType]) -> str:
    """The first message: the columns as ksqlDB describes them."""
    return orjson.dumps([field_of(name, kind) for name, kind in zip(names, types, strict=True)]).decode()


@router.post("/close-query")
async def close_query(request: Request) -> Response:
    """`{"queryId": …}`: the push query that began with this id ends; 400 when none goes on that has it."""
    reader_of(request)
    found = (await json_of(request)).get("queryId")
    closed = server_of(request).push_queries.get(found) if isinstance(found, str) else None
    if closed is None:
        raise RequestRefused("no push query of this id goes on", hint="`queryId` is in the first line of its answer")
    closed.set()
    return Response()


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
            told = server.catalogued.catalog.name_map.localized_error(error)
            body = {"status": "error", "seq": number, **orjson.loads(ksql_failure(told).body)}
            answers.append(orjson.dumps(body))
    form = _wanted(request)
    return _joined(answers, _JSON if form == _STREAMED else form, {})


def _wanted(request: Request) -> str:
    """The first form that a client names of those that there are: lines where it takes any."""
    named = (each.partition(";")[0].strip().lower() for each in request.headers.get("accept", "").split(","))
    return next((each for each in named if each in (_DELIMITED, _STREAMED, _JSON)), _DELIMITED)


def _joined(lines: list[bytes], form: str, about: dict[str, str]) -> Response:
    """Lines, or one array of them; `about` are headers."""
    body = b"[" + b",\n".join(lines) + b"]" if form == _JSON else b"\n".join([*lines, b""])
    return Response(body, headers=about, media_type=form)


async def _said(request: Request, member: str, properties: str) -> tuple[str, dict[str, Any]]:
    """The text and the properties of a body."""
    server_of(request).token_of(request.headers.get("authorization"))
    return _said_in(await json_of(request), member, properties)


def _said_in(body: dict[str, Any], member: str, properties: str) -> tuple[str, dict[str, Any]]:
    text, given = body.get(member), body.get(properties) or {}
    if not isinstance(text, str) or not isinstance(given, dict):
        raise RequestRefused(f"'{member}' is a text, '{properties}' an object")
    check_characters(text)
    return text, given


async def _by_key(request: HTTPConnection, said: tuple[str, dict[str, Any]]) -> Keyed | None:
    server = server_of(request)
    found = await server.by_key.find(said[0], server.token_of(request.headers.get("authorization")), "ksql")
    allowed = _max_staleness(said[1])
    if found is None or allowed is None or await asyncio.to_thread(server.topics.fresh, found.offsets, allowed):
        return found
    return None


def _max_staleness(given: dict[str, Any]) -> float | None:
    """The seconds that an answer may be behind its topics, as a property of the query says it."""
    return staleness(given.get(MAX_STALENESS))


def _about(request: HTTPConnection, found: Answered | Keyed) -> dict[str, str]:
    """What an answer reflects, as headers: ksqlDB's shape has no place for it."""
    lag = server_of(request).topics.lag(found.offsets)
    return About(None, instant(found.event_time), age_ms(found.committed), found.versions, lag).headers()


def _arrays(keyed: Keyed) -> list[bytes]:
    """The rows as JSON arrays."""
    return [to_json(row).encode() for row in keyed.shown()]


def _pull_header(found: Answered | Keyed, key: tuple[str, ...]) -> bytes:
    return orjson.dumps({"header": {"queryId": _new_id(), "schema": schema(found.names, found.types, key)}})


def _elements(
    header: bytes, rows: Iterable[bytes], last: Iterable[bytes] = (), about: dict[str, str] | None = None
) -> Response:
    """A pull query's answer as one array; `about` are headers."""
    parts = [header, *(b'{"row": {"columns": ' + row + b"}}" for row in rows), *last]
    return Response(b"[" + b",\n".join(parts) + b"]", headers=about, media_type=_JSON)


async def _asked(request: HTTPConnection, said: tuple[str, dict[str, Any]]) -> _Asked:
    """The query of a text; who may read what is checked where it is answered."""
    text, given = said
    statements = await asyncio.to_thread(parse, text)
    if len(statements) != 1 or not isinstance(statements[0], Select):
        raise RequestRefused("the text is not one SELECT", hint="statements are for `strandline sql`")
    statement = as_stored(statements[0], server_of(request).catalogued.catalog)
    earliest = any(given.get(name) == "earliest" for name in OFFSET_RESETS)
    return _Asked(text, statement, earliest, _max_staleness(given))


async def _pulled(request: HTTPConnection, asked: _Asked) -> Answered:
    server = server_of(request)
    token = server.token_of(request.headers.get("authorization"))

    def ask() -> Answered:
        found = server.queries.ask(asked.text, token, form="ksql")
        if asked.allowed is not None:
            server.topics.check(found.offsets, asked.allowed)
        return found

    found = await server.until((), ask, WAIT_SECONDS)
    server.note(found.versions)
    return found


async def _followed(
    request: HTTPConnection, asked: _Asked, form: Literal["columns", "arrays"]
) -> tuple[Subscription, AsyncGenerator[PushedEvent | None], dict[str, str]]:
    """What a push query shows, its events, and how far it is behind as headers. Raises as `Hub.follow`."""
    server = server_of(request)
    name_map = server.catalogued.catalog.name_map
    names = names_read(asked.statement.query, server.catalogued.catalog)

    def check_allowed() -> None:
        token = server.token_of(request.headers.get("authorization"))
        for name in names:
            token.require("read", *name_map.scopes_of(name))

    check_allowed()
    wish = SubscriptionRequest(
        asked.statement,
        form,
        snapshot=asked.earliest,
        limit=asked.statement.limit,
        max_staleness=asked.allowed,
        allowed=check_allowed,
    )
    # The first name decides: what reads several is refused by the hub.
    lag = await server.meet(server.catalogued.relation(names[0]), asked.allowed, WAIT_SECONDS)
    await server.hub.prepare(wish, server.catalogued.catalog)
    return (*server.hub.follow(wish, server.catalogued.catalog, server.library()), lag_headers(lag))


def _source(server: Server, statement: Select) -> Relation | None:
    """The one relation that the query reads; None for several."""
    named = names_read(statement.query, server.catalogued.catalog)
    return server.catalogued.relation(named[0]) if len(named) == 1 else None


def _key(server: Server, source: Relation) -> tuple[str, ...]:
    """The key as it was defined: that of the rows leaves out a column that a WHERE has made a constant."""
    found = server.catalogued.catalog.find(source.name)
    return tuple(found.key) if isinstance(found, Source | View) and source.storage == "keyed" else ()


class _Pushed:
    """A push query at work: what is subscribed to, and the id by which its client, or another, ends it.

    Args:
        known: the push queries of the server, where this one stands while it is `open`.
        events: those of the subscription.
    """

    def __init__(self, known: dict[str, asyncio.Event], events: AsyncGenerator[PushedEvent | None]) -> None:
        self.id = _new_id()
        self._known, self._events = known, events
        self._closed = asyncio.Event()

    def close(self) -> None:
        """End it."""
        self._closed.set()

    @contextmanager
    def open(self) -> Iterator[None]:
        """From before its first line, so that whoever has read the id can end it."""
        self._known[self.id] = self._closed
        try:
            yield
        finally:
            del self._known[self.id]

    async def told(self) -> AsyncGenerator[PushedEvent]:
        """The rows, and the error that ends them; marks of progress are not in ksqlDB's shape."""
        async with aclosing(self._events), aclosing(self._until_closed()) as events:
            async for event in events:
                if event is not None and event.kind in ("row", "change", "error"):
                    yield event

    async def _until_closed(self) -> AsyncGenerator[PushedEvent | None]:
        closed = asyncio.ensure_future(self._closed.wait())
        step: asyncio.Future[PushedEvent | None] | None = None
        try:
            while True:
                step = asyncio.ensure_future(anext(self._events, _END))
                await asyncio.wait({step, closed}, return_when=asyncio.FIRST_COMPLETED)
                if not step.done() or step.result() is _END:
                    return
                yield step.result()
        finally:
            closed.cancel()
            if step is not None and not step.done():
                step.cancel()
                # The generator is still running until then, and cannot be closed; a client that has gone cancels
                # every other wait.
                with CancelScope(shield=True):
                    await asyncio.wait({step})


async def _array(header: bytes, pushed: _Pushed, limit: int | None) -> AsyncIterator[bytes]:
    """A push query's answer as one array, which ends with why it ended. Each element comes with the comma and the line
    break behind it: who reads lines has it at once."""
    sent = 0
    with pushed.open():
        yield b"[" + header + b",\n"
        async with aclosing(pushed.told()) as events:
            async for event in events:
                if event.kind == "error":
                    yield b'{"errorMessage": ' + event.data.encode() + b"}]\n"
                    return
                yield b'{"row": ' + event.data.encode() + b"},\n"
                sent += 1
        yield (_LIMIT_REACHED if sent == limit else _COMPLETED) + b"]\n"


async def _lines(header: bytes, pushed: _Pushed, form: str) -> AsyncIterator[bytes]:
    """A push query's answer as lines, or as one array. An element of an array is whole without what comes behind it."""
    first, before, behind, last = (b"[", b",\n", b"", b"]") if form == _JSON else (b"", b"", b"\n", b"")
    with pushed.open():
        yield first + header + behind
        async with aclosing(pushed.told()) as events:
            async for event in events:
                yield before + event.data.encode() + behind
        if last:
            yield last


def _header(query_id: str, names: Iterable[str], types: Iterable[SqlType]) -> bytes:
    columns = {"columnNames": [*map(shown_name, names)], "columnTypes": [*map(shown_type, types)]}
    return orjson.dumps({"queryId": query_id, **columns})


def _new_id() -> str:
    return f"query_{uuid4().hex}"


def _objects(body: bytes) -> list[dict[str, Any]]:
    return [json_object(line, "a line") for line in body.split(b"\n") if line.strip()]
