"""What a server is started with, and the check that it may listen where it is told to."""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from strandline.jobs.serve.terms import QueryLimits
from strandline.jobs.server.access.tokens import Tokens
from strandline.state_store.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path


# A query over some ten million rows of two columns fits; two at once leave half of a small machine to everything else.
QUERY_LIMITS = QueryLimits(seconds=10.0, memory_bytes=512 << 20, rows=1_000_000, answer_bytes=64 << 20)

_LAST_PORT = 65_535


@dataclass(frozen=True)
class ServerOptions:
    """What a server is started with.

    Attributes:
        folder: for replicas and idempotency keys; one server at a time works in it.
        tokens: the file of the tokens; None: whoever reaches the server may do everything.
        certificate, key: files of TLS, PEM.
        postgres_port: where PostgreSQL's clients connect; None: nowhere.
        postgres_clients: of those that may be connected at once.
        limits: of one query.
        allowed_hosts: names by which pages reach it, beside its address and this machine's name.
        queries: run at once, each in a process of its own.
        body_bytes: the longest body of a request: some 50,000 rows to insert.
        wait_seconds: the longest that `at_least` waits.
        subscribers: that may be connected at once.
        backlog: events that a subscriber may be behind before it is let go.
    """

    folder: Path
    host: str = "127.0.0.1"
    port: int = 8088
    tokens: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    postgres_port: int | None = None
    postgres_clients: int = 100
    limits: QueryLimits = QUERY_LIMITS
    allowed_hosts: tuple[str, ...] = ()
    queries: int = 2
    body_bytes: int = 8 << 20
    wait_seconds: float = 30.0
    subscribers: int = 2_000
    backlog: int = 10_000

    def check(self) -> None:
        """Check that it may listen there, and that what it needs for that can be read.

        Raises:
            SettingsError: on an address that others reach, without tokens or without TLS; a port that is none; a file
                that cannot be read, or is not what it is given as.
            CorruptState: the file of tokens does not read back.
        """
        for option, port in (("--listen", self.port), ("--postgres-port", self.postgres_port)):
            if port is not None and not 0 <= port <= _LAST_PORT:
                raise SettingsError(f"{option}: {port} is no port", hint=f"take one of 1 to {_LAST_PORT}")
        self._check_address()
        if self.tokens is not None:
            Tokens(self.tokens)
        _check_tls(self.certificate, self.key)

    def _check_address(self) -> None:
        if _is_loopback(self.host):
            return
        missing = [
            name
            for name, value in (("--tokens", self.tokens), ("--certificate", self.certificate), ("--key", self.key))
            if value is None
        ]
        if missing:
            raise SettingsError(
                f"on {self.host}, which others may reach, the server does not start without {' and '.join(missing)}",
                hint="make a token with `strandline token`, or listen on 127.0.0.1",
            )


def _check_tls(certificate: Path | None, key: Path | None) -> None:
    if certificate is None and key is None:
        return
    if certificate is None:
        raise SettingsError("--key is of no use without --certificate", hint="name the certificate's file too")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        files = f"'{certificate}'" if key is None else f"'{certificate}' and '{key}'"
        hint = "both are PEM, the key without a password, and the certificate is of that key"
        raise SettingsError(f"{files} are no certificate with its key: {error.reason or error}", hint=hint) from error
    except OSError as error:
        files = " or ".join(f"'{each}'" for each in (certificate, key) if each is not None)
        raise SettingsError(
            f"{files} cannot be read: {error.strerror}", hint="check the path, owner and mode"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# The sockets of a server: bound before anything is started. A port that is taken is an error with a way out.


def bound(host: str, port: int, option: str) -> list[socket.socket]:
    """A socket for each address that the host stands for, which accepts nobody yet.

    Args:
        option: that the port was given by, for the message.

    Raises:
        SettingsError: the host is unknown or not of this machine, or the port is taken or reserved.
    """
    with ExitStack() as opened:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)
            made = [opened.enter_context(socket.create_server(address, family=family)) for family, address in addresses]
        except OSError as error:
            known = error.errno if isinstance(error.errno, int) and error.errno > 0 else 0
            why = (os.strerror(known) if known else error.strerror or str(error)).lower()
            raise SettingsError(
                f"the server cannot listen on {host}, port {port}: {why}",
                hint=f"take another with {option}, or end what listens there: ss -ltnp 'sport = :{port}'",
            ) from error
        opened.pop_all()
        return made
