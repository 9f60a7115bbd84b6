"""From statement to definition: names, types, keys and kinds; every refusal says what and where."""

from __future__ import annotations

import pytest

from jobs.errors import (
    InvalidQuery,
    NameInUse,
    NameTaken,
    NotSupported,
    OptionRefused,
    SqlError,
    TypeMismatch,
    UnknownName,
)
from jobs.sql import types as t
from jobs.sql.catalog import Catalog
from jobs.sql.model import Column, InsertQuery, Source, View
from state_store.layout import Lake
from tests.statements import catalog_of, run

SOURCES = """
CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT, at TIMESTAMP, tags ARRAY<VARCHAR>);
CREATE TABLE users (name VARCHAR, id BIGINT PRIMARY KEY, age INT, balance DECIMAL(10, 2));
"""


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(lake, SOURCES)


def view(text: str, catalog: Catalog) -> View:
    found = run(text, catalog)
    assert isinstance(found, View)
    return found


def shape(definition: Source | View) -> list[tuple[str, str, bool]]:
    return [(c.name, str(c.type), c.key) for c in definition.columns]


# --- sources --------------------------------------------------------------------------------------------------------


def test_a_source_has_its_columns_keys_first_and_its_options(lake: Lake) -> None:
    found = run(
        "CREATE TABLE T (v INT, `K` BIGINT PRIMARY KEY) WITH (KAFKA_TOPIC='x', FORMAT='JSON', PARTITIONS=3)",
        Catalog(lake),
    )
    assert isinstance(found, Source)
    assert found.columns == (Column("K", t.BIGINT, key=True), Column("v", t.INT))
    assert (found.name, found.kind, found.topic, found.partitions) == ("t", "table", "x", 3)
    assert (found.key_format, found.value_format, found.pipeline) == ("JSON", "JSON", "tests")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE TABLE t (a INT)", InvalidQuery, "has no key"),
        ("CREATE TABLE t (a INT KEY)", InvalidQuery, "PRIMARY KEY"),
        ("CREATE STREAM s (a INT PRIMARY KEY)", InvalidQuery, "a stream has a KEY"),
        ("CREATE STREAM s (a INT, A INT)", InvalidQuery, "two columns are named 'a'"),
        ("CREATE STREAM s (rowtime BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (_offset BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (__x BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (a MAP<VARCHAR, INT> KEY) WITH (FORMAT='JSON')", InvalidQuery, "cannot be a MAP"),
        ("CREATE STREAM s__dead_letters (a INT)", InvalidQuery, "makes itself"),
        ("CREATE STREAM s__log (a INT)", InvalidQuery, "makes itself"),
        ("CREATE STREAM s (a INT, b INT) WITH (VALUE_FORMAT='KAFKA')", InvalidQuery, "one value column"),
        ("CREATE STREAM s (a INT) WITH ('sasl.jaas.config'='x')", OptionRefused, "can run code"),
    ],
)
def test_sources_that_cannot_be(lake: Lake, text: str, error: type[SqlError], message: str) -> None:
    catalog = Catalog(lake)
    with pytest.raises(error, match=message):
        run(text, catalog)
    assert catalog.names() == ()


# --- views: what they are -------------------------------------------------------------------------------------------


def test_a_filter_of_a_stream_is_a_stream_and_keeps_its_key(catalog: Catalog) -> None:
    found = view("CREATE STREAM s AS SELECT sensor AS who, n * 2 AS m FROM readings WHERE n > 1 EMIT CHANGES", catalog)
    assert (found.kind, found.inputs, found.materialized) == ("stream", ("readings",), False)
    assert shape(found) == [("who", "VARCHAR", True), ("m", "INT", False)]
    assert found.query == "SELECT sensor AS who, n * 2 AS m FROM readings WHERE n > 1"


def test_a_star_is_the_visible_columns(catalog: Catalog) -> None:
    found = view("CREATE STREAM s AS SELECT r.*, ROWTIME AS t FROM readings r", catalog)
    assert [c.name for c in found.columns] == ["sensor", "reading", "area", "n", "at", "tags", "t"]
    assert found.query.endswith("UNIX_TIMESTAMP(_timestamp) AS t FROM readings")


def test_a_group_by_is_a_table_keyed_by_its_groups(catalog: Catalog) -> None:
    found = view(
        "CREATE TABLE v AS SELECT UCASE(area) AS place, COUNT(*), AVG(reading) FROM readings r GROUP BY UCASE(r.area)",
        catalog,
    )
    assert found.kind == "table"
    assert shape(found) == [
        ("place", "VARCHAR", True),
        ("ksql_col_0", "BIGINT", False),
        ("ksql_col_1", "DOUBLE", False),
    ]


