"""Which web pages may talk to the server: its own, and those that the operator names.

A browser sends requests for whatever page is open in it, also to servers on its own machine that need no token. Two
headers tell such requests:

| header | refused | against |
| --- | --- | --- |
| `Host` | a name that is not the server's | a name of the attacker's that is made to mean 127.0.0.1 (DNS rebinding) |
| `Origin` | a page of another host | a page that sends requests here by itself (cross-site request forgery) |

An address in numbers cannot be rebound, so it is taken; and programs, which send no `Origin`, are not affected.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from strandline.jobs.serve.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import Scope

_LOCAL: Final = ("localhost", "localhost.localdomain")
_MOST_KNOWN: Final = 1024
"""Pairs of headers that were found good: a client sends the same ones with each request."""


class Origins:
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
