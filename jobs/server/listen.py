"""A server in this process, until it is told to end: `strandline serve`."""

from __future__ import annotations

import atexit
import gc
import json
import logging
import resource
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import uvicorn

from strandline.jobs.server.access.options import bound
from strandline.jobs.server.app import application
from strandline.jobs.server.http.requests import PatientProtocol, PatientSocket
from strandline.state_store.layout import LakeLayout, check_lake

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket
    from types import FrameType

    from fastapi import FastAPI

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.server.access.options import ServerOptions

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

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await self._opened.enter_async_context(self._app.router.lifespan_context(self._app))
        await super().startup(sockets)
        self._ready(sockets[0].getsockname()[1] if sockets else self.config.port)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        await super().shutdown(sockets)
        if not self.force_exit:
            await self._opened.aclose()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        server = getattr(self._app.state, "server", None)
        if server is not None:
            server.end_subscriptions()
        super().handle_exit(sig, frame)
