"""Statements: each form of the language becomes its own typed value; faults have a place in the whole text."""

from __future__ import annotations

import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported, SqlError, SqlSyntaxError, UnknownName
from strandline.jobs.model.types import TIMESTAMP
from strandline.jobs.sql import statements
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.statements import (
    AlterSource,
    CreateSource,
    CreateView,
    DeclaredColumn,
    Describe,
    Drop,
    Explain,
    InsertSelect,
    InsertValues,
    Select,
    SetProperty,
    Show,
    UnsetProperty,
    parse,
    parse_one,
)
from strandline.state_store.errors import SettingsError

CHECKINS = """CREATE OR REPLACE STREAM package_checkins (
  package_id BIGINT KEY,
  location VARCHAR,
  processed_by VARCHAR
) WITH (
  KAFKA_TOPIC = 'package_checkins_topic',
  VALUE_FORMAT = 'AVRO',
  PARTITIONS = 3
);"""


def test_the_catalogue_s_stream_is_read_as_printed() -> None:
    statement = parse_one(CHECKINS)
    assert isinstance(statement, CreateSource)
    assert (statement.name, statement.kind, statement.or_replace) == ("package_checkins", "stream", True)
    assert [(c.name, c.type, c.key) for c in statement.columns] == [
        ("package_id", t.BIGINT, "KEY"),
        ("location", t.VARCHAR, None),
        ("processed_by", t.VARCHAR, None),
    ]
    assert {o.name: o.value for o in statement.options} == {
        "KAFKA_TOPIC": "package_checkins_topic",
        "VALUE_FORMAT": "AVRO",
        "PARTITIONS": "3",
    }
    assert statement.sql == CHECKINS.rstrip(";")


@pytest.mark.parametrize(
    ("text", "name", "query"),
    [
        (
            "CREATE TABLE movie_tickets_sold AS\n    SELECT title,\n"
            "           COUNT(ticket_total_value) AS tickets_sold\n    FROM movie_ticket_sales\n"
            "    GROUP BY title\n    EMIT CHANGES;",
            "movie_tickets_sold",
            "SELECT title, COUNT(ticket_total_value) AS tickets_sold FROM movie_ticket_sales GROUP BY title",
        ),
        (
            "CREATE TABLE avg_readings AS\n    SELECT sensor, \n         AVG(reading) as avg\n    FROM readings\n"
            "    GROUP BY sensor\n    EMIT CHANGES;",
            "avg_readings",
            "SELECT sensor, AVG(reading) AS avg FROM readings GROUP BY sensor",
        ),
    ],
)
def test_the_catalogue_s_views_are_read_as_printed(text: str, name: str, query: str) -> None:
    statement = parse_one(text)
    assert isinstance(statement, CreateView)
    assert (statement.name, statement.kind, statement.emit) == (name, "table", "CHANGES")
    assert sql_of(statement.query) == query


def test_create_table_with_a_primary_key() -> None:
    statement = parse_one("CREATE TABLE IF NOT EXISTS Users (Id INT PRIMARY KEY, `Full Name` STRING)")
    assert isinstance(statement, CreateSource)
    assert statement.if_not_exists
    assert statement.name == "users"
    assert [(c.name, c.key) for c in statement.columns] == [("id", "PRIMARY KEY"), ("Full Name", None)]


@pytest.mark.parametrize("name", ["TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITHOUT TIME ZONE"])
def test_every_timestamp_is_an_instant(name: str) -> None:
    statement = parse_one(f"CREATE STREAM z (at {name})")
    assert isinstance(statement, CreateSource)
    assert [c.type for c in statement.columns] == [TIMESTAMP]


def test_the_key_of_a_table_may_stand_after_its_columns() -> None:
    statement = parse_one("CREATE TABLE z (a INT, b INT, n INT, PRIMARY KEY (B, a)) WITH (KEY_FORMAT='JSON')")
    assert isinstance(statement, CreateSource)
    assert [(c.name, c.key) for c in statement.columns] == [("a", "PRIMARY KEY"), ("b", "PRIMARY KEY"), ("n", None)]


def test_a_materialized_view_has_no_kind_of_its_own() -> None:
    statement = parse_one("CREATE OR REPLACE MATERIALIZED VIEW v WITH (STATE='full') AS SELECT * FROM s")
    assert isinstance(statement, CreateView)
    assert statement.materialized
    assert statement.kind is None
    assert [(o.name, o.value) for o in statement.options] == [("STATE", "full")]


def test_create_stream_as_select_with_partition_by() -> None:
    statement = parse_one("CREATE STREAM p AS SELECT * FROM s x WHERE a > 1 PARTITION BY area EMIT CHANGES;")
    assert isinstance(statement, CreateView)
    assert statement.emit == "CHANGES"
    assert [sql_of(e) for e in statement.query.args["partition_by"].expressions] == ["area"]


