"""STATE = 'shared': one table for a join that several views read, found by what it holds, gone with its last reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.stage_columns import key_names
from strandline.jobs.model.tables import is_shared
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import shared_tables
from strandline.jobs.session.catalog_changes import drop
from strandline.jobs.sql.statements import Drop, parse_one
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.duck_lake import DuckLake
from tests.support.on_disk import on_disk

SOURCES = """
CREATE STREAM visit (product VARCHAR KEY, person VARCHAR, length INT);
CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR);
"""
JOIN = "FROM visit v JOIN info ON v.product = info.product"


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


def view(name: str, select: str, catalog: Catalog, pipeline: str = "tests") -> frozenset[str]:
    made = run(f"CREATE MATERIALIZED VIEW {name} WITH (STATE='shared') AS {select}", catalog, pipeline)
    return shared_tables(made, catalog)


def test_views_over_one_join_share_it_whatever_they_select_filter_and_call_it(catalog: Catalog) -> None:
    tables = {
        view("a", f"SELECT category, MAX(length) AS m {JOIN} GROUP BY category", catalog),
        view("b", f"SELECT person, COUNT(*) AS n {JOIN} WHERE length > 3 GROUP BY person", catalog),
        view("c", "SELECT x.length FROM visit AS x JOIN info AS y ON x.product = y.product", catalog),
    }
    (one,) = tables
    (table,) = one
    assert is_shared(table)


def test_a_column_that_the_keys_of_both_sides_share_is_in_the_key_once(catalog: Catalog) -> None:
    """Spark refuses a struct in which a field is named twice, and the rule makes one of the key."""
    run("CREATE MATERIALIZED VIEW pairs AS SELECT DISTINCT product, person FROM visit", catalog)
    shared = "CREATE MATERIALIZED VIEW met WITH (STATE='shared') AS"
    met = run(
        f"{shared} SELECT a.person, COUNT(*) FROM pairs a JOIN pairs b ON a.product = b.person GROUP BY 1", catalog
    )
    (join, _) = plan(met, catalog).stages
    names = key_names(join)
    assert len(names) == len(set(names)) == 3


def test_another_join_and_another_pipeline_have_tables_of_their_own(catalog: Catalog) -> None:
    a = view("a", f"SELECT category, MAX(length) AS m {JOIN} GROUP BY category", catalog)
    b = view("b", f"SELECT category, MAX(length) AS m {JOIN} AND v.length > 1 GROUP BY category", catalog)
    c = view("c", f"SELECT category, MAX(length) AS m {JOIN} GROUP BY category", catalog, pipeline="other")
    assert len(a | b | c) == 3


def test_without_a_join_or_an_inner_stage_nothing_is_shared(catalog: Catalog) -> None:
    assert view("a", "SELECT person, COUNT(*) AS n FROM visit GROUP BY person", catalog) == frozenset()


def test_inner_aggregates_are_shared_too(catalog: Catalog) -> None:
    having = "SELECT person, COUNT(*) AS n FROM visit GROUP BY person HAVING COUNT(*) > {}"
    assert view("a", having.format(1), catalog) == view("b", having.format(2), catalog) != frozenset()


def test_a_shared_stage_is_refreshed_once_and_before_its_readers(catalog: Catalog) -> None:
    (table,) = view("a", f"SELECT category, MAX(length) AS m {JOIN} GROUP BY category", catalog)
    view("b", f"SELECT category, MIN(length) AS m {JOIN} GROUP BY category", catalog)
    levels = maintained(catalog.pipeline("tests"), catalog)
    targets = [[item.target for item in level] for level in levels]
    assert targets == [["info"], [table], ["a", "b"]]
    (item,) = levels[1]
    assert item.serves == ("a", "b")
    assert item.fingerprint == table
    assert all(len(each.stages) == 1 for level in levels for each in level)


def test_dropping_the_last_reader_drops_the_table(catalog: Catalog, lake: LakeLayout) -> None:
    (table,) = view("a", f"SELECT category, MAX(length) AS m {JOIN} GROUP BY category", catalog)
    view("b", f"SELECT category, MIN(length) AS m {JOIN} GROUP BY category", catalog)
    on_disk(lake.table(table)).mkdir(parents=True)
    for name, left in (("a", True), ("b", False)):
        statement = parse_one(f"DROP VIEW {name}")
        assert isinstance(statement, Drop)
        drop(statement, catalog, lake)
        assert lake.table(table).exists() is left


def test_a_second_view_starts_from_the_rows_that_are_there(
    catalog: Catalog, duck: duckdb.DuckDBPyConnection, lake: LakeLayout
) -> None:
    (table,) = view("a", f"SELECT category, MAX(length) AS m {JOIN} GROUP BY category", catalog)
    bench = DuckLake(catalog, catalog.definitions(), duck)
    place = {"_partition": 0, "_offset": 0}
    bench.feed("info__log", [{"product": "apple", "category": "fruit", **place}])
    bench.feed("visit", [{"product": "apple", "person": "ann", "length": 10, **place}])
    bench.refresh()
    run(
        f"CREATE MATERIALIZED VIEW b WITH (STATE='shared') AS SELECT person, COUNT(*) AS n {JOIN} GROUP BY person",
        catalog,
    )
    assert {stage.table for stage in plan(catalog.get("b"), catalog).stages} == {table, "b"}
    bench.define([catalog.get("b")])
    bench.refresh()
    assert bench.rows("b") == [{"person": "ann", "n": 1}]
    assert bench.since(table) == bench.since("b")
    bench.close()


@pytest.mark.parametrize("state", ["full", "shared"])
def test_a_join_of_streams_is_a_stream_for_the_next_join(
    state: str, catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    """Its rows have the later event's time, also where they are read from a shared table."""
    run(
        f"""
        CREATE STREAM pairs WITH (STATE='{state}') AS SELECT v.product AS product, v.person AS one, w.person AS other
          FROM visit v LEFT JOIN visit w WITHIN 5 SECONDS ON v.product = w.product AND v.person <> w.person;
        CREATE STREAM threes WITH (STATE='{state}') AS SELECT p.product AS product, one, other, person
          FROM pairs p JOIN visit x WITHIN (0 SECONDS, 9 SECONDS) ON p.product = x.product AND x.length > 1;
        """,
        catalog,
    )
    bench = DuckLake(catalog, catalog.definitions(), duck)
    start = datetime(2024, 5, 1, tzinfo=UTC)
    for offset, (person, seconds, length) in enumerate([("ann", 0, 1), ("bob", 3, 1), ("cid", 8, 2), ("dan", 13, 2)]):
        time = start + timedelta(seconds=seconds)
        event = {"product": "apple", "person": person, "length": length, "_partition": 0, "_offset": offset}
        bench.feed("visit", [event | {"_timestamp": time, "_stream_time": time}])
        bench.refresh()
    # Of ann and bob the time is 3 s, of bob and cid 8 s: dan comes 10 s after the first and 5 s after the others.
    assert sorted((row["one"], row["other"], row["person"]) for row in bench.rows("threes")) == [
        ("ann", "bob", "cid"),
        ("bob", "ann", "cid"),
        ("bob", "cid", "cid"),
        ("bob", "cid", "dan"),
        ("cid", "bob", "cid"),
        ("cid", "bob", "dan"),
        ("cid", "dan", "dan"),
        ("dan", "cid", "dan"),
    ]
    bench.close()


