"""What a request says: whose it is, and the values that its path, its query string and its body hold."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote_to_bytes

import orjson
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from strandline.jobs.model.errors import TypeMismatch, UnknownName
from strandline.jobs.serve.consistent_snapshot import Pinned
from strandline.jobs.serve.errors import Busy, Forbidden, MediaTypeRefused, RequestRefused, TimeLimit, TooLarge
from strandline.jobs.serve.lookup import KeyValues, Windows
from strandline.jobs.session.conversions import assign, convert
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from fastapi import FastAPI
    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.server.state.access import Token, Verb
    from strandline.jobs.server.state.server import Server


# The parameters that a route takes in its query string: declared with the route, so that the description of the API
# has them, and every other is refused. What is ignored in silence looks as if it had been done.

WAITING: Final = ("at_least", "max_staleness", "wait_ms", "cut")
"""What an answer must reflect, how far it may be behind, how long to wait for that, and the cut that it reads."""
WINDOWS: Final = ("window_start_from", "window_start_to", "window_end_from", "window_end_to")
"""The bounds of windows, in milliseconds."""


def parameters(*names: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes these parameters."""
    return {"parameters": [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]}


def refuse_others(app: FastAPI) -> None:
    """Have each route of an application refuse the parameters that it does not declare."""
    for route in app.router.routes:
        if isinstance(route, APIRoute) and not isinstance(route.app, _Declared):
            declared = (route.openapi_extra or {}).get("parameters", ())
            route.app = _Declared(route.app, tuple(each["name"] for each in declared))


@dataclass(frozen=True)
class _Declared:
    """A route's application behind a check that it takes every parameter of a request."""

    app: ASGIApp
    known: tuple[str, ...]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["query_string"]:
            given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
            check_known("parameter", (name for name, _ in given), self.known)
        await self.app(scope, receive, send)


def check_known(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Check that every name is known.

    Args:
        what: a name of these is, as errors say it.

    Raises:
        RequestRefused: one is not; the nearest are proposed.
    """
    unknown = next((name for name in names if name not in known), None)
    if unknown is not None:
        error = UnknownName.among(what, unknown, known)
        hint = error.hint or f"it takes no {what}"
        listed = f" ({', '.join(known)})" if known and "did you mean" in hint else ""
        raise RequestRefused(error.message, hint=hint + listed)


# How long the server waits for a request: connections that say nothing, or half of it, are closed.
#
# uvicorn closes a connection that is idle after an answer, and waits without end for the rest of a request's head. So
# two thousand connections that each send a byte a minute would stay, and take the file handles of those who ask.

HEAD_SECONDS: Final = 10.0
"""From the connection, or a request's first byte, to the end of its head: a client on a bad line takes two or three."""
BODY_SECONDS: Final = 60.0
"""From the head to the end of the body: the longest body in that time is 140 kB a second."""
BODIES_BYTES: Final = 256 << 20
"""Of all bodies that have not ended yet, or wait for their turn: thirty of the longest."""
_HEAD_BYTES: Final = 64 << 10
"""Of a request's head, which is kept in memory: a token, an event's id and a long `where` take a few thousand."""


STALLED_SECONDS: Final = 60.0
"""A client that takes nothing of what is sent for so long has gone, or is up to no good."""
UNTAKEN_BYTES: Final = 256 << 20
"""Of answers that clients have not taken yet: four of the largest. Beyond that the one that has stalled the longest is
let go, for the others are just being sent theirs."""


class _Taking:
    """Whether a client takes what it is sent: its connection is ended when it has taken nothing for a while.

    Attributes:
        stalled_since: by the loop's clock; None: it takes what it is sent.
    """

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.stalled_since: float | None = None
        self._loop = asyncio.get_running_loop()
        self._timer: TimerHandle | None = None
        self._left = 0

    def pause(self) -> None:
        """More was sent than it takes at once."""
        if self.stalled_since is None:
            self.stalled_since = self._loop.time()
            self._look_again()

    def resume(self) -> None:
        """It has taken most of it. What is left when the connection is to be closed has to be taken too."""
        self.end()
        if self.transport.is_closing():
            self.pause()

    def end(self) -> None:
        """Look no more."""
        self.stalled_since = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self) -> None:
        self._left = self.transport.get_write_buffer_size()
        self._timer = self._loop.call_later(STALLED_SECONDS, self._look)

    def _look(self) -> None:
        if self.transport.get_write_buffer_size() >= self._left:
            self.transport.abort()
        else:
            self._look_again()


