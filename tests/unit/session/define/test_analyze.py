"""From statement to definition: names, types, keys and kinds; every refusal says what and where."""

from __future__ import annotations

import pytest
from duckdb import DuckDBPyConnection

from jobs.catalog.catalog import Catalog
from jobs.catalog.relations import relation
from jobs.ivm.plan.plan import plan
from jobs.model import types as t
from jobs.model.definitions import Column, InsertQuery, Source, View
from jobs.model.errors import (
    InvalidQuery,
    NameInUse,
    NameTaken,
    NotSupported,
    OptionRefused,
    SqlError,
    TypeMismatch,
    UnknownName,
)
from jobs.model.stage import MapStage
from jobs.sql.dialect import sql_of
from state_store.layout import Lake
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.duck_lake import DuckLake

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
    assert found.query == "SELECT r.*, rowtime AS t FROM readings AS r"


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
    found = view(
        "CREATE MATERIALIZED VIEW v AS SELECT area, COUNT(*) AS c FROM readings GROUP BY area, sensor", catalog
    )
    assert found.key == ()
    assert set(found.row_key) == {"area", *(column.name for column in found.hidden)}


def test_partition_by_changes_the_key_of_a_stream(catalog: Catalog) -> None:
    found = view("CREATE STREAM p AS SELECT sensor, area FROM readings PARTITION BY area", catalog)
    assert found.key == ("area",)


def test_a_star_also_stands_for_the_time_or_place_that_becomes_the_key(catalog: Catalog) -> None:
    """ROWTIME itself is no name for a column: every row has one."""
    for clause, kind in (("ROWTIME", "BIGINT"), ("ROWPARTITION", "INT"), ("ROWTIME / 1000", "BIGINT")):
        run("CREATE STREAM few (sensor VARCHAR KEY, n INT)", catalog)
        found = view(f"CREATE STREAM p_{kind}_{len(clause)} AS SELECT * FROM few PARTITION BY {clause}", catalog)
        assert shape(found) == [("ksql_col_0", kind, True), ("sensor", "VARCHAR", False), ("n", "INT", False)]


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


