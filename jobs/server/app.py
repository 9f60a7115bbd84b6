"""The server in this process, until it is told to end (`strandline serve`): its routes, what happens around every
request, and which web pages may talk to it.

request ──foreign page or host?──> 403 (`_Origins`)
   └─one key?──> answered here (`routes.rows`)          both ways: measured, logged
        └─> FastAPI ──> route ──> answer                 a typed error anywhere ──> its status, and its text as JSON

A browser sends requests for whatever page is open in it, also to servers on its own machine that need no token. Two
headers tell such requests:

| header | refused | against |
| --- | --- | --- |
| `Host` | a name that is not the server's | a name of the attacker's that is made to mean 127.0.0.1 (DNS rebinding) |
| `Origin` | a page of another host | a page that sends requests here by itself (cross-site request forgery) |

An address in numbers cannot be rebound, so it is taken; and programs, which send no `Origin`, are not affected.
"""

from __future__ import annotations

import atexit
import gc
import json
import logging
import resource
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import uvicorn
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from strandline.jobs.serve.errors import Forbidden
from strandline.jobs.server.http import ksql, ksql_statements, operating, page, query, rows, streams, views
from strandline.jobs.server.http.answers import failure
from strandline.jobs.server.http.api import Measured, add_routes, described
from strandline.jobs.server.http.requests import PatientProtocol, PatientSocket, allowed, refuse_others, server_of
from strandline.jobs.server.http.rows import PointLookups
from strandline.jobs.server.postgres.listener import postgres
from strandline.jobs.server.state.access import bound
from strandline.jobs.server.state.server import running
from strandline.jobs.sql.size import too_deep
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout, check_lake

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import FrameType

    from starlette.types import Receive, Scope, Send

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.server.state.access import ServerOptions


# Routes are tried one after the other: look-ups first.
ROUTERS = (
    rows.router,
    page.router,
    views.router,
    query.router,
    streams.router,
    views.changes_router,
    ksql.router,
    ksql_statements.router,
    operating.router,
)


class _Application(FastAPI):
    """FastAPI's application, with the look-ups of one key in front of it. The description of its API has both."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        origins: _Origins | None = getattr(self.state, "origins", None)
        if scope["type"] in ("http", "websocket") and origins is not None:
            try:
                origins.check(scope)
            except Forbidden as error:
                if scope["type"] == "websocket":  # closed before it is accepted: 403
                    await send({"type": "websocket.close", "code": 1008, "reason": ""})
                else:
                    await failure(error)(scope, receive, send)
                return
        points: PointLookups | None = getattr(self.state, "points", None)
        if scope["type"] == "http" and points is not None and await points.answer(scope, send):
            return
        await super().__call__(scope, receive, send)


def application(settings: Settings, options: ServerOptions) -> FastAPI:
    """The application; what it needs is opened when it starts, and closed when it ends."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with running(settings, options) as server, postgres(server):
            app.state.server, app.state.points = server, PointLookups(server)
            app.state.origins = _Origins(options.host, options.allowed_hosts)
            yield

    app = _Application(title="Strandline", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    for router in ROUTERS:
        add_routes(app, router)

    @app.get("/v1/openapi.json", include_in_schema=False)
    async def description(request: Request) -> dict[str, Any]:
        allowed(request, "read", "openapi")
        return described(app)

    refuse_others(app)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, StrandlineError)
        return failure(server_of(request).catalogued.catalog.name_map.localized_error(error))

    async def nested(request: Request, error: Exception) -> Response:
        del request, error
        return failure(too_deep(1, 1))

    app.add_exception_handler(StrandlineError, refused)
    app.add_exception_handler(RecursionError, nested)
    app.add_middleware(Measured)
    return app


_GRACE_SECONDS: Final = 5
"""Requests that are being answered when the server is told to end have so long; subscriptions end at once."""
_SOCKET_BYTES: Final = 1 << 16
"""Of a message that a client sends over a web socket: none of ours has anything to say."""
_FILES: Final = 1 << 16
"""That may be open, as far as the system allows it: each connection is one. Shells give 1,024, less than there may be
subscribers; and where none is left no commit is read either."""
_SWITCH_SECONDS: Final = 0.000_5
"""A thread that encodes a large insert lets the event loop go on that soon, not after Python's 5 ms: beside 42 MB of
rows the p99 of look-ups is 11 ms instead of 43, and the insert takes as long."""
_FULL_COLLECTIONS: Final = 1000
"""Every so many of the middle ones, not 10: some seven million objects more than there were, which the rows of the
largest insert are not. A full collection stops every thread until it has looked at all of them."""
_FIELDS: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class _JsonLines(logging.Formatter):
    """One JSON object for each line of the log."""

    def format(self, record: logging.LogRecord) -> str:
        about = {name: value for name, value in record.__dict__.items() if name not in _FIELDS}
        body = {"time": self.formatTime(record), "level": record.levelname, "message": record.getMessage(), **about}
        if record.exc_info:
            body["trace"] = self.formatException(record.exc_info)
        return json.dumps(body, default=str)