class PatientSocket(WebSocketsSansIOProtocol):
    """uvicorn's protocol of a web socket, with an end to its patience."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._taking = _Taking(transport)
        super().connection_made(transport)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking.pause()

    def resume_writing(self) -> None:
        self._taking.resume()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._taking.end()
        super().connection_lost(exc)


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol of a connection, with an end to its patience."""

    _late: TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self.taking = _Taking(transport)
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._late is not None and self._head_bytes > _HEAD_BYTES:
            self._give_up()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        self.taking.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.taking.pause()
        self._let_go_of_the_slowest()

    def resume_writing(self) -> None:
        self.taking.resume()
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # It is closed once all is sent, which is never to a client that takes nothing.
        self.taking.pause()

    def _let_go_of_the_slowest(self) -> None:
        """Close connections until the answers that nobody has taken are as few as they may be."""
        stalled = [
            (each.taking.stalled_since, each.transport)
            for each in self.connections
            if isinstance(each, PatientProtocol) and each.taking.stalled_since is not None
        ]
        waiting = [transport for _, transport in sorted(stalled, key=itemgetter(0))]
        left = [each.get_write_buffer_size() for each in waiting]
        over = sum(left) - UNTAKEN_BYTES
        for transport, size in zip(waiting[:-1], left, strict=False):
            if over <= 0:
                return
            over -= size
            transport.abort()

    def _expect_head(self) -> None:
        if self._late is None:
            self._late = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _expect_nothing(self) -> None:
        if self._late is not None:
            self._late.cancel()
        self._late, self._head_bytes = None, 0

    def _give_up(self) -> None:
        self._expect_nothing()
        self.transport.close()


_BEFORE_KEY = 5
"""Slashes in the path of a row before its key."""
WAIT_SECONDS: Final = 5.0
"""How long an answer waits that does not say it: some epochs of a view that keeps up."""
MOST_ROWS = 100_000
"""Of one look-up: more are what POST /v1/query with Arrow is for."""


def server_of(request: HTTPConnection) -> Server:
    """The server that a request, or a web socket, came to."""
    server: Server = request.app.state.server
    return server


def allowed(request: Request, verb: Verb, name: str) -> Token:
    """Whose request it is, after it is known that the token allows it.

    Raises:
        Unauthenticated: there is no valid token.
        Forbidden: it does not allow the verb for the name.
    """
    token = server_of(request).token_of(request.headers.get("authorization"))
    token.require(verb, name)
    return token


def named(request: Request, verb: Verb, said: str) -> str:
    """The name under which is stored what a request calls `said`, after it is known that its token allows the verb.

    A scope that names a definition by what it was called when it was made, or is called now, is for that definition.

    Raises:
        Unauthenticated, Forbidden: as `allowed`.
        UnknownName: it is the former name of a definition that is called otherwise now.
    """
    server = server_of(request)
    return stored_name(server.token_of(request.headers.get("authorization")), verb, said, server.catalogued.catalog)


def stored_name(token: Token, verb: Verb, said: str, catalog: Catalog) -> str:
    """As `named`, of a token."""
    token.require(verb, said, *catalog.name_map.names_of(said))
    return catalog.name_map.stored(said)


def reader_of(request: Request) -> Token:
    """Whose request it is, after it is known that the token allows to read something.

    Raises:
        Unauthenticated: there is no valid token.
        Forbidden: it allows to read nothing.
    """
    token = server_of(request).token_of(request.headers.get("authorization"))
    if not token.may("read"):
        raise Forbidden("the token does not allow to read anything", hint="it needs a scope read:…")
    return token


async def body_of(request: Request) -> bytes:
    """The body.

    Raises:
        TooLarge: it is longer than the server takes.
        Busy: with those of others it is.
        TimeLimit: it does not end in time.
        RequestRefused: the client goes before it ends: nobody has the answer.
    """
    server = server_of(request)
    most = server.options.body_bytes
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise TooLarge(f"the body has more than {most:,} bytes", hint="send less at once")
                _count_body(server, len(part))
                parts.append(part)
    except ClientDisconnect:
        raise RequestRefused("the client went before the body had ended") from None
    except TimeoutError:
        raise TimeLimit(f"the body did not end within {BODY_SECONDS:g} s", hint="send less at once") from None
    finally:
        server.body_bytes -= sum(map(len, parts))
    return b"".join(parts)


def _count_body(server: Server, size: int) -> None:
    if server.body_bytes + size > BODIES_BYTES:
        raise Busy("the server is being sent as much as it takes at once")
    server.body_bytes += size


@contextmanager
def in_line(server: Server, size: int) -> Iterator[None]:
    """Count a body that waits for its turn, for the duration of the block. Raises Busy."""
    _count_body(server, size)
    try:
        yield
    finally:
        server.body_bytes -= size


