"""What drivers send that psycopg does not by itself: lists of values, types in PostgreSQL's words, portals by name."""

from __future__ import annotations

import datetime as dt
import socket
import struct
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import errors

from strandline.jobs.server.postgres.substituted import spots, substituted
from tests.support.waiting import PATIENCE_SECONDS

Session = psycopg.Connection[Any]


def rows(session: Session, sql: str, *values: object) -> list[Any]:
    return session.execute(sql, values).fetchall()


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("a = ANY($1)", ["ARRAY[1, 2]"], "a IN (1, 2)"),
        ("public.t.a = SOME ( $1::int8[] )", ["ARRAY[1]"], "t.a IN (1)"),
        ('WHERE "a b" <> ALL($1) AND c', ["ARRAY[1]"], 'WHERE "a b" NOT IN (1) AND c'),
        ("WHERE NOT a = ANY($1)", ["ARRAY[]"], "WHERE NOT FALSE"),
        ("WHERE a != ALL($1)", ["ARRAY[]"], "WHERE TRUE"),
        ("WHERE a + b = ANY($1)", ["ARRAY[1]"], "WHERE a + b IN (1)"),
        ("WHERE $2 = ANY($1)", ["ARRAY[1]", "5"], "WHERE 5 IN (1)"),
        ("x::timestamp(3) with time zone, y", [], "x::TIMESTAMP, y"),
        ("CAST(a AS double precision) AS text", [], "CAST(a AS DOUBLE) AS text"),
        ("CAST(x AS character varying)::int4", [], "CAST(x AS VARCHAR)::INT"),
        ("$1::numeric(12, 2)", ["1.255"], "1.255::DECIMAL(12, 2)"),
        ("x::numeric, y::json, z::varchar(9)", [], "x::numeric, y::json, z::varchar(9)"),
        (r"r = '\x00ff'::bytea", [], "r = TO_BYTES('00ff', 'hex')"),
        ("a = 'ANY($1)' -- = ANY($1)", [], "a = 'ANY($1)' -- = ANY($1)"),
    ],
)
def test_texts_in_the_words_of_the_language(text: str, values: list[str], expected: str) -> None:
    assert substituted(text, spots(text), values).text == expected


def test_a_place_leads_back_over_what_was_replaced() -> None:
    text = "SELECT x::timestamp with time zone FROM public.t WHERE a = ANY($1) AND twn"
    made = substituted(text, spots(text), ["ARRAY[1, 2, 3]"])
    assert text[made.original(made.text.index("twn")) :] == "twn"


def test_a_list_of_values(session: Session) -> None:
    assert rows(session, "SELECT id FROM by_id WHERE id = ANY(%s)", [1, 3, 77]) == [(1,), (3,)]
    assert rows(session, "SELECT town FROM by_town WHERE town = ANY(%s::text[])", ["Rome"]) == [("Rome",)]
    assert len(rows(session, "SELECT town FROM by_town WHERE town <> ALL(%b)", ["Rome", "Oslo"])) == 2
    assert rows(session, "SELECT id FROM by_id WHERE id = ANY(%b)", []) == []
    assert len(rows(session, "SELECT id FROM by_id WHERE NOT id = ANY(%b)", [])) == 10
    assert rows(session, "SELECT id FROM by_id WHERE id = ANY(%b)", None) == []
    with pytest.raises(errors.FeatureNotSupported, match="an empty array"):
        rows(session, "SELECT id FROM by_id WHERE id + 1 = ANY(%b)", [])


def test_types_in_postgresqls_words(session: Session) -> None:
    made = rows(
        session,
        "SELECT CAST(visits AS numeric(9, 2)) AS a, visits::float8 AS b, '2024-05-01'::timestamp with time zone AS c,"
        " CAST(%s AS timestamp without time zone) AS d FROM by_town WHERE town = %s::character varying",
        dt.datetime(2024, 5, 1, 9, tzinfo=dt.UTC),
        "Rome",
    )
    day = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
    assert made == [(Decimal("4.00"), 4.0, day, day.replace(hour=9))]


@pytest.mark.parametrize("text", ["2024-05-01", "2024-05-01 +00", "2024-05-01 00:00:00+00"])
def test_a_date_as_pgjdbc_writes_it(session: Session, text: str) -> None:
    assert rows(session, "SELECT %s::date AS d FROM places", text) == [(dt.date(2024, 5, 1),)]
    assert rows(session, "SELECT %s::time AS t FROM places", "09:35:00.25+00") == [(dt.time(9, 35, 0, 250_000),)]