def test_options_may_be_quoted_dotted_numbers_and_words() -> None:
    statement = parse_one("CREATE STREAM s (a INT) WITH ('sasl.jaas.config'='x', a.b='y', REPLICAS=-1, X=true)")
    assert isinstance(statement, CreateSource)
    assert [(o.name, o.value) for o in statement.options] == [
        ("SASL.JAAS.CONFIG", "x"),
        ("A.B", "y"),
        ("REPLICAS", "-1"),
        ("X", "true"),
    ]
    assert (statement.options[0].line, statement.options[0].column) == (1, 31)


def test_insert_values() -> None:
    statement = parse_one("INSERT INTO s ( Id, place ) VALUES ( 1, 'New York' ), (-2, NULL);")
    assert isinstance(statement, InsertValues)
    assert (statement.target, statement.columns) == ("s", ("id", "place"))
    assert [[sql_of(v) for v in row] for row in statement.rows] == [["1", "'New York'"], ["-2", "NULL"]]


def test_insert_select() -> None:
    statement = parse_one("INSERT INTO t SELECT a FROM s EMIT CHANGES")
    assert isinstance(statement, InsertSelect)
    assert (statement.target, sql_of(statement.query), statement.emit) == ("t", "SELECT a FROM s", "CHANGES")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DROP STREAM s", Drop(what="STREAM", name="s")),
        ("DROP TABLE IF EXISTS t DELETE TOPIC", Drop(what="TABLE", name="t", if_exists=True, delete_topic=True)),
        ("DROP MATERIALIZED VIEW v", Drop(what="VIEW", name="v")),
        ("LIST STREAMS", Show(what="STREAMS")),
        ("SHOW QUERIES EXTENDED", Show(what="QUERIES", extended=True)),
        ("SHOW ALL TOPICS", Show(what="TOPICS")),
        ("DESCRIBE s", Describe(name="s")),
        ("DESCRIBE s EXTENDED", Describe(name="s", extended=True)),
        ("describe extended `S`", Describe(name="S", extended=True)),
        ("EXPLAIN v", Explain(name="v")),
        ("EXPLAIN MAINTENANCE v", Explain(name="v", maintenance=True)),
        ("SET 'auto.offset.reset' = 'earliest'", SetProperty(name="auto.offset.reset", value="earliest")),
        ("UNSET 'auto.offset.reset'", UnsetProperty(name="auto.offset.reset")),
    ],
)
def test_other_statements(text: str, expected: object) -> None:
    (statement,) = parse(text + ";")
    assert type(statement) is type(expected)
    left, right = vars(statement), vars(expected)
    assert {k: v for k, v in left.items() if k != "sql"} == {k: v for k, v in right.items() if k != "sql"}
    assert statement.sql == text


def test_a_select_is_a_pull_query_and_emit_changes_makes_it_a_push_query() -> None:
    pull, push = parse("SELECT * FROM t WHERE id = 1 LIMIT 5; SELECT a FROM s x EMIT CHANGES LIMIT 2;")
    assert isinstance(pull, Select)
    assert isinstance(push, Select)
    assert (pull.emit, pull.limit, sql_of(pull.query)) == (None, 5, "SELECT * FROM t WHERE id = 1")
    assert (push.emit, push.limit, sql_of(push.query)) == ("CHANGES", 2, "SELECT a FROM s AS x")


def test_explain_takes_a_select() -> None:
    statement = parse_one("EXPLAIN SELECT a FROM s EMIT CHANGES")
    assert isinstance(statement, Explain)
    assert statement.name is None
    assert statement.query is not None


def test_statements_know_their_text_and_place() -> None:
    first, second = parse("  SHOW TABLES ;;\n-- a comment\n   DROP TABLE t;\n")
    assert (first.sql, first.line, first.column) == ("SHOW TABLES", 1, 3)
    assert (second.sql, second.line, second.column) == ("DROP TABLE t", 3, 4)


