"""Who may connect: tokens as passwords, and TLS where there is a certificate."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.state.access import ServerOptions, make_token, revoke_token
from tests.support.postgres_server import certificate_in, postgres_server
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.server.conftest import DEFINITIONS

SSL_REQUEST = struct.pack("!ii", 8, 80877103)


@dataclass(frozen=True)
class Guarded:
    address: str
    tokens: Path
    token: str
    certificate: Path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    served = ServedLake(load_settings(lake=folder / "lake"), DEFINITIONS)
    certificate, key = certificate_in(folder)
    tokens = folder / "tokens.json"
    token = make_token(tokens, "reader", ("read:by_*",), None)
    options = ServerOptions(folder / "server", tokens=tokens, certificate=certificate, key=key, queries=1)
    with postgres_server(served.settings, options) as address:
        yield Guarded(address, tokens, token, certificate)


def connect(guarded: Guarded, password: str, more: str = "sslmode=verify-full") -> psycopg.Connection:
    return psycopg.connect(
        f"{guarded.address} {more} sslrootcert={guarded.certificate}", password=password, autocommit=True
    )


def test_a_token_is_the_password_and_its_scopes_hold(guarded: Guarded) -> None:
    with connect(guarded, guarded.token) as session:
        assert session.execute("SELECT * FROM by_town").fetchall() == []
        listed = session.execute("SELECT table_name FROM information_schema.tables ORDER BY 1").fetchall()
        assert listed == [("by_id",), ("by_town",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege) as caught:
            session.execute("SELECT * FROM visits")
        assert caught.value.diag.message_hint == "it needs the scope read:visits"


@pytest.mark.parametrize("password", ["wrong", "sl_reader_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "Bearer x"])
def test_a_wrong_password_is_refused(guarded: Guarded, password: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="the token is not valid"):
        connect(guarded, password)


def test_without_tls_nobody_is_asked_for_a_password(guarded: Guarded) -> None:
    with pytest.raises(psycopg.OperationalError, match="demands TLS"):
        connect(guarded, guarded.token, "sslmode=disable")


def test_a_token_that_is_taken_back_ends_its_sessions(guarded: Guarded) -> None:
    token = make_token(guarded.tokens, "guest", ("read:*",), None)
    with connect(guarded, token) as session:
        session.execute("SELECT * FROM by_id")
        make_token(guarded.tokens, "guest", ("read:*",), None)
        with pytest.raises(psycopg.OperationalError, match="not valid any more"):
            session.execute("SELECT * FROM by_id")
        assert session.broken


def test_what_was_asked_before_is_not_fetched_after(guarded: Guarded) -> None:
    token = make_token(guarded.tokens, "fetcher", ("read:*",), None)
    with connect(guarded, token) as session:
        session.execute("DECLARE c CURSOR WITH HOLD FOR SELECT * FROM by_id")
        assert session.execute("FETCH 1 FROM c").fetchall() == []
        revoke_token(guarded.tokens, "fetcher")
        with pytest.raises(psycopg.OperationalError, match="not valid any more"):
            session.execute("FETCH ALL FROM c")


def test_what_comes_before_the_handshake_is_no_part_of_the_session(guarded: Guarded) -> None:
    """CVE-2021-23214: bytes that somebody put in front of the encrypted ones must not be read as the client's."""
    context = ssl.create_default_context(cafile=str(guarded.certificate))
    startup = struct.pack("!ii", 17, 196608) + b"user\0me\0\0"
    with socket.create_connection(_host_and_port(guarded.address)) as client:
        client.sendall(SSL_REQUEST + struct.pack("!ii", 8, 2 << 16))
        assert client.recv(1) == b"S"
        with context.wrap_socket(client, server_hostname="127.0.0.1") as encrypted:
            encrypted.sendall(startup)
            assert encrypted.recv(1) == b"R"


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", struct.pack("!ii", 8, 2 << 16), b"\0\0\0\4"])
def test_another_protocol_is_told_so(guarded: Guarded, sent: bytes) -> None:
    with socket.create_connection(_host_and_port(guarded.address)) as client:
        client.sendall(sent)
        client.settimeout(PATIENCE_SECONDS)
        assert client.recv(1000)[:1] == b"E"


def _host_and_port(address: str) -> tuple[str, int]:
    found = dict(part.split("=") for part in address.split())
    return found["host"], int(found["port"])
