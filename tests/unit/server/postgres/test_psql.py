"""What psql sends for some of its commands, as it was recorded: every query is answered, and says what the lake has.

The campaign `postgres_clients` has psql itself, and all of its commands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
import pytest

import tests

Session = psycopg.Connection[Any]

RECORDED = (Path(tests.__file__).parent / "data/postgres/psql_15.sql").read_text()


def queries_of(command: str | None = None) -> list[str]:
    """The queries of one command of psql's, or of all."""
    found = re.findall(r"^-- (\\[^\n]*)\n(.*?);$", RECORDED, re.M | re.S)
    return [sql for name, sql in found if command in (None, name)]


def rows(session: Session, sql: str) -> list[Any]:
    return session.execute(sql).fetchall()


def test_every_query_is_answered(session: Session) -> None:
    refused = {}
    for sql in queries_of():
        try:
            rows(session, sql)
        except psycopg.Error as error:
            refused[sql] = str(error)
    assert len(queries_of()) == 26
    assert refused == {}


def test_relations_are_listed(session: Session) -> None:
    (sql,) = queries_of(r"\d")
    assert [(name, kind) for _, name, kind, _ in rows(session, sql)] == [
        ("by_id", "materialized view"),
        ("by_town", "materialized view"),
        ("hourly", "materialized view"),
        ("places", "table"),
        ("trips", "table"),
        ("trips_to", "materialized view"),
        ("visits", "table"),
    ]


def test_a_relation_is_described(session: Session) -> None:
    found = [rows(session, sql) for sql in queries_of(r"\d by_town")]
    oid = found[0][0][0]
    assert found[0] == [(oid, "public", "by_town")]
    assert [(name, kind) for name, kind, *_ in found[2]] == [("town", "text"), ("visits", "bigint"), ("n", "bigint")]
    assert "PRIMARY KEY (town)" in str(found[3])


def test_the_key_is_an_index(session: Session) -> None:
    found = [rows(session, sql) for sql in queries_of(r"\d by_town_pkey")]
    assert any({"btree", "by_town"} <= set(row) for each in found for row in each)


def test_whoever_may_connect_may_read(session: Session) -> None:
    (sql,) = queries_of(r"\dp")
    assert {row[3] for row in rows(session, sql)} == {"=r/strandline"}


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT relname::text, upper(relname), 1 + 1 FROM pg_class WHERE relname = 'by_id'", ("by_id", "BY_ID", 2)),
        ("SELECT USER, current_user, session_user, current_schema()", ("me", "me", "me", "public")),
        ("SELECT current_setting('server_version_num')::int / 100", (1300,)),
        ("SELECT 'a' = ANY('{a,b}'::text[]), 7 <> ALL(ARRAY[1, 2]), 1 = ANY('{}'::int[])", (True, True, False)),
        ("SELECT TABLE_NAME FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_NAME LIKE 'by_i%'", ("by_id",)),
        ("SELECT s[2] FROM pg_am, string_to_array('x,y', ',') s WHERE amname = 'heap'", ("y",)),
        ("SELECT i FROM pg_database, generate_series(1, length(current_schema())) AS i WHERE i = 6", (6,)),
        (r"SELECT relname FROM pg_class WHERE relname LIKE 'by\_i_' AND relname NOT LIKE E'by\\_t%'", ("by_id",)),
        ("SELECT p.n FROM pg_database, generate_series(1, 3) p(n) WHERE p.n > 2", (3,)),
        ("SELECT typelem, typinput = 'array_in'::regproc FROM pg_type WHERE typname = '_int4'", (23, True)),
        ("SELECT proname FROM pg_type JOIN pg_proc p ON p.oid = typreceive WHERE typname = 'date'", ("date_recv",)),
        ("SELECT c.tableoid AS t, xmin FROM pg_class c WHERE relname = 'by_id'", (None, None)),
        ("SELECT a AS select FROM (SELECT 1 AS a FROM pg_database) x", (1,)),
        ("SELECT count(*) > 50 FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,\"null\"}'::text[])", (True,)),
    ],
)
def test_what_tools_ask_besides(session: Session, sql: str, found: tuple[object, ...]) -> None:
    assert rows(session, sql) == [found]


def test_columns_have_the_names_that_drivers_look_for(session: Session) -> None:
    cursor = session.execute(
        "SELECT relname::text, upper('a'), (relname), 1::int, CASE WHEN true THEN 1 END FROM pg_class"
    )
    assert [each.name for each in cursor.description or ()] == ["relname", "upper", "relname", "int", "case"]


def test_a_table_of_the_catalog_that_is_not_there_is_named(session: Session) -> None:
    with pytest.raises(psycopg.errors.UndefinedTable, match=r"there is no pg_catalog\.pg_nonsense here"):
        session.execute("SELECT * FROM pg_catalog.pg_nonsense")