def message(kind: bytes, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def answer_to(session: Session, *messages: bytes) -> bytes:
    """All that the server says to a client that sends these messages and goes: libpq says less of it."""
    startup = struct.pack("!i", 196608) + b"user\0me\0\0"
    with socket.create_connection(("127.0.0.1", session.info.port), timeout=PATIENCE_SECONDS) as client:
        client.sendall(struct.pack("!i", len(startup) + 4) + startup + b"".join(messages) + message(b"X"))
        answer = b""
        while piece := client.recv(65536):
            answer += piece
    return answer


@pytest.mark.parametrize(
    ("sql", "given", "told"),
    [
        ("SELECT town FROM by_town WHERE town = $1 AND visits = $2", [1043], [1043, 20]),
        ("SELECT town FROM by_town WHERE visits = ANY($1)", [], [1016]),
        ("SELECT relname FROM pg_class WHERE relname = $1", [1043], [1043]),
        ("SELECT relname FROM pg_class WHERE oid = ANY($1::oid[])", [], [1028]),
        ("SELECT relname FROM pg_class WHERE relname = ANY($1)", [], [1009]),
    ],
)
def test_a_client_is_told_the_types_that_it_gave(session: Session, sql: str, given: list[int], told: list[int]) -> None:
    """pgJDBC ends the connection when it is told another; asyncpg asks for types by the fourth of these."""
    parsed = message(b"P", b"\0", sql.encode(), struct.pack(f"!xh{len(given)}I", len(given), *given))
    answer = answer_to(session, parsed, message(b"D", b"S\0"), message(b"S"))
    assert message(b"t", struct.pack(f"!h{len(told)}I", len(told), *told)) in answer


def test_a_portal_that_was_bound_is_a_cursor(session: Session) -> None:
    """asyncpg's way: Bind with a name, then MOVE and FETCH of it."""
    answer = answer_to(
        session,
        message(b"Q", b"BEGIN\0"),
        message(b"P", b"\0SELECT id FROM by_id\0", struct.pack("!h", 0)),
        message(b"B", b"mine\0\0", struct.pack("!hhh", 0, 0, 0)),
        message(b"S"),
        message(b"Q", b"MOVE FORWARD 8 mine; FETCH ALL FROM mine; CLOSE mine\0"),
    )
    for tag in (b"MOVE 8\0", b"FETCH 2\0", b"CLOSE CURSOR\0"):
        assert tag in answer


def test_a_declared_cursor_is_described_by_its_columns(session: Session) -> None:
    """psycopg describes a cursor before it fetches, and reads the rows by what it was told."""
    with session.transaction(), session.cursor(name="some") as cursor:
        cursor.execute("SELECT id, town FROM by_id ORDER BY id")
        assert [each.name for each in cursor.description or ()] == ["id", "town"]
        assert cursor.fetchmany(2) == [(0, "Rome"), (1, "Oslo")]


def test_no_limit_is_null(session: Session) -> None:
    """As mappers send it where nobody gives one."""
    assert len(rows(session, "SELECT id FROM by_id LIMIT %s OFFSET %s", None, None)) == 10
    assert rows(session, "SELECT id FROM by_id ORDER BY id LIMIT %s OFFSET %s", None, 8) == [(8,), (9,)]
    assert rows(session, "SELECT id FROM by_id ORDER BY id LIMIT %s OFFSET %s", 1, None) == [(0,)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("DECLARE c SCROLL CURSOR FOR SELECT id FROM by_id", "this DECLARE is not taken"),
        ("FETCH BACKWARD 1 FROM c", "this FETCH is not taken"),
        ("SET ROLE me", "this SET is not taken"),
        ("EXPLAIN (FORMAT JSON) SELECT id FROM by_id", "EXPLAIN takes no options"),
        ("EXPLAIN ANALYZE SELECT id FROM by_id", "EXPLAIN takes no options"),
    ],
)
def test_other_forms_of_what_is_taken(session: Session, text: str, message: str) -> None:
    with pytest.raises(errors.FeatureNotSupported, match=message):
        session.execute(text)