def listen(
    settings: Settings, options: ServerOptions, *, log_requests: bool, ready: Callable[[int], None] = lambda _: None
) -> None:
    """Answer requests until SIGTERM or Ctrl-C.

    Args:
        ready: called with the port once requests are answered.

    Raises:
        SettingsError: it may not listen there, or cannot.
        ObjectMissing: there is no lake.
        CorruptState: the file of tokens does not read back.
        WriterBusy: another server works in the folder.
    """
    options.check()
    sockets = bound(options.host, options.port, "--listen")
    check_lake(LakeLayout(settings.lake))
    allow_files()
    sys.setswitchinterval(_SWITCH_SECONDS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    logger = logging.getLogger("strandline")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if log_requests else logging.WARNING)
    app = application(settings, options)
    _collect_seldom()
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        http=PatientProtocol,
        ws=PatientSocket,
        ws_max_size=_SOCKET_BYTES,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        access_log=False,
        log_level="warning",
        server_header=False,
        # Nothing here asks for a client's address, so nobody has to say it on another's behalf.
        proxy_headers=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        lifespan="off",  # `_Serving` opens the application
    )
    _Serving(config, app, ready).run(sockets)


def allow_files() -> None:
    """Let this process have many files open."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if now != resource.RLIM_INFINITY and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _collect_seldom() -> None:
    """Leave what has been imported out of every collection, and look at all else seldom: each would be a pause."""
    young, middle, _ = gc.get_threshold()
    gc.collect()
    gc.freeze()
    atexit.register(gc.unfreeze)  # libraries count what is left when the process ends
    gc.set_threshold(young, middle, _FULL_COLLECTIONS)


class _Serving(uvicorn.Server):
    """Opens the application itself, so that an error of its start is raised as it is, and not logged with a traceback;
    and ends the subscriptions when it is told to end: they would not end by themselves."""

    def __init__(self, config: uvicorn.Config, app: FastAPI, ready: Callable[[int], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready
        self._opened = AsyncExitStack()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self._opened.enter_async_context(self._app.router.lifespan_context(self._app))
        await super().startup(sockets)
        self._ready(sockets[0].getsockname()[1] if sockets else self.config.port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if not self.force_exit:
            await self._opened.aclose()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        server = getattr(self._app.state, "server", None)
        if server is not None:
            server.end_subscriptions()
        super().handle_exit(sig, frame)


_LOCAL: Final = ("localhost", "localhost.localdomain")
_MOST_KNOWN: Final = 1024
"""Pairs of headers that were found good: a client sends the same ones with each request."""


class _Origins:
    """The check of a server's requests. Called in the event loop alone.

    Args:
        host: the name or address that the server listens on.
        named: names, beside this one and this machine's, that the server is reached by, as a proxy or DNS has them.
    """

    def __init__(self, host: str, named: Iterable[str]) -> None:
        self._named = frozenset(name.lower() for name in named)
        self._hosts = frozenset((*_LOCAL, socket.gethostname().lower(), host.lower(), *self._named))
        self._good: set[tuple[bytes, bytes]] = set()

    def check(self, scope: Scope) -> None:
        """Check one request's headers.

        Raises:
            Forbidden: it is for another host, or comes from another host's page.
        """
        host = origin = b""
        hosts = 0
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
                hosts += 1
            elif name == b"origin":
                origin = value
        if hosts > 1:
            raise Forbidden("the request names several hosts", hint="send one Host")
        if (host, origin) in self._good:
            return
        self._check_host(host.decode("latin-1"))
        if origin:
            self._check_origin(origin.decode("latin-1"), host.decode("latin-1"))
        if len(self._good) < _MOST_KNOWN:
            self._good.add((host, origin))

    def _check_host(self, host: str) -> None:
        # A user before the host has no place in the header, and is where programs disagree on what the host is.
        name = "" if "@" in host else _name(f"//{host}")
        if name not in self._hosts and not _is_address(name):
            raise Forbidden(
                f"'{host}' is not a name of this server",
                hint="use its address, or start it with --allowed-host NAME for each name that it is reached by",
            )

    def _check_origin(self, origin: str, host: str) -> None:
        try:
            same = urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:
            same = False
        if not same and _name(origin) not in self._named:
            raise Forbidden(
                f"a page of '{origin}' may not send requests here",
                hint="start the server with --allowed-host NAME for the host of that page",
            )


def _name(url: str) -> str:
    """The host of a URL without its port; empty when it has none."""
    try:
        return (urlsplit(url).hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