def test_a_group_that_is_not_selected_leaves_no_visible_key(catalog: Catalog) -> None:
    found = view("CREATE TABLE v AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area, sensor", catalog)
    assert found.key == ()


def test_partition_by_changes_the_key_of_a_stream(catalog: Catalog) -> None:
    found = view("CREATE STREAM p AS SELECT sensor, area FROM readings PARTITION BY area", catalog)
    assert found.key == ("area",)


def test_a_projection_of_a_table_is_a_table_with_its_key(catalog: Catalog) -> None:
    found = view("CREATE TABLE v AS SELECT age, id AS the_id FROM users WHERE age > 17", catalog)
    assert (found.kind, found.key) == ("table", ("the_id",))


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT * FROM readings", "stream"),
        ("SELECT * FROM users", "table"),
        ("SELECT COUNT(*) AS c FROM readings", "table"),
        ("SELECT area FROM readings GROUP BY area", "table"),
    ],
)
def test_a_materialized_view_is_what_its_query_makes_it(catalog: Catalog, query: str, kind: str) -> None:
    found = view(f"CREATE MATERIALIZED VIEW v AS {query}", catalog)
    assert (found.kind, found.materialized) == (kind, True)


def test_a_field_gives_its_column_the_name(lake: Lake) -> None:
    catalog = catalog_of(lake, "CREATE STREAM s (who STRUCT<name VARCHAR, `Age` INT>)")
    found = view("CREATE STREAM v AS SELECT who->name, who->`Age` FROM s", catalog)
    assert [c.name for c in found.columns] == ["name", "Age"]


def test_types_become_explicit_in_the_stored_query(catalog: Catalog) -> None:
    found = view("CREATE TABLE v AS SELECT id, age / 2 AS half, balance * 2 AS twice FROM users", catalog)
    assert found.query == (
        "SELECT id, CAST(DIV(age, 2) AS INT) AS half,"
        " CAST(balance * CAST(2 AS DECIMAL(10, 0)) AS DECIMAL(21, 2)) AS twice FROM users"
    )


def test_the_same_statement_gives_the_same_definition(catalog: Catalog) -> None:
    """Running a file again changes nothing, however it is laid out."""
    first = view("CREATE TABLE v AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area EMIT CHANGES", catalog)
    again = run(
        "create or replace table V as\n select AREA, count(*) as C from readings group by area", catalog, "other"
    )
    assert again == first