def check_json(request: Request) -> None:
    """Check that a write declares its body as JSON.

    Raises:
        MediaTypeRefused: it does not.
    """
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != "application/json" and not (declared.startswith("application/") and declared.endswith("+json")):
        raise MediaTypeRefused(
            f"a write is JSON, and '{declared or 'no type'}' was declared", hint="send Content-Type: application/json"
        )


async def json_of(request: Request, *members: str) -> dict[str, Any]:
    """The body as a JSON object.

    Args:
        members: those that it may have; without any, all.

    Raises:
        RequestRefused: it is none, or has another member.
        TooLarge: as of `body_of`.
    """
    found = json_object(await body_of(request))
    if members:
        check_known("member", found, members)
    return found


def json_object(body: bytes, what: str = "the body") -> dict[str, Any]:
    """A body, or `what` of it, as a JSON object. Raises RequestRefused."""
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise RequestRefused(f"{what} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestRefused(f"{what} is not a JSON object")
    return found


def key_in_path(request: Request, relation: Relation) -> KeyValues:
    """The key at the end of the path: one segment for each column, so that `/` inside a value is written %2F.

    Raises:
        RequestRefused: there are more or fewer than the key has columns, or one is not of its type.
    """
    # /v1/views/{view}/rows/…: the view itself may be called `rows`.
    return key_of_segments(request.scope["raw_path"].partition(b"?")[0].split(b"/", _BEFORE_KEY)[-1], relation)


def key_of_segments(raw: bytes, relation: Relation) -> KeyValues:
    """The key that the end of a path stands for; errors as of `key_in_path`."""
    try:
        texts = [unquote_to_bytes(part).decode() for part in raw.split(b"/")]
    except UnicodeDecodeError:
        raise RequestRefused("the key in the path is not UTF-8") from None
    if len(texts) != len(relation.key):
        columns = ", ".join(relation.key)
        raise RequestRefused(
            sentence(
                "the key of '{}' is {}: one segment for each column", Name(relation.name), columns or "not visible"
            )
        )
    return key_values(texts, relation)


def key_values(values: list[Any], relation: Relation) -> KeyValues:
    """The values of the key's first columns, out of text or JSON.

    Raises:
        RequestRefused: there are too many, or one is not of its column's type.
    """
    if len(values) > len(relation.key):
        raise RequestRefused(sentence("a key of '{}' has {} columns", Name(relation.name), len(relation.key)))
    made = []
    for name, value in zip(relation.key, values, strict=False):
        sql_type = relation.type_of(name)
        try:
            made.append(assign(convert(value, sql_type), sql_type, name))
        except (TypeMismatch, ValueError, OverflowError) as error:
            raise RequestRefused(f"the key column '{name}' is {sql_type}", hint=str(error)[:200]) from error
    return tuple(made)


def number(request: Request, name: str, default: int | None = None, most: int = 1 << 62) -> int | None:
    """A whole number, not negative, of the query string.

    Raises:
        RequestRefused: it is not one, or too large.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdecimal() and len(text) <= 19) or int(text) > most:
        raise RequestRefused(f"'{name}' is a whole number up to {most}")
    return int(text)


def seconds(request: Request) -> float:
    """How long `at_least` may wait: `wait_ms`."""
    return (number(request, "wait_ms", int(WAIT_SECONDS * 1000)) or 0) / 1000


def most_seconds(body: Mapping[str, Any]) -> float:
    """How long `at_least` of a body may wait: its `wait_ms`.

    Raises:
        RequestRefused: it is not a whole number, or negative.
    """
    found = body.get("wait_ms", int(WAIT_SECONDS * 1000))
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise RequestRefused("'wait_ms' is a whole number, not negative")
    # A float has no place for every whole number of JSON; the server waits no longer than it may in any case.
    return min(found, 1 << 31) / 1000


def pinned_in(text: Any) -> Pinned | None:
    """The pinned cut that a request names as its `cut`. Raises RequestRefused: it is none."""
    if text is not None and not isinstance(text, str):
        raise RequestRefused("'cut' is a text, as POST /v1/cuts answers")
    return None if text is None else Pinned.read(text)


def windows_of(request: Request) -> Windows:
    """The bounds of windows in the query string."""
    names = ("start_from", "start_to", "end_from", "end_to")
    return Windows(*(number(request, f"window_{name}") for name in names))


def columns_of(request: Request) -> tuple[str, ...]:
    """The columns that are wanted."""
    text = request.query_params.get("columns")
    return tuple(name for name in text.split(",") if name) if text else ()