def test_a_view_knows_how_its_rows_are_stored(catalog: Catalog) -> None:
    events = view("CREATE STREAM e AS SELECT sensor, n FROM readings", catalog)
    assert (events.storage, events.row_key, events.hidden) == ("append", (), ())
    rows = view("CREATE MATERIALIZED VIEW r AS SELECT name FROM users", catalog)
    assert (rows.storage, rows.key) == ("keyed", ())
    assert rows.row_key
    assert set(rows.row_key) <= {column.name for column in rows.hidden}


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
        ("CREATE STREAM v AS SELECT x.sensor FROM readings r", UnknownName, "unknown stream, table or alias 'x'"),
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
        ("CREATE STREAM v AS SELECT area FROM readings GROUP BY area", InvalidQuery, "'v' is a table"),
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
        ("CREATE STREAM v AS SELECT DISTINCT n FROM readings", InvalidQuery, "'v' is a table"),
        ("CREATE STREAM v AS SELECT n FROM readings ORDER BY n", NotSupported, "ORDER BY"),
        ("CREATE STREAM v AS SELECT n FROM readings LIMIT 3", NotSupported, "LIMIT"),
        ("CREATE STREAM v AS SELECT n FROM readings UNION SELECT n FROM readings", InvalidQuery, "'v' is a table"),
        ("CREATE STREAM v AS WITH x AS (SELECT 1) SELECT n FROM readings", InvalidQuery, "reads nothing"),
        ("CREATE STREAM v AS SELECT n FROM (SELECT n FROM readings)", InvalidQuery, "needs a name"),
        ("CREATE TABLE v AS SELECT area FROM readings GROUP BY area EMIT FINAL", InvalidQuery, "EMIT FINAL"),
        ("CREATE STREAM v AS SELECT n FROM readings PARTITION BY area", InvalidQuery, "must select .*: area"),
        ("CREATE STREAM v AS SELECT n FROM readings", InvalidQuery, "must select the key of its input: sensor"),
        ("CREATE TABLE v AS SELECT COUNT(*) AS c FROM readings GROUP BY area", InvalidQuery, "must select .*: area"),
        ("CREATE TABLE v AS SELECT id FROM users PARTITION BY age", InvalidQuery, "for streams"),
        (
            "CREATE STREAM v AS SELECT sensor, n, sensor AS again FROM readings",
            InvalidQuery,
            "more than once: 'sensor'",
        ),
        ("CREATE TABLE v AS SELECT id AS a, id AS b, age FROM users", InvalidQuery, "more than once: 'a' and 'b'"),
        (
            "CREATE TABLE v AS SELECT area, n, n AS m, COUNT(*) AS c FROM readings GROUP BY area, n",
            InvalidQuery,
            "more than once: 'n' and 'm'",
        ),
        ("CREATE STREAM v AS SELECT sensor FROM readings", InvalidQuery, "nothing but the key: sensor"),
        ("CREATE STREAM v AS SELECT area FROM readings PARTITION BY area", InvalidQuery, "nothing but the key"),
        ("CREATE TABLE v AS SELECT area, UCASE(area) AS a FROM readings GROUP BY area", InvalidQuery, "without an agg"),
        ("CREATE STREAM v AS SELECT sensor, n <> NULL AS x FROM readings", TypeMismatch, "compared with NULL"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM readings HAVING COUNT(*) > 1", InvalidQuery, "neither grouped"),
    ],
)
def test_views_that_cannot_be(catalog: Catalog, text: str, error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        run(text, catalog)
    assert type(caught.value) is error
    assert caught.value.line is not None
    assert catalog.find("v") is None


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM v AS SELECT sensor, AS_VALUE(sensor) AS again FROM readings",
        "CREATE STREAM v AS SELECT n, n AS m FROM readings PARTITION BY NULL",
        "CREATE TABLE v AS SELECT area, AS_VALUE(area) AS place FROM readings GROUP BY area HAVING MAX(n) > 2",
        "CREATE MATERIALIZED VIEW v AS SELECT sensor, sensor AS again FROM readings",
        "CREATE MATERIALIZED VIEW v AS SELECT id FROM users",
        "CREATE MATERIALIZED VIEW v AS SELECT area FROM readings GROUP BY area",
    ],
)
def test_a_key_may_be_copied_and_a_materialized_view_may_be_all_key(catalog: Catalog, text: str) -> None:
    assert view(text, catalog).name == "v"


