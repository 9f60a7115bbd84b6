"""What BI tools and editors send, as their sources have it; and what each of its forms is worth."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.campaigns.postgres.tools import MAY_BE_EMPTY, QUESTIONS
from tests.campaigns.postgres_clients import server

Session = psycopg.Connection[Any]
UTC = dt.UTC
NOON = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
"""The time in the one row of `everything` that has one."""


@pytest.fixture(scope="module")
def tool() -> Iterator[Session]:
    with server() as address, psycopg.connect(address, autocommit=True) as session:
        yield session


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_questions_of_tools_are_answered(tool: Session, name: str) -> None:
    rows = tool.execute(QUESTIONS[name]).fetchall()
    assert bool(rows) is (name not in MAY_BE_EMPTY)


NOW = (
    "now()",
    "CURRENT_TIMESTAMP",
    "current_timestamp(3)",
    "clock_timestamp()",
    "statement_timestamp()",
    "localtimestamp",
)


@pytest.mark.parametrize("asked", [*NOW, "current_date", "current_time", "localtime", "user", "current_role"])
def test_words_that_stand_alone_name_their_column(tool: Session, asked: str) -> None:
    """As PostgreSQL does: `SELECT NOW()` is what many ask first."""
    begun = dt.datetime.now(UTC)
    found = tool.execute(f"SELECT {asked}")
    assert found.description is not None
    assert found.description[0].name == asked.lower().partition("(")[0]
    (value,) = found.fetchall()[0]
    if asked in NOW:
        assert begun - dt.timedelta(minutes=1) < value < begun + dt.timedelta(minutes=1)
    elif asked == "current_date":
        assert value - begun.date() in (dt.timedelta(0), dt.timedelta(days=1))
    else:
        assert value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("at AT TIME ZONE 'Europe/Berlin'", NOON.replace(hour=14)),
        ("timezone('Europe/Berlin', at)", NOON.replace(hour=14)),
        (
            "DATE_TRUNC('day', at AT TIME ZONE 'Europe/Berlin') AT TIME ZONE 'Europe/Berlin'",
            dt.datetime(2024, 4, 30, 22, tzinfo=UTC),
        ),
        ("timestamp '2024-05-01 00:00:00' AT TIME ZONE 'Europe/Berlin'", dt.datetime(2024, 4, 30, 22, tzinfo=UTC)),
        ("'2024-05-01 00:00Z'::timestamptz AT TIME ZONE 'Europe/Berlin'", dt.datetime(2024, 5, 1, 2, tzinfo=UTC)),
        ("timestamptz '2024-05-01 10:00:00+02'", dt.datetime(2024, 5, 1, 8, tzinfo=UTC)),
        ("to_timestamp(1714521600)", dt.datetime(2024, 5, 1, tzinfo=UTC)),
        ("to_timestamp(small * 0.5)", dt.datetime(1969, 12, 31, 23, 59, 56, 500_000, tzinfo=UTC)),
        ("to_timestamp('20240501', 'YYYYMMDD')", dt.datetime(2024, 5, 1, tzinfo=UTC)),
        ("to_date('01/05/2024', 'DD/MM/YYYY')", dt.date(2024, 5, 1)),
        ("to_char(at, 'YYYY-MM-DD HH24:MI:SS.US')", "2024-05-01 12:00:00.123456"),
        ("""to_char(at, 'DD "of" Mon')""", "01 of May"),
        ("timestamp 'epoch' + small * interval '1 second'", dt.datetime(1969, 12, 31, 23, 59, 53, tzinfo=UTC)),
        ("at - 1.5 * interval '2 seconds'", NOON - dt.timedelta(seconds=3)),
        ("date_part('year', at)", 2024),
        ("day + 1", dt.date(2024, 5, 2)),
        ("day - 1", dt.date(2024, 4, 30)),
        ("day - '2024-04-01'::date", 30),
        (r"E'it\'s\x41\\\n'", "it'sA\\\n"),
        ("position('s' IN name)", 4),
        ("substring(name FROM 2 FOR 3)", "t's"),
        ("substring(name FROM '^(.)t')", "i"),
        ("trim(both ' ' from '  x ')", "x"),
        ("trim(leading from '  x ')", "x "),
        ("split_part('a-b', '-', 2) || split_part('a', '-', 2)", "b"),
        ("mod(small, 4)", -3),
        ('name COLLATE "C" COLLATE pg_catalog."default"', "it's ü"),
        ("name ~ '^IT'", False),
        ("name ~* '^IT'", True),
        ("name !~ 's'", False),
        ("NULL::text !~ 's'", None),
        ("tags -> 'hot'", 1),
        ("tags ->> 'hot' || '!'", "1!"),
        ("place ->> 'y'", "2.5"),
        ("(place #>> array['y']::text[])::double precision", 2.5),
        ("numbers -> 0", 1),
        ("array_length(numbers, 1)", 3),
        ("""'{"a": {"b": [1, "x"]}}'::json -> 'a' -> 'b' -> 1""", '"x"'),
        ("""'{"a": {"b": [1, "x"]}}'::jsonb #>> '{a,b,1}'""", "x"),
        ("""'{"a": null}'::jsonb ->> 'a'""", None),
        ("""'{"a": "null"}'::jsonb ->> 'a'""", "null"),
        ("3.5::int", 3),
    ],
)
def test_the_forms_that_tools_write(tool: Session, value: str, expected: object) -> None:
    assert tool.execute(f"SELECT {value} AS found FROM public.everything WHERE id = 1").fetchall() == [(expected,)]


