"""The port of PostgreSQL's clients beside the one of HTTP: opened and closed with the server."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import secrets
import ssl
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.server.postgres import messages
from strandline.jobs.server.postgres.asking import Asking, Budget, Client, KeptTexts
from strandline.jobs.server.postgres.connection import Connection
from strandline.jobs.server.postgres.messages import fields_of, malformed, read_message, read_startup
from strandline.jobs.server.postgres.session import ClientSession
from strandline.jobs.server.postgres.settings import SessionSettings
from strandline.jobs.server.postgres.wire_types import Refusal, SqlState
from strandline.jobs.server.state.access import bound
from strandline.state_store.errors import InternalError

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator, Callable

    from strandline.jobs.server.postgres.messages import Payload
    from strandline.jobs.server.state.server import Server


# The beginning of a connection: encryption, who is there, and what the client is told first.
#
# SSLRequest ──S──> TLS ──> StartupMessage ──R──> PasswordMessage (a token) ──> R, S …, K
# CancelRequest (process, secret) ──> the query of another connection ends; this one is closed without a word

_CANCEL: Final = 80877102
_TLS: Final = 80877103
_GSS: Final = 80877104
"""The codes of the messages that stand in the place of a version: 1234 in the upper half."""
_MAJOR: Final = 3
_PASSWORD: Final = b"p"
_MOST_PASSWORD_BYTES: Final = 1000
_OPTION_WORD: Final = re.compile(r"(?:\\.|[^\s\\])+", re.S)
"""One word of `options`: a backslash takes the blank behind it for a part of the word."""
_NOT_SETTINGS: Final = frozenset(("user", "database", "options", "replication"))


@dataclass(frozen=True)
class Startup:
    """What the client asked for when it came. `reader` and `writer` are those of the encrypted connection, if it is."""

    reader: StreamReader
    writer: StreamWriter
    parameters: dict[str, str]

    @property
    def user(self) -> str:
        """The name that it gave; any will do."""
        return self.parameters["user"]

    @property
    def database(self) -> str:
        """The database that it named, its user's name without."""
        return self.parameters.get("database") or self.user

    @property
    def settings(self) -> dict[str, str]:
        """The settings that it gave, those of `options` too; what it gave by its own name counts.

        Raises:
            Refusal: `options` holds something else.
        """
        named = {
            name: value for name, value in self.parameters.items() if not _is_option(name) and name not in _NOT_SETTINGS
        }
        return settings_in(self.parameters.get("options", "")) | named


def settings_in(options: str) -> dict[str, str]:
    """The settings in PGOPTIONS, or in `options` of a connection string: `-c name=value --name=value`.

    Raises:
        Refusal: it holds something else.
    """
    found: dict[str, str] = {}
    words = iter(re.sub(r"\\(.)", r"\1", word) for word in _OPTION_WORD.findall(options))
    for word in words:
        said = word[2:] if word.startswith(("-c", "--")) else ""
        name, equals, value = (said or (next(words, "") if word == "-c" else "")).partition("=")
        if not name or not equals:
            hint = "write options='-c statement_timeout=2s': settings alone"
            raise Refusal(SqlState.INVALID_VALUE, f"the option '{word}' is not taken", hint=hint, fatal=True)
        found[name.replace("-", "_")] = value
    return found


async def begin(
    reader: StreamReader,
    writer: StreamWriter,
    context: ssl.SSLContext | None,
    cancel: Callable[[int, bytes], None],
) -> Startup | None:
    """Read until it is said who is there; None when another connection's query was to be cancelled.

    Raises:
        EOFError, OSError: the client has gone, or TLS cannot be agreed on.
        Refusal: what comes is no beginning, or it is not encrypted where it must be.
    """
    encrypted = False
    while True:
        payload = await read_startup(reader)
        code = payload.unsigned()
        if code == _CANCEL:
            cancel(payload.number(), payload.raw(4))
            return None
        if code in (_TLS, _GSS):
            granted = code == _TLS and context is not None and not encrypted
            writer.write(messages.ENCRYPTED if granted else messages.NOT_ENCRYPTED)
            await writer.drain()
            if granted:
                assert context is not None
                reader, writer = await _encrypted(writer, context)
                encrypted = True
            continue
        if code >> 16 != _MAJOR:
            raise malformed(f"version {code >> 16}.{code & 0xFFFF} of the protocol is not spoken", "3.0 is")
        if context is not None and not encrypted:
            message = "the connection is not encrypted, and this server demands TLS"
            raise Refusal(SqlState.NOT_AUTHENTICATED, message, hint="connect with sslmode=require", fatal=True)
        return _started(reader, writer, payload, code & 0xFFFF)


