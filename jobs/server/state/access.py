"""Who may ask for what, and where the server may listen: its options and its tokens.

The file of tokens holds a hash of each, never the token itself.

    sl_<name>_<secret>  ──sha-256──> compared in constant time with that of the name ──> scopes, unless it has expired

A secret has 256 random bits, so a plain hash cannot be searched; a slow one would only slow the server down.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import re
import secrets
import socket
import ssl
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.jobs.serve.errors import Forbidden, Unauthenticated
from strandline.state_store.errors import CorruptState, SettingsError
from strandline.state_store.files import make_folder, replace
from strandline.state_store.stored_state import members_in, sealed_members

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.jobs.serve.terms import QueryLimits


_LAST_PORT = 65_535


def _query_limits() -> QueryLimits:
    """A query over some ten million rows of two columns fits; two at once leave half of a small machine to all else."""
    from strandline.jobs.serve.terms import QueryLimits  # a command that makes a token needs no query

    return QueryLimits(seconds=10.0, memory_bytes=512 << 20, rows=1_000_000, answer_bytes=64 << 20)


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
    limits: QueryLimits = field(default_factory=_query_limits)
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


Verb = Literal["read", "write", "operate"]
"""`read` rows and changes of a view, `write` events of a stream, `operate`: see what the server measures."""

_VERBS: Final[tuple[Verb, ...]] = ("read", "write", "operate")
_FORMAT: Final = 1
_NAME = re.compile(r"[a-z0-9-]{1,40}")
_TOKEN = re.compile(r"sl_([a-z0-9-]{1,40})_([A-Za-z0-9_-]{20,100})")
_ANSWERS: Final = 1024
"""Of the question what some scopes allow: that many tokens and views are asked about again and again."""
# What a request without a known name is compared with, so that it takes as long as one with it.
_NOBODY: Final = "0" * 64


@dataclass(frozen=True)
class Token:
    """One entry of the file.

    Attributes:
        hash: SHA-256 of the token's text, hexadecimal.
        scopes: `verb:pattern`, where the pattern is a name of a view or stream and may hold `*`.
        expires: seconds since the epoch; None: never.
    """

    name: str
    hash: str
    scopes: tuple[str, ...]
    expires: int | None = None

    def allows(self, verb: Verb, *names: str) -> bool:
        """True if one of the scopes names the verb and the view or stream, by any of its names."""
        return any(_allowed(self.scopes, verb, name) for name in names)

    def require(self, verb: Verb, name: str, *others: str) -> None:
        """Raise Forbidden unless one of the scopes names the verb and the view or stream, by any of its names."""
        if not self.allows(verb, name, *others):
            raise Forbidden(f"the token does not allow to {verb} '{name}'", hint=f"it needs the scope {verb}:{name}")

    def may(self, verb: Verb) -> bool:
        """True if it allows the verb for anything."""
        return bool(_patterns(self.scopes, verb))


EVERYTHING: Final = Token("everybody", "", tuple(f"{verb}:*" for verb in _VERBS))
"""What a server without a file of tokens lets everybody do: it listens on the loopback address alone."""


class Tokens:
    """The tokens of a file, which is read again when it has changed: a token that is removed ends at once.

    Raises:
        SettingsError: there is no such file.
        CorruptState: it does not read back.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mark = (0, 0)
        self._known: dict[str, Token] = {}
        self._refresh()

    def find(self, header: str | None) -> Token:
        """The token of an `Authorization` header: a bearer's, or the password of a browser's.

        Raises:
            Unauthenticated: there is none, or it is unknown or has expired; which of them is not said.
        """
        self._refresh()
        text = _text_of(header or "")
        found = _TOKEN.fullmatch(text)
        known = self._known.get(found[1]) if found else None
        same = hmac.compare_digest(_hashed(text), known.hash if known else _NOBODY)
        if known is None or not same or (known.expires is not None and known.expires <= time.time()):
            raise Unauthenticated("the request has no valid token", hint="send `Authorization: Bearer TOKEN`")
        return known

    def _refresh(self) -> None:
        try:
            about = os.stat(self._path)
        except OSError as error:
            raise SettingsError(
                f"the file of tokens cannot be read: {self._path}",
                hint="check the path, or make it: strandline token NAME --scope 'read:*' --file FILE",
            ) from error
        mark = (about.st_mtime_ns, about.st_ino)
        if mark != self._mark:
            self._known = {token.name: token for token in _read(self._path)}
            self._mark = mark


def _patterns(scopes: tuple[str, ...], verb: Verb) -> list[str]:
    parts = (scope.partition(":") for scope in scopes)
    return [pattern for each, _, pattern in parts if each == verb]


@lru_cache(_ANSWERS)
def _allowed(scopes: tuple[str, ...], verb: Verb, name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _patterns(scopes, verb))


def _text_of(header: str) -> str:
    """The token's text in an `Authorization` header; empty when it has none."""
    scheme, _, said = header.partition(" ")
    match scheme.lower():
        case "bearer":
            return said.strip()
        case "basic":
            try:
                return base64.b64decode(said.strip(), validate=True).decode().partition(":")[2]
            except ValueError:
                return ""
    return ""


def make_token(path: Path, name: str, scopes: tuple[str, ...], days: int | None) -> str:
    """Add a token to a file, which is made if it is not there; one of that name is replaced.

    Returns:
        The token. It is not kept anywhere.

    Raises:
        SettingsError: the name or a scope is not one, or the days are none.
        CorruptState: the file does not read back.
    """
    if not _NAME.fullmatch(name):
        raise SettingsError(f"'{name}' is no name of a token", hint="up to 40 of a-z, 0-9 and -")
    for scope in scopes:
        verb, colon, pattern = scope.partition(":")
        if verb not in _VERBS or not colon or not pattern:
            raise SettingsError(f"'{scope}' is no scope", hint="write read:*, read:my_view, write:orders or operate:*")
    if days is not None and days < 1:
        raise SettingsError(f"a token of {days} days has expired when it is made", hint="say at least --days 1")
    text = f"sl_{name}_{secrets.token_urlsafe(32)}"
    expires = None if days is None else int(time.time()) + days * 86_400
    others = [token for token in _read(path) if token.name != name] if path.exists() else []
    entries = [asdict(token) for token in (*others, Token(name, _hashed(text), scopes, expires))]
    make_folder(path.parent)
    _write(path, entries)
    return text


def revoke_token(path: Path, name: str) -> None:
    """Remove a token from a file: a server that runs answers it no more.

    Raises:
        SettingsError: the file has no token of that name.
        CorruptState: the file does not read back.
    """
    known = _read(path) if path.exists() else []
    left = [token for token in known if token.name != name]
    if len(left) == len(known):
        names = ", ".join(token.name for token in known) or "none"
        raise SettingsError(f"'{path}' has no token '{name}'", hint=f"it has {names}")
    _write(path, [asdict(token) for token in left])


def _write(path: Path, entries: list[dict[str, Any]]) -> None:
    replace(path, sealed_members({"format": _FORMAT, "tokens": entries}))
    path.chmod(0o600)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _read(path: Path) -> list[Token]:
    try:
        body = members_in(path.read_bytes())
        if body["format"] != _FORMAT:
            raise ValueError(body["format"])
        return [Token(**{**entry, "scopes": tuple(entry["scopes"])}) for entry in body["tokens"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(
            "the file of tokens is not as it was written",
            where=str(path),
            hint="put a copy of it back, or move it away and make its tokens again: strandline token NAME --scope …",
        ) from error