def test_the_clock_stands_still_in_a_query(tool: Session) -> None:
    sql = "SELECT now(), current_timestamp AS a, current_date, transaction_timestamp() AS b FROM by_town"
    rows = tool.execute(sql).fetchall()
    assert len(set(rows)) == 1
    now, a, today, b = rows[0]
    assert now == a == b
    assert abs(dt.datetime.now(UTC) - now) < dt.timedelta(minutes=5)
    assert today == now.date()
    assert tool.execute("SELECT n AS current_date FROM (SELECT 7 AS n FROM by_town) x LIMIT 1").fetchall() == [(7,)]
    hidden = "SELECT current_date FROM (SELECT 7 AS current_date FROM by_town) x LIMIT 1"
    assert tool.execute(hidden).fetchall() == [(7,)]


@pytest.mark.parametrize(
    ("items", "names"),
    [
        ("count(*), sum(n), max(n) + 1", ["count", "sum", "?column?"]),
        ("now(), current_date", ["now", "current_date"]),
        ("position('o' IN max(town)), 'a' ~ 'b'", ["position", "?column?"]),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY n)", ["percentile_cont"]),
        ("to_char(max(at), 'YYYY'), '{}'::json -> 'a'", ["to_char", "?column?"]),
    ],
)
def test_names_of_columns(tool: Session, items: str, names: list[str]) -> None:
    table = "everything" if "at)" in items else "by_town"
    assert [each.name for each in tool.execute(f"SELECT {items} FROM {table}").description or ()] == names


@pytest.mark.parametrize(
    "sql",
    [
        'COPY (SELECT "town", "visits" FROM "public"."by_town" ) TO STDOUT (FORMAT "binary");',
        'COPY (SELECT NULL FROM "public"."by_town" WHERE "town" >= \'A\') TO STDOUT (FORMAT "binary");',
        'COPY "public"."Odd Name" ("town", "How Many") TO STDOUT (FORMAT \'binary\')',
        'COPY "lake"."public"."by_town" TO STDOUT WITH BINARY',
    ],
)
def test_copy_in_the_binary_form(tool: Session, sql: str) -> None:
    with tool.cursor().copy(sql) as copy:
        assert b"".join(bytes(piece) for piece in copy).startswith(b"PGCOPY\n\xff\r\n\0")


@pytest.mark.parametrize(
    ("sql", "error", "said"),
    [
        ('SELECT town COLLATE "de_DE" FROM by_town', errors.FeatureNotSupported, 'COLLATE "C"'),
        ("SELECT to_char(at, 'Month') FROM everything", errors.Error, "'Month' in the pattern"),
        ("SELECT name ->> town FROM everything, by_town", errors.Error, "constant"),
        ("SELECT n -> 'a' FROM by_town", errors.DatatypeMismatch, "has no members"),
        ("SELECT at AT TIME ZONE 'Mars' FROM everything", errors.Error, "no time zone"),
    ],
)
def test_what_is_refused_says_what_to_write(tool: Session, sql: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error) as refused:
        tool.execute(sql)
    assert said in str(refused.value)


def test_parameters_where_the_language_has_constants(tool: Session) -> None:
    """Drivers send them apart, some with a cast: the type is asked for before the value is known."""
    sql = """SELECT date_trunc(%s::varchar, at), extract(epoch FROM at), date_part(%s, at), to_char(at, %s::text),
        tags ->> %s, place -> %s::text FROM everything WHERE id = %s"""
    with tool.cursor() as cursor:
        cursor.execute(sql, ("hour", "year", "YYYY", "hot", "x", 1), prepare=True)
        found = cursor.fetchall()
    assert found == [(NOON.replace(minute=0, second=0, microsecond=0), 1714564800, 2024, "2024", "1", 1.0)]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("SELECT nosuch(1)", errors.UndefinedFunction),
        ("SELECT pg_advisory_lock(1)", errors.UndefinedFunction),
        ("SELECT nosuch(id) FROM by_id", errors.UndefinedFunction),
        ("SELECT CAST(id AS money) FROM by_id", errors.UndefinedObject),
        ("SELECT 1::money", errors.UndefinedObject),
        ("SELECT nosuch FROM by_id", errors.UndefinedColumn),
        ("SELECT id FROM nosuch", errors.UndefinedTable),
    ],
)
def test_what_is_not_there_has_postgresqls_state(session: Session, query: str, error: type[psycopg.Error]) -> None:
    with pytest.raises(error):
        session.execute(query)


def test_rows_and_intervals_are_texts(session: Session) -> None:
    found = session.execute("SELECT ROW(1, 2), ARRAY[ROW(1, 2)], interval '1 day', NULL::interval").fetchone()
    one = '{"element1": 1, "element2": 2}'
    assert found == (one, f"[{one}]", "0 mons 1 days 0.000000 secs", None)


@pytest.mark.parametrize(
    "name",
    [
        *("routines", "parameters", "triggers", "sequences", "domains", "check_constraints", "element_types"),
        *("constraint_column_usage", "constraint_table_usage", "enabled_roles", "applicable_roles", "character_sets"),
        *("table_privileges", "role_table_grants", "column_privileges", "role_column_grants"),
    ],
)
def test_views_of_information_schema(session: Session, name: str) -> None:
    found = session.execute(f"SELECT * FROM information_schema.{name}")
    assert found.description
    if name == "role_table_grants":
        assert ("by_id", "SELECT") in [(row[4], row[5]) for row in found]
