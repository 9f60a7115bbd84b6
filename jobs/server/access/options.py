"""What a server is started with, and the check that it may listen where it is told to."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from jobs.serve.limits import Limits
from state_store.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

# A query over some ten million rows of two columns fits; two at once leave half of a small machine to everything else.
QUERY_LIMITS = Limits(seconds=10.0, memory_bytes=512 << 20, rows=1_000_000, answer_bytes=64 << 20)


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
    limits: Limits = QUERY_LIMITS
    queries: int = 2
    body_bytes: int = 8 << 20
    wait_seconds: float = 30.0
    subscribers: int = 2_000
    backlog: int = 10_000

    def check(self) -> None:
        """Check that it may listen there.

        Raises:
            SettingsError: on an address that others reach, without tokens or without TLS.
        """
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


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