def test_no_statement_is_an_empty_list() -> None:
    assert parse(" ; -- nothing\n;") == []
    with pytest.raises(SqlSyntaxError, match="found 0"):
        parse_one("")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("SHOW TABLES;\nSELCT a FROM s;", (2, 1), "no statement begins with 'SELCT'"),
        ("CREATE TABEL t (a INT);", (1, 8), "expected STREAM, TABLE, VIEW or MATERIALIZED VIEW"),
        ("CREATE STREAM s (a INT,, b INT);", (1, 24), "expected the name of a column"),
        ("CREATE STREAM s (a INT KEY b);", (1, 28), "after a column"),
        ("SELECT a\nFROM s\nWHERE a > ;", (3, 9), "not complete"),
        ("DROP TABLE t now", (1, 14), "'now' is not expected here"),
        ("INSERT INTO t (a, b) SELECT 1", (1, 22), "expected VALUES"),
        ("SELECT 'it''s", (1, 14), "quoted"),
        ("CREATE TABLE t AS\nSELECT FROM s", (2, 8), r"expected a column or \*"),
        ("SELECT a FROM s UNION SELECT DISTINCT FROM s", (1, 39), r"expected a column or \*"),
        ("SELECT a, FROM s", (1, 11), r"expected a column or \*"),
        ("SELECT", (1, 1), r"expected a column or \*"),
        ("SELECT a FROM s EMIT NOTHING", (1, 22), "CHANGES or FINAL"),
        ("CREATE STREAM s (a INT) WITH (FORMAT)", (1, 37), "="),
        ("SET auto = 'x'", (1, 5), "in quotes"),
    ],
)
def test_faults_have_their_place_in_the_whole_text(text: str, place: tuple[int, int], message: str) -> None:
    with pytest.raises(SqlSyntaxError, match=message) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == place


def test_an_unknown_type_is_pointed_at() -> None:
    with pytest.raises(UnknownName, match="BIGNIT") as caught:
        parse("CREATE STREAM s (\n  a BIGNIT\n);")
    assert (caught.value.line, caught.value.column) == (2, 5)
    assert "'BIGINT'" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("CREATE SOURCE CONNECTOR c WITH (a = 1)", "SOURCE"),
        ("TERMINATE q", "no query runs by itself"),
    ],
)
def test_what_is_not_there_yet_is_refused_by_its_name(text: str, named: str) -> None:
    with pytest.raises(NotSupported, match=named):
        parse(text)


def test_one_bad_statement_refuses_the_whole_text() -> None:
    """A file is accepted whole or not at all: nothing runs before everything is read."""
    with pytest.raises(SqlError):
        parse("CREATE STREAM s (a INT); CREATE STREAM;")


def test_a_declared_column_remembers_its_place() -> None:
    statement = parse_one("CREATE STREAM s (a INT,\n b INT)")
    assert isinstance(statement, CreateSource)
    assert statement.columns[1] == DeclaredColumn("b", t.INT, None, 2, 2)


@pytest.mark.parametrize(
    "columns", ["ADD COLUMN c INT, ADD d VARCHAR", "ADD c INT ADD COLUMN d VARCHAR", "add column C int,\n add D text"]
)
def test_alter_adds_columns(columns: str) -> None:
    """With a comma between them, or as ksqlDB's reference prints it without."""
    statement = parse_one(f"ALTER STREAM s {columns};")
    assert isinstance(statement, AlterSource)
    assert (statement.name, statement.kind) == ("s", "stream")
    assert [(each.name, each.type) for each in statement.columns] == [("c", t.INT), ("d", t.VARCHAR)]


def test_a_form_of_sqlglot_that_cannot_be_extended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(**_: object) -> None:
        raise TypeError("interpreted classes cannot inherit from compiled")

    monkeypatch.setattr(statements, "Grammar", refused)
    with pytest.raises(SettingsError, match="compiled form") as found:
        parse("SHOW TABLES;")
    assert "sqlglotc" in str(found.value.hint)


@pytest.mark.parametrize("name", ["final", "global", "semi", "lateral"])
def test_a_name_of_with_is_never_a_clause(name: str) -> None:
    found = parse_one(f"WITH {name} AS (SELECT a FROM s), other (b) AS (SELECT a FROM {name}) SELECT b FROM other")
    assert isinstance(found, Select)
    assert sql_of(found.query).startswith(f"WITH {name} AS (")


def test_a_clause_behind_a_table_is_still_refused_and_no_alias() -> None:
    with pytest.raises(NotSupported, match="FINAL is not supported yet"):
        parse_one("SELECT a FROM s FINAL")


@pytest.mark.parametrize(
    ("text", "column"),
    [("SELECT $$it's$$ AS a;", 8), ("SELECT 1 AS b, $tag$text$tag$ AS a;", 16), ("SELECT\n $$x$$ AS a;", 2)],
)
def test_a_text_between_dollars_is_refused_with_its_place(text: str, column: int) -> None:
    with pytest.raises(NotSupported, match="between") as caught:
        parse(text)
    assert caught.value.column == column
    assert caught.value.hint is not None


def test_dollars_inside_of_texts_and_names_are_letters() -> None:
    parse("SELECT '$$' AS a, a$b, '$x$' AS c FROM t WHERE d = $1;")
