"""Clients that have much kept for them, or take nothing: bounded together, and let go."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import errors

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.postgres import connection, listener
from strandline.jobs.server.postgres.asking import Budget
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.sql.size import QUERY_CHARACTERS
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.server.postgres.conftest import ALL_ROWS, LIMITS, TOWNS

DEFINITIONS = "CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');"
BUDGET = 8 << 20
WIDE = ALL_ROWS.replace("v4.town", "v4.town, v1.n AS a, v2.n AS b, v3.n AS c, v1.town AS d")
"""An answer of more bytes than the kernel takes for a client that reads nothing."""
LONG = "'" + "x" * (QUERY_CHARACTERS // 2) + "'"


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server that keeps eight megabytes for all its clients."""
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    served.append("visits", [{"id": number, "town": town, "n": number + 1} for number, town in enumerate(TOWNS)])
    monkeypatch.setattr(listener, "Budget", lambda: Budget(BUDGET))
    with postgres_server(served.settings, ServerOptions(tmp_path / "server", limits=LIMITS, queries=1)) as address:
        yield address


def deaf(address: str, sql: str) -> socket.socket:
    """A client that asks and takes nothing of the answer."""
    about = psycopg.conninfo.conninfo_to_dict(address)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(PATIENCE_SECONDS)
    client.connect((str(about["host"]), int(str(about["port"]))))
    said = struct.pack("!I", 196608) + b"user\0deaf\0\0"
    client.sendall(struct.pack("!I", len(said) + 4) + said)
    client.recv(64)
    client.sendall(b"Q" + struct.pack("!I", len(sql) + 5) + sql.encode() + b"\0")
    return client


def test_prepared_statements_count_until_they_are_forgotten(narrow: str) -> None:
    with psycopg.connect(narrow, autocommit=True) as first, psycopg.connect(narrow, autocommit=True) as second:
        for number in range(BUDGET // len(LONG)):
            first.pgconn.prepare(f"s{number}".encode(), f"SELECT {LONG}".encode())
        refused = second.pgconn.prepare(b"s", f"SELECT {LONG}".encode())
        assert b"DEALLOCATE" in (refused.error_field(psycopg.pq.DiagnosticField.MESSAGE_HINT) or b"")
        assert first.execute("SELECT 1").fetchone() == (1,)
        first.execute("DEALLOCATE ALL")
        assert second.pgconn.prepare(b"s", f"SELECT {LONG}".encode()).error_message == b""


def test_what_a_session_kept_is_free_when_it_ends(narrow: str) -> None:
    for _ in range(3):
        with psycopg.connect(narrow, autocommit=True) as session:
            for number in range(BUDGET // len(LONG)):
                assert session.pgconn.prepare(f"s{number}".encode(), f"SELECT {LONG}".encode()).error_message == b""


def test_parameters_of_open_portals_count(narrow: str) -> None:
    with psycopg.connect(narrow) as session:
        for number in range(BUDGET >> 20):
            session.cursor(f"c{number}").execute("SELECT %s AS x", ("x" * 900_000,))
        with pytest.raises(errors.ProgramLimitExceeded):
            session.cursor("more").execute("SELECT %s AS x", ("x" * (1 << 20),))


def test_answers_that_are_not_taken_count_and_end(narrow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "STALLED_SECONDS", 3.0)
    with deaf(narrow, WIDE) as client, psycopg.connect(narrow, autocommit=True) as session:
        seen = refusals(session)
        assert "ProgramLimitExceeded" in seen
        assert seen[-1] == "answered"
        while client.recv(1 << 16):
            pass


def refusals(session: psycopg.Connection) -> list[str]:
    """What large queries get until one is answered after one was refused."""
    found: list[str] = []
    while "ProgramLimitExceeded" not in found or found[-1] != "answered":
        try:
            session.execute(WIDE)
            found.append("answered")
        except errors.ProgramLimitExceeded:
            found.append("ProgramLimitExceeded")
        except errors.TooManyConnections:
            found.append("busy")
    return found


def test_settings_are_few_and_short(narrow: str) -> None:
    with psycopg.connect(narrow, autocommit=True) as session:
        with pytest.raises(errors.InvalidParameterValue):
            session.execute(f"SET a.b = '{'x' * 20_000}'")
        for number in range(100):
            session.execute(f"SET a.b{number} = 'x'")
        with pytest.raises(errors.UndefinedObject):
            session.execute("; ".join(f"SET a.c{number} = 'x'" for number in range(200)).encode())
