"""COPY … TO STDOUT by psycopg, in its three forms; what it is not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import psycopg
import pytest

from tests.unit.server.postgres.conftest import ALL_ROWS

Session = psycopg.Connection[Any]

TOWNS = "SELECT town, visits, NULLIF(visits, 1) AS few FROM by_town ORDER BY visits, town"


def copied(session: Session, sql: str) -> str:
    with session.cursor() as cursor, cursor.copy(sql) as copy:
        return b"".join(bytes(each) for each in copy).decode()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("", "a/b ü\t1\t\\N\nLima\t2\t2\nOslo\t3\t3\nRome\t4\t4\n"),
        ("WITH (FORMAT csv, HEADER)", "town,visits,few\na/b ü,1,\nLima,2,2\nOslo,3,3\nRome,4,4\n"),
        ("CSV HEADER DELIMITER ' '", 'town visits few\n"a/b ü" 1 \nLima 2 2\nOslo 3 3\nRome 4 4\n'),
        ("(FORMAT csv, NULL '4', HEADER false)", 'a/b ü,1,4\nLima,2,2\nOslo,3,3\nRome,"4","4"\n'),
        ("WITH DELIMITER AS ';' NULL AS ''", "a/b ü;1;\nLima;2;2\nOslo;3;3\nRome;4;4\n"),
    ],
)
def test_forms(session: Session, options: str, expected: str) -> None:
    assert copied(session, f"COPY ({TOWNS}) TO STDOUT {options}") == expected


def test_what_has_a_meaning_is_marked(session: Session) -> None:
    odd = "SELECT CONCAT('a', CHR(9), 'b', CHR(10), 'c\\') AS text, 'x,\"y\"' AS quoted FROM places"
    assert copied(session, f"COPY ({odd}) TO STDOUT") == 'a\\tb\\nc\\\\\tx,"y"\n'
    assert copied(session, f"COPY ({odd}) TO STDOUT CSV") == '"a\tb\nc\\","x,""y"""\n'
    assert copied(session, f"COPY ({odd}) TO STDOUT CSV ESCAPE '\\'") == '"a\tb\nc\\\\","x,\\"y\\""\n'


def test_rows_of_text_and_of_binary_are_those_of_a_query(session: Session) -> None:
    expected = session.execute("SELECT town, visits FROM by_town").fetchall()
    types = ["text", "int8"]
    for form in ("text", "binary"):
        sql = f"COPY by_town (town, visits) TO STDOUT (FORMAT {form})"
        with session.cursor() as cursor, cursor.copy(sql) as copy:
            copy.set_types(types)
            assert sorted(copy.rows()) == sorted(expected)


def test_binary_of_every_type_and_of_no_row(session: Session) -> None:
    for condition, expected in (("opens IS NULL", []), ("name = 'Rome'", [("Rome", dt.time(9, 35, 0, 250_000))])):
        sql = f"COPY (SELECT name, opens FROM places WHERE {condition}) TO STDOUT WITH BINARY"
        with session.cursor() as cursor, cursor.copy(sql) as copy:
            copy.set_types(["text", "time"])
            assert list(copy.rows()) == expected


def test_100_000_rows(session: Session) -> None:
    with session.cursor() as cursor, cursor.copy(f"COPY ({ALL_ROWS}) TO STDOUT") as copy:
        assert sum(bytes(each).count(b"\n") for each in copy) == 100_000


def test_the_system_catalog(session: Session) -> None:
    assert copied(session, "COPY (SELECT relname FROM pg_class WHERE relname = 'by_id') TO STDOUT") == "by_id\n"


@pytest.mark.parametrize(
    ("sql", "state", "position"),
    [
        ("COPY by_town FROM STDIN", "25006", "1"),
        ("COPY by_town TO '/tmp/x'", "42501", "1"),
        ("COPY by_town TO PROGRAM 'cat'", "42501", "1"),
        ("COPY by_town TO STDOUT (FORMAT json)", "0A000", "1"),
        ("COPY by_town TO STDOUT (FORCE_QUOTE *)", "0A000", "1"),
        ("COPY by_town TO STDOUT (ENCODING 'latin1')", "0A000", "1"),
        ("COPY by_twn TO STDOUT", "42P01", "6"),
        ("COPY (SELECT twn FROM by_town) TO STDOUT", "42703", "14"),
        ("COPY by_town", "42601", "1"),
    ],
)
def test_what_is_not_taken_says_where(session: Session, sql: str, state: str, position: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        copied(session, sql)
    assert (caught.value.sqlstate, caught.value.diag.statement_position) == (state, position), caught.value
    assert copied(session, "COPY (SELECT id FROM by_id WHERE id = 1) TO STDOUT") == "1\n"
