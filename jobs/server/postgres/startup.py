"""The beginning of a connection: encryption, who is there, and what the client is told first.

SSLRequest ──S──> TLS ──> StartupMessage ──R──> PasswordMessage (a token) ──> R, S …, K
CancelRequest (process, secret) ──> the query of another connection ends; this one is closed without a word
"""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.server.pg_values.refusal import Refusal, SqlState
from strandline.jobs.server.postgres import outgoing
from strandline.jobs.server.postgres.asking import Client
from strandline.jobs.server.postgres.incoming import malformed, read_message, read_startup

if TYPE_CHECKING:
    import ssl
    from asyncio import StreamReader, StreamWriter
    from collections.abc import Callable

    from strandline.jobs.server.postgres.incoming import Payload
    from strandline.jobs.server.postgres.settings import Settings

_CANCEL: Final = 80877102
_TLS: Final = 80877103
_GSS: Final = 80877104
"""The codes of the messages that stand in the place of a version: 1234 in the upper half."""
_MAJOR: Final = 3
_PASSWORD: Final = b"p"
_MOST_PASSWORD_BYTES: Final = 1000
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
        """The settings that it gave."""
        return {
            name: value for name, value in self.parameters.items() if not _is_option(name) and name not in _NOT_SETTINGS
        }


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
            writer.write(outgoing.ENCRYPTED if granted else outgoing.NOT_ENCRYPTED)
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
        writer.write(outgoing.only_version_3_0(unknown))
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
        startup.writer.write(outgoing.ASK_PASSWORD)
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


def greet(writer: StreamWriter, settings: Settings, process: int, secret: bytes) -> None:
    """Tell a client that was let in what it must know."""
    writer.write(outgoing.AUTHENTICATED)
    for name, value in settings.told().items():
        writer.write(outgoing.parameter_status(name, value))
    writer.write(outgoing.backend_key(process, secret))


def new_secret() -> bytes:
    """What proves that a cancellation comes from the client whose query it ends: the four bytes of version 3.0."""
    return secrets.token_bytes(4)