def test_a_fault_in_a_view_is_pointed_at_in_the_whole_text(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        run("CREATE STREAM v AS\n  SELECT n,\n         sensr\n  FROM readings;", catalog)
    assert (caught.value.line, caught.value.column) == (3, 10)
    assert "'sensor'" in str(caught.value.hint)


def test_grouping_by_an_alias_proposes_the_expression(catalog: Catalog) -> None:
    with pytest.raises(UnknownName) as caught:
        run("CREATE TABLE v AS SELECT UCASE(area) AS a FROM readings GROUP BY a", catalog)
    assert "GROUP BY UCASE(area)" in str(caught.value.hint)


def test_a_view_without_a_visible_key_can_be_filtered_and_aggregated(catalog: Catalog) -> None:
    run("CREATE MATERIALIZED VIEW ages AS SELECT age FROM users", catalog)
    assert view("CREATE MATERIALIZED VIEW v AS SELECT age FROM ages WHERE age > 3", catalog).key == ()
    assert view("CREATE MATERIALIZED VIEW w AS SELECT age, COUNT(*) AS c FROM ages GROUP BY age", catalog).key == (
        "age",
    )


# --- again, and instead ---------------------------------------------------------------------------------------------


def test_another_definition_of_a_taken_name_is_refused(catalog: Catalog) -> None:
    with pytest.raises(NameTaken, match="'readings'"):
        run("CREATE STREAM readings (a INT)", catalog)
    run("CREATE STREAM v AS SELECT sensor, n FROM readings", catalog)
    with pytest.raises(NameTaken, match="'v'"):
        run("CREATE STREAM v AS SELECT sensor, area FROM readings", catalog)


def test_a_source_that_others_write_is_read_only(catalog: Catalog) -> None:
    found = run("CREATE SOURCE STREAM feed (sensor VARCHAR KEY, reading DOUBLE)", catalog)
    assert isinstance(found, Source)
    assert found.read_only
    assert Catalog.get(catalog, "feed") == found
    assert view("CREATE STREAM v AS SELECT * FROM feed", catalog).inputs == ("feed",)
    for text in (
        "INSERT INTO feed SELECT sensor, reading FROM readings",
        "CREATE OR REPLACE STREAM feed (sensor VARCHAR KEY)",
        "CREATE OR REPLACE SOURCE STREAM readings (sensor VARCHAR KEY)",
    ):
        with pytest.raises(InvalidQuery, match="SOURCE"):
            run(text, catalog)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("KEY_FORMAT='KAFKA'", "KAFKA holds one key column"),
        ("KEY_FORMAT='NONE'", "KEY_FORMAT is NONE"),
        ("VALUE_FORMAT='DELIMITED'", "DELIMITED cannot hold"),
    ],
)
def test_a_format_that_is_named_must_hold_the_columns(catalog: Catalog, options: str, message: str) -> None:
    query = "SELECT area, n, COLLECT_LIST(reading) AS l FROM readings GROUP BY area, n"
    assert view(f"CREATE TABLE ok AS {query}", catalog).key == ("area", "n")
    with pytest.raises(InvalidQuery, match=message):
        run(f"CREATE TABLE v WITH ({options}) AS {query}", catalog)


def test_a_view_may_take_its_time_from_a_column(catalog: Catalog) -> None:
    def time_of(name: str, options: str) -> str:
        found = view(
            f"CREATE STREAM {name} WITH ({options}) AS SELECT sensor, n, CAST(n AS BIGINT) AS b, at FROM readings",
            catalog,
        )
        (stage,) = plan(found, catalog).stages
        assert isinstance(stage, MapStage)
        (time,) = [column.expression for column in stage.body[0].columns if column.name == "_timestamp"]
        return sql_of(time)

    assert time_of("a", "TIMESTAMP='b'") == "FROM_UNIXTIME(CAST(readings.n AS BIGINT))"
    assert time_of("b", "TIMESTAMP='AT'") == "readings.at"
    with pytest.raises(OptionRefused, match="'n' is INT"):
        time_of("c", "TIMESTAMP='n'")
    with pytest.raises(UnknownName, match="unknown column 'x'"):
        time_of("d", "TIMESTAMP='x'")


def test_if_not_exists_takes_what_is_there(catalog: Catalog) -> None:
    there = catalog.get("readings")
    assert run("CREATE STREAM IF NOT EXISTS readings (a INT)", catalog) is there


def test_a_running_view_cannot_be_replaced_by_another_yet(catalog: Catalog) -> None:
    run("CREATE STREAM v AS SELECT sensor, n FROM readings", catalog)
    with pytest.raises(NotSupported, match="changing it") as caught:
        run("CREATE OR REPLACE STREAM v AS SELECT sensor, area FROM readings", catalog)
    assert "drop it" in str(caught.value.hint)


def test_a_source_can_be_replaced_only_while_nobody_reads_it(catalog: Catalog) -> None:
    changed = run("CREATE OR REPLACE STREAM readings (a INT)", catalog)
    assert isinstance(changed, Source)
    assert shape(changed) == [("a", "INT", False)]
    run("CREATE STREAM v AS SELECT sensor, n FROM readings", catalog)
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


def test_queries_can_feed_a_stream_that_a_query_made(catalog: Catalog) -> None:
    made = view("CREATE STREAM copy AS SELECT sensor, n FROM readings", catalog)
    found = run("INSERT INTO copy SELECT sensor, n * 2 AS n FROM readings", catalog)
    assert isinstance(found, InsertQuery)
    assert (found.target, found.number, found.pipeline) == ("copy", 1, made.pipeline)
    assert catalog.get("copy") == made