@pytest.mark.parametrize("state", ["full", "shared"])
@pytest.mark.parametrize(("semantics", "joined"), [("sql", JOIN), ("ksql", f"FROM (SELECT category {JOIN}) AS q")])
def test_an_event_that_joins_nothing_closes_windows_too(
    state: str, semantics: str, joined: str, catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    run(
        f"CREATE MATERIALIZED VIEW v WITH (STATE = '{state}', SEMANTICS = '{semantics}') AS"
        f" SELECT category, COUNT(*) AS n {joined}"
        " WINDOW TUMBLING (SIZE 1 MINUTE, GRACE PERIOD 0 SECONDS) GROUP BY category EMIT FINAL",
        catalog,
    )
    lake = DuckLake(catalog, catalog.definitions(), duck)

    def event(offset: int, second: int, **columns: object) -> dict[str, object]:
        at = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        return {"_partition": 0, "_offset": offset, "_timestamp": at, "_stream_time": at, **columns}

    lake.feed("info__log", [event(0, 0, product="plum", category="fruit")])
    lake.feed("visit", [event(0, 10, product="plum", person="plum", length=1)])
    lake.refresh()
    assert lake.rows("v") == []
    lake.feed("visit", [event(1, 70, product="no such", person="ann", length=1)])
    lake.refresh()
    assert [(row["category"], row["n"]) for row in lake.rows("v")] == [("fruit", 1)]
    assert lake.wrong("v") == ""
    lake.close()


@pytest.mark.parametrize(
    "select",
    [
        "SELECT a.person, RANK() OVER (ORDER BY a.length) AS r FROM visit a JOIN visit b ON a.product = b.product",
        "SELECT DISTINCT ON (a.person) a.person, b.length FROM visit a, visit b ORDER BY a.person, b.length",
        "SELECT a.length FROM visit a JOIN visit b ON a.product = b.product ORDER BY a.length LIMIT 2",
        "SELECT SUM(a.length) OVER (PARTITION BY a.person) AS n, MAX(b.length) OVER (PARTITION BY b.product) AS m"
        " FROM visit a JOIN visit b ON a.product = b.product",
        "SELECT a.length FROM visit a JOIN visit b ON a.product = b.product LEFT JOIN info ON info.product = a.person",
        "SELECT a.length FROM visit a JOIN visit b ON a.product = b.product EXCEPT ALL SELECT length FROM visit",
        "SELECT a.length FROM visit a JOIN visit b ON a.product = b.product UNION ALL SELECT 1 FROM info",
        "SELECT MAX(n) FROM (SELECT a.length AS n, COUNT(*) FROM visit a, visit b GROUP BY a.length) AS q",
        "SELECT q.n FROM (SELECT a.length AS n FROM visit a, visit b) AS q JOIN info ON info.product <> 'x'",
    ],
)
def test_joined_events_can_be_maintained_whether_views_share_their_join_or_not(select: str, catalog: Catalog) -> None:
    run(f"CREATE MATERIALIZED VIEW own AS {select}", catalog)
    run(f"CREATE MATERIALIZED VIEW together WITH (STATE='shared') AS {select}", catalog)