def _started(reader: StreamReader, writer: StreamWriter, payload: Payload, minor: int) -> Startup:
    parameters: dict[str, str] = {}
    while name := payload.text():
        parameters[name] = payload.text()
    if not parameters.get("user"):
        raise Refusal(SqlState.NOT_AUTHENTICATED, "the startup message names no user", hint="any will do", fatal=True)
    unknown = [name for name in parameters if _is_option(name)]
    if minor or unknown:
        writer.write(messages.only_version_3_0(unknown))
    return Startup(reader, writer, parameters)


def _is_option(name: str) -> bool:
    """True for a name that is the protocol's own, and no setting's."""
    return name.startswith("_pq_.")


async def _encrypted(writer: StreamWriter, context: ssl.SSLContext) -> tuple[StreamReader, StreamWriter]:
    """The same connection in TLS. Its reader is new: what came unencrypted before is no part of it."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport = await loop.start_tls(writer.transport, protocol, context, server_side=True)
    assert transport is not None
    protocol.connection_made(transport)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def let_in(startup: Startup, check: Callable[[str], None] | None) -> Client:
    """Let a client in that has a token, which it sends as its password.

    Args:
        check: of the token; None: everybody is let in.

    Raises:
        EOFError, OSError: the client has gone.
        Refusal: it has none.
    """
    password = ""
    if check is not None:
        startup.writer.write(messages.ASK_PASSWORD)
        await startup.writer.drain()
        kind, payload = await read_message(startup.reader, _MOST_PASSWORD_BYTES)
        if kind != _PASSWORD:
            raise malformed("a password was asked for")
        password = payload.text()
        try:
            check(password)
        except Unauthenticated as error:
            hint = "the password is a token: `strandline token` makes one"
            raise Refusal(SqlState.WRONG_PASSWORD, "the token is not valid", hint=hint, fatal=True) from error
    return Client(startup.user, startup.database, password)


def greet(writer: StreamWriter, settings: SessionSettings, process: int, secret: bytes) -> None:
    """Tell a client that was let in what it must know."""
    writer.write(messages.AUTHENTICATED)
    for name, value in settings.told().items():
        writer.write(messages.parameter_status(name, value))
    writer.write(messages.backend_key(process, secret))


def new_secret() -> bytes:
    """What proves that a cancellation comes from the client whose query it ends: the four bytes of version 3.0."""
    return secrets.token_bytes(4)


log = logging.getLogger("strandline.server")

_WELCOME_SECONDS: Final = 60.0
"""PostgreSQL's `authentication_timeout`: who says nothing for so long is let go."""


@dataclass(frozen=True)
class _Client:
    session: ClientSession
    secret: bytes


class Listener:
    """The clients that are connected. One event loop works with it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._budget = Budget()
        self._processes = count(1)
        self._clients: dict[int, _Client] = {}
        self._kept = KeptTexts()
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
        except (EOFError, OSError):
            # It has gone, never said who it is, or takes nothing any more: nobody waits until what is left is sent.
            writer.transport.abort()
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
            settings = SessionSettings(client.user, startup.settings)
            await self._serve(startup, ClientSession(Asking(self._server, client, self._kept), settings, self._budget))
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

    async def _serve(self, startup: Startup, session: ClientSession) -> None:
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
        writer.write(messages.error(fields))
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