def test_the_fingerprint_follows_the_query_and_the_input(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> None:
    def fingerprint(source: str, query: str) -> str:
        catalog = catalog_of(Lake(tmp_path_factory.mktemp("lake")), source)
        return view(f"CREATE MATERIALIZED VIEW v AS {query}", catalog).fingerprint

    source = "CREATE STREAM s (a INT, b INT)"
    base = fingerprint(source, "SELECT a FROM s")
    assert base == fingerprint("create stream S (A INT, B INT) with (partitions=4)", "SELECT x.a FROM s AS x")
    assert len(base) == 16
    others = {
        base,
        fingerprint(source, "SELECT b FROM s"),
        fingerprint(source, "SELECT a FROM s WHERE b > 1"),
        fingerprint("CREATE STREAM s (a BIGINT, b INT)", "SELECT a FROM s"),
        fingerprint("CREATE STREAM s (a INT KEY, b INT)", "SELECT a FROM s"),
    }
    assert len(others) == 5


# --- views: what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE STREAM v AS SELECT * FROM reedings", UnknownName, "unknown stream, table or view 'reedings'"),
        ("CREATE STREAM v AS SELECT sensr FROM readings", UnknownName, "unknown column 'sensr'"),
        ("CREATE STREAM v AS SELECT x.sensor FROM readings r", UnknownName, "unknown stream or table 'x'"),
        ("CREATE STREAM v AS SELECT x.* FROM readings r", UnknownName, "'x'"),
        ("CREATE STREAM v AS SELECT readings.n FROM readings r", UnknownName, "'readings'"),
        ("CREATE STREAM v AS SELECT n, area AS n FROM readings", InvalidQuery, "two columns are named 'n'"),
        ("CREATE STREAM v AS SELECT *, n FROM readings", InvalidQuery, "two columns are named 'n'"),
        ("CREATE STREAM v AS SELECT rowtime FROM readings", InvalidQuery, "reserved"),
        ("CREATE STREAM v AS SELECT NULL AS x FROM readings", InvalidQuery, "no type"),
        ("CREATE STREAM v AS SELECT n FROM readings WHERE n", TypeMismatch, "WHERE takes a condition"),
        ("CREATE STREAM v AS SELECT n FROM readings WHERE area > 1", TypeMismatch, "cannot compare VARCHAR with INT"),
        ("CREATE STREAM v AS SELECT n FROM readings WHERE COUNT(*) > 1", InvalidQuery, "COUNT cannot stand here"),
        ("CREATE STREAM v AS SELECT 1 AS x", InvalidQuery, "reads nothing"),
        ("CREATE STREAM v AS SELECT area FROM readings GROUP BY area", InvalidQuery, "it is a table"),
        ("CREATE STREAM v AS SELECT * FROM users", InvalidQuery, "'users' is a table"),
        ("CREATE TABLE v AS SELECT area FROM readings", InvalidQuery, "'v' is a stream"),
        ("CREATE TABLE v AS SELECT COUNT(*) AS c FROM readings", InvalidQuery, "needs GROUP BY"),
        ("CREATE TABLE v AS SELECT n FROM readings GROUP BY area", InvalidQuery, "'n' is neither grouped"),
        ("CREATE TABLE v AS SELECT area, n + COUNT(*) FROM readings GROUP BY area", InvalidQuery, "'n' is neither"),
        ("CREATE TABLE v AS SELECT * FROM readings GROUP BY area", InvalidQuery, "neither grouped"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area HAVING n > 1", InvalidQuery, "'n' is neither"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area HAVING COUNT(*)", TypeMismatch, "HAVING takes"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY 1", InvalidQuery, "constant"),
        (
            "CREATE TABLE v AS SELECT area FROM readings GROUP BY area, COUNT(*)",
            InvalidQuery,
            "COUNT cannot stand here",
        ),
        (
            "CREATE TABLE v AS SELECT area, SUM(COUNT(*)) FROM readings GROUP BY area",
            InvalidQuery,
            "COUNT cannot stand",
        ),
        ("CREATE TABLE v AS SELECT UCASE(area) AS a FROM readings GROUP BY a", UnknownName, "unknown column 'a'"),
        ("CREATE TABLE v AS SELECT sensor, SUM(area) FROM readings GROUP BY sensor", TypeMismatch, "SUM"),
        (
            "CREATE TABLE v AS SELECT age, MAX(balance) FROM users GROUP BY age",
            NotSupported,
            "MAX over the table 'users'",
        ),
        ("CREATE TABLE v AS SELECT area, COUNT(DISTINCT n) FROM readings GROUP BY area", NotSupported, "DISTINCT"),
        ("CREATE STREAM v AS SELECT DISTINCT n FROM readings", NotSupported, "DISTINCT"),
        ("CREATE STREAM v AS SELECT n FROM readings ORDER BY n", NotSupported, "ORDER BY"),
        ("CREATE STREAM v AS SELECT n FROM readings LIMIT 3", NotSupported, "LIMIT"),
        ("CREATE STREAM v AS SELECT n FROM readings UNION ALL SELECT n FROM readings", NotSupported, "UNION"),
        ("CREATE STREAM v AS WITH x AS (SELECT 1) SELECT n FROM readings", NotSupported, "WITH"),
        ("CREATE STREAM v AS SELECT n FROM (SELECT n FROM readings)", NotSupported, "subqueries"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area EMIT FINAL", NotSupported, "EMIT FINAL"),
        ("CREATE STREAM v AS SELECT n FROM readings PARTITION BY area", InvalidQuery, "must be selected"),
        ("CREATE TABLE v AS SELECT id FROM users PARTITION BY age", InvalidQuery, "for streams"),
        ("CREATE STREAM v WITH (KAFKA_TOPIC='x') AS SELECT n FROM readings", NotSupported, "KAFKA_TOPIC of a view"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM readings HAVING COUNT(*) > 1", InvalidQuery, "neither grouped"),
        (
            "CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS c FROM readings HAVING COUNT(*) > 1",
            NotSupported,
            "HAVING",
        ),
    ],
)
def test_views_that_cannot_be(catalog: Catalog, text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        run(text, catalog)
    assert type(caught.value) is error
    assert caught.value.line is not None
    assert catalog.find("v") is None


def test_a_fault_in_a_view_is_pointed_at_in_the_whole_text(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        run("CREATE STREAM v AS\n  SELECT n,\n         sensr\n  FROM readings;", catalog)
    assert (caught.value.line, caught.value.column) == (3, 10)
    assert "'sensor'" in str(caught.value.hint)


def test_grouping_by_an_alias_proposes_the_expression(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        run("CREATE TABLE v AS SELECT UCASE(area) AS a FROM readings GROUP BY a", catalog)
    assert "GROUP BY UCASE(area)" in str(caught.value.hint)


def test_a_view_without_a_visible_key_cannot_be_filtered_but_can_be_aggregated(catalog: Catalog) -> None:
    run("CREATE MATERIALIZED VIEW ages AS SELECT age FROM users", catalog)
    with pytest.raises(NotSupported, match="shows no key"):
        run("CREATE MATERIALIZED VIEW v AS SELECT age FROM ages WHERE age > 3", catalog)
    assert view("CREATE MATERIALIZED VIEW w AS SELECT age, COUNT(*) AS c FROM ages GROUP BY age", catalog).key == (
        "age",
    )


# --- again, and instead ---------------------------------------------------------------------------------------------


def test_another_definition_of_a_taken_name_is_refused(catalog: Catalog) -> None:
    with pytest.raises(NameTaken, match="'readings'"):
        run("CREATE STREAM readings (a INT)", catalog)
    run("CREATE STREAM v AS SELECT n FROM readings", catalog)
    with pytest.raises(NameTaken, match="'v'"):
        run("CREATE STREAM v AS SELECT area FROM readings", catalog)


def test_if_not_exists_takes_what_is_there(catalog: Catalog) -> None:
    there = catalog.get("readings")
    assert run("CREATE STREAM IF NOT EXISTS readings (a INT)", catalog) is there


def test_a_running_view_cannot_be_replaced_by_another_yet(catalog: Catalog) -> None:
    run("CREATE STREAM v AS SELECT n FROM readings", catalog)
    with pytest.raises(NotSupported, match="changing it") as caught:
        run("CREATE OR REPLACE STREAM v AS SELECT area FROM readings", catalog)
    assert "drop it" in str(caught.value.hint)


def test_a_source_can_be_replaced_only_while_nobody_reads_it(catalog: Catalog) -> None:
    changed = run("CREATE OR REPLACE STREAM readings (a INT)", catalog)
    assert isinstance(changed, Source)
    assert shape(changed) == [("a", "INT", False)]
    run("CREATE STREAM v AS SELECT n FROM readings", catalog)
    with pytest.raises(NameInUse, match="'v'"):
        run("CREATE OR REPLACE STREAM readings (a INT)", catalog)


# --- INSERT INTO … SELECT -------------------------------------------------------------------------------------------

TARGET = "CREATE STREAM target (sensor VARCHAR KEY, reading DOUBLE);"


def test_queries_into_a_stream_are_numbered(catalog: Catalog) -> None:
    run(TARGET, catalog)
    first = run("INSERT INTO target SELECT sensor, reading FROM readings", catalog)
    second = run("INSERT INTO target SELECT sensor, n AS reading FROM readings EMIT CHANGES", catalog)
    assert isinstance(first, InsertQuery)
    assert isinstance(second, InsertQuery)
    assert [(q.name, q.number, q.inputs) for q in (first, second)] == [
        ("target__insert_1", 1, ("readings",)),
        ("target__insert_2", 2, ("readings",)),
    ]
    assert run("insert into TARGET select r.sensor, r.reading from readings r", catalog) == first


def test_a_query_into_a_stream_belongs_to_the_streams_pipeline(catalog: Catalog) -> None:
    """A table has one writer: two pipelines that both run would commit to the stream's event log at once."""
    run(TARGET, catalog, "shop")
    assert run("INSERT INTO target SELECT sensor, reading FROM readings", catalog, "default").pipeline == "shop"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO nowhere SELECT n FROM readings", UnknownName, "unknown stream 'nowhere'"),
        ("INSERT INTO users SELECT n FROM readings", InvalidQuery, "'users' is a table"),
        ("INSERT INTO copy SELECT sensor, n FROM readings", NotSupported, "made by a query"),
        ("INSERT INTO target SELECT sensor FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO target SELECT reading, sensor FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO target SELECT sensor, area AS reading FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO target SELECT name AS sensor, 1.0 AS reading FROM users", InvalidQuery, "only events"),
        (
            "INSERT INTO target SELECT sensor, AVG(reading) AS reading FROM readings GROUP BY sensor",
            InvalidQuery,
            "only",
        ),
        ("INSERT INTO target SELECT * FROM target", InvalidQuery, "would read what it inserts"),
        ("INSERT INTO target SELECT * FROM derived", InvalidQuery, "would read what it inserts"),
        ("INSERT INTO readings2 SELECT * FROM target", NotSupported, "chains"),
        ("INSERT INTO readings SELECT * FROM readings0", NotSupported, "chains"),
    ],
)
def test_inserts_that_cannot_be(catalog: Catalog, text: str, error: type[SqlError], message: str) -> None:
    run(
        f"""{TARGET} CREATE STREAM copy AS SELECT sensor, n FROM readings;
        CREATE STREAM derived AS SELECT * FROM target;
        CREATE STREAM readings2 (sensor VARCHAR KEY, reading DOUBLE);
        CREATE STREAM readings0 (
            sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT, at TIMESTAMP, tags ARRAY<VARCHAR>);
        INSERT INTO target SELECT sensor, reading FROM readings;""",
        catalog,
    )
    with pytest.raises(error, match=message) as caught:
        run(text, catalog)
    assert type(caught.value) is error
