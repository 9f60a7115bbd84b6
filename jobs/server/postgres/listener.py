"""The port of PostgreSQL's clients beside the one of HTTP: opened and closed with the server."""

from __future__ import annotations

import asyncio
import hmac
import logging
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from strandline.jobs.server.access.bound import bound
from strandline.jobs.server.pg_values.refusal import Refusal, SqlState
from strandline.jobs.server.postgres import outgoing
from strandline.jobs.server.postgres.asking import Asking, Bindings
from strandline.jobs.server.postgres.connection import Connection
from strandline.jobs.server.postgres.failures import fields_of
from strandline.jobs.server.postgres.result import Budget
from strandline.jobs.server.postgres.session import Session
from strandline.jobs.server.postgres.settings import Settings
from strandline.jobs.server.postgres.startup import Startup, begin, greet, let_in, new_secret
from strandline.state_store.errors import InternalError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator

    from strandline.jobs.server.state.server import Server

log = logging.getLogger("strandline.server")

_WELCOME_SECONDS: Final = 60.0
"""PostgreSQL's `authentication_timeout`: who says nothing for so long is let go."""


@dataclass(frozen=True)
class _Client:
    session: Session
    secret: bytes


class Listener:
    """The clients that are connected. One event loop works with it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._budget = Budget()
        self._processes = count(1)
        self._clients: dict[int, _Client] = {}
        self._bindings: Bindings = {}
        self._tasks: set[asyncio.Task[None]] = set()
        options = server.options
        self._context: ssl.SSLContext | None = None
        if options.certificate is not None:
            self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._context.load_cert_chain(options.certificate, options.key)

    async def accept(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Serve one client from its first byte to its last."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._welcome(reader, writer)
        except (EOFError, OSError, TimeoutError):
            pass  # it has gone, or never said who it is
        except asyncio.CancelledError:
            pass  # only `close` ends it so, and asyncio would log a traceback for each client that is connected then
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _welcome(self, reader: StreamReader, writer: StreamWriter) -> None:
        startup: Startup | None = None
        try:
            async with asyncio.timeout(_WELCOME_SECONDS):
                startup = await begin(reader, writer, self._context, self._cancel)
                if startup is None:
                    return
                check = None if self._server.options.tokens is None else self._check
                client = await let_in(startup, check)
            if len(self._clients) >= self._server.options.postgres_clients:
                message = "as many clients are connected as the server takes"
                raise Refusal(SqlState.TOO_MANY_CONNECTIONS, message, hint="close connections", fatal=True)
            settings = Settings(client.user, startup.settings)
            await self._serve(startup, Session(Asking(self._server, client, self._bindings), settings, self._budget))
        except Refusal as error:
            await _tell(startup.writer if startup else writer, fields_of(error, "", 0))
        except Exception as error:
            if isinstance(error, OSError | EOFError):
                raise
            log.exception("postgres")
            fault = InternalError("the server met a fault of its own", hint="its log has the details")
            await _tell(startup.writer if startup else writer, fields_of(fault, "", 0))
        finally:
            if startup is not None:
                startup.writer.close()

    async def _serve(self, startup: Startup, session: Session) -> None:
        process, secret = next(self._processes), new_secret()
        self._clients[process] = _Client(session, secret)
        try:
            greet(startup.writer, session.settings, process, secret)
            await Connection(startup.reader, startup.writer, session, self._server.options.body_bytes).serve()
        finally:
            del self._clients[process]
            session.close()

    def _check(self, password: str) -> None:
        self._server.token_of(f"Bearer {password}")

    def _cancel(self, process: int, secret: bytes) -> None:
        client = self._clients.get(process)
        if client is not None and hmac.compare_digest(client.secret, secret):
            client.session.cancel()


async def _tell(writer: StreamWriter, fields: dict[str, str]) -> None:
    with suppress(OSError):
        writer.write(outgoing.error(fields))
        await writer.drain()


@asynccontextmanager
async def postgres(server: Server) -> AsyncIterator[None]:
    """The port for the duration of the block; nothing without one in the options.

    Raises:
        SettingsError: the port is taken.
    """
    if server.options.postgres_port is None:
        yield
        return
    listener = Listener(server)
    sockets = bound(server.options.host, server.options.postgres_port, "--postgres-port")
    accepting = [await asyncio.start_server(listener.accept, sock=each) for each in sockets]
    try:
        yield
    finally:
        for each in accepting:
            each.close()
        await listener.close()