def test_a_stream_whose_rows_share_events_does_not_tell_them_apart_by_events(catalog: Catalog) -> None:
    run("CREATE STREAM copy AS SELECT sensor, n FROM readings", catalog)
    assert relation("copy", catalog).identity == ("_partition", "_offset")
    run("INSERT INTO copy SELECT sensor, EXPLODE(ARRAY[n, n + 1]) AS n FROM readings", catalog)
    assert relation("copy", catalog).identity == ()


def test_rows_of_all_queries_come_into_a_stream_that_one_made(catalog: Catalog, duck: DuckDBPyConnection) -> None:
    run(
        """CREATE STREAM copy AS SELECT sensor, n FROM readings WHERE n < 10;
        INSERT INTO copy SELECT sensor, -n AS n FROM readings;
        CREATE MATERIALIZED VIEW sums AS SELECT sensor, SUM(n) AS n FROM copy GROUP BY sensor;""",
        catalog,
    )
    bench = DuckLake(catalog, catalog.definitions(), duck)
    for offset, n in enumerate((3, 20)):
        bench.feed("readings", [{"sensor": "a", "n": n, "_partition": 0, "_offset": offset}])
        bench.refresh()
        assert [bench.wrong(name) for name in ("copy", "sums")] == ["", ""]
    rows = sorted((row["n"], row["_partition"], row["_offset"]) for row in bench.rows("copy"))
    assert rows == [(-20, 65536, 1), (-3, 65536, 0), (3, 0, 0)]
    assert [row["n"] for row in bench.rows("sums")] == [-20]


def test_the_number_of_a_query_leaves_out_the_places_that_branches_take(catalog: Catalog) -> None:
    """Branch 2 of a UNION ALL has the partitions that query 2 would have."""
    run(
        "CREATE STREAM both AS SELECT sensor, n FROM readings UNION ALL SELECT sensor, n + 1 AS n FROM readings",
        catalog,
    )
    numbers = []
    for text in ("n", "n * 2 AS n FROM readings UNION ALL SELECT sensor, n * 3 AS n", "n * 4 AS n"):
        found = run(f"INSERT INTO both SELECT sensor, {text} FROM readings", catalog)
        assert isinstance(found, InsertQuery)
        numbers.append(found.number)
    assert numbers == [3, 4, 7]


def test_a_query_into_a_stream_belongs_to_the_streams_pipeline(catalog: Catalog) -> None:
    """A table has one writer: two pipelines that both run would commit to the stream's event log at once."""
    run(TARGET, catalog, "shop")
    assert run("INSERT INTO target SELECT sensor, reading FROM readings", catalog, "default").pipeline == "shop"


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("INSERT INTO nowhere SELECT n FROM readings", UnknownName, "unknown stream 'nowhere'"),
        ("INSERT INTO users SELECT n FROM readings", InvalidQuery, "'users' is a table"),
        ("INSERT INTO copy SELECT sensor, area AS n FROM readings", TypeMismatch, "do not fit"),
        ("INSERT INTO copy SELECT sensor, n FROM copy", InvalidQuery, "would read what it inserts"),
        ("INSERT INTO copy SELECT sensor, EXPLODE(ARRAY[n, n + 1]) AS n FROM readings", NotSupported, "'near' tells"),
        ("INSERT INTO lasting SELECT sensor, n FROM readings", InvalidQuery, "materialized view"),
        ("INSERT INTO near SELECT sensor, n AS a, n AS b FROM readings", NotSupported, "change and go"),
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
        CREATE MATERIALIZED VIEW lasting AS SELECT sensor, n FROM readings;
        CREATE STREAM near AS SELECT r.sensor AS sensor, r.n AS a, c.n AS b
            FROM readings r LEFT JOIN copy c WITHIN 1 MINUTE ON r.sensor = c.sensor;
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
