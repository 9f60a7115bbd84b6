"""Events that look up a table (SEMANTICS = 'ksql'): what an event found stays, whatever is computed again later."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.stage import MapStage, inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of, run
from tests.support.duck_lake import DuckLake

SOURCES = """
CREATE STREAM s (id INT KEY, k INT, x INT);
CREATE TABLE t0 (k INT PRIMARY KEY, name VARCHAR);
CREATE TABLE t AS SELECT k, name FROM t0;
"""
JOINED = "FROM s JOIN {table} AS t ON s.k = t.k"
QUERIES = {
    "an aggregate": "SELECT t.name, COUNT(*) AS n, MAX(s.x) AS m {joined} GROUP BY t.name",
    "a session": "SELECT s.k, COUNT(*) AS n, COLLECT_LIST(t.name) {joined} WINDOW SESSION (1 MINUTE) GROUP BY s.k",
    "a session of what was found": (
        "SELECT t.name, COUNT(*) AS n {joined} WINDOW SESSION (60 SECONDS, GRACE PERIOD 1 DAY) GROUP BY t.name"
    ),
    "an outer join": "SELECT s.k, EARLIEST_BY_OFFSET(t.name) FROM s LEFT JOIN {table} t ON s.k = t.k GROUP BY s.k",
    "HAVING": "SELECT t.name, COUNT(*) AS n {joined} GROUP BY t.name HAVING COUNT(*) > 1",
    "EMIT FINAL": "SELECT t.name, COUNT(*) AS n {joined} WINDOW TUMBLING (SIZE 1 MINUTE) GROUP BY t.name EMIT FINAL",
    "functions OVER": "SELECT s.id, t.name, SUM(s.x) OVER (PARTITION BY s.k ORDER BY s.id) AS r {joined}",
    "QUALIFY": "SELECT s.id, t.name {joined} QUALIFY ROW_NUMBER() OVER (PARTITION BY s.k ORDER BY s.x, s.id) <= 2",
    "DISTINCT": "SELECT DISTINCT s.k, t.name {joined}",
    "a query inside": "SELECT name, MAX(x) AS m FROM (SELECT t.name, s.x {joined}) AS q GROUP BY name",
    "NOT EXISTS": "SELECT s.id, t.name {joined} WHERE NOT EXISTS (SELECT 1 FROM s AS o WHERE o.k = s.k AND o.x > s.x)",
    "UNION": "SELECT s.id, t.name {joined} UNION SELECT s.x, t.name {joined}",
}


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)


class Events:
    """Rows of `s` and `t0__log`, one after the other."""

    def __init__(self) -> None:
        self.offset, self.time = 0, datetime(2024, 1, 1, tzinfo=UTC)

    def at(self, second: int, **columns: Any) -> dict[str, Any]:
        self.offset += 1
        time = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        self.time = max(self.time, time)
        return {"_partition": 0, "_offset": self.offset, "_timestamp": time, "_stream_time": self.time, **columns}


def history() -> list[dict[str, list[dict[str, Any]]]]:
    """Epochs in which the table changes and loses rows, gets one that an event before it would have found, and events
    come late for sessions that there are."""
    of = Events()
    return [
        {"t0__log": [of.at(0, k=1, name="a"), of.at(0, k=2, name="b")]},
        {"s": [of.at(10, id=1, k=1, x=5), of.at(12, id=2, k=2, x=7), of.at(12, id=3, k=3, x=1)]},
        {"t0__log": [of.at(11, k=3, name="late"), of.at(20, k=1, name="c")]},
        {"s": [of.at(30, id=4, k=1, x=4), of.at(31, id=5, k=2, x=9), of.at(31, id=6, k=3, x=2)]},
        {"t0__log": [of.at(33, k=2, _tombstone=True)]},
        {"s": [of.at(35, id=7, k=1, x=6), of.at(36, id=8, k=2, x=1)], "t0__log": [of.at(36, k=1, name="d")]},
        {"s": [of.at(200, id=9, k=1, x=6)]},
        {"s": [of.at(34, id=10, k=1, x=8), of.at(90, id=11, k=3, x=3)]},
    ]


@pytest.mark.parametrize(
    ("query", "table"), [*((name, "t") for name in QUERIES), *((name, "t0") for name in ("a session", "DISTINCT"))]
)
def test_what_an_event_found_stays(catalog: Catalog, duck: duckdb.DuckDBPyConnection, query: str, table: str) -> None:
    """Also where everything is computed anew, as REFRESH = 'full' and an epoch of many changes do."""
    text = QUERIES[query].replace("{joined}", JOINED).format(table=table)
    view = run(f"CREATE MATERIALIZED VIEW v WITH (SEMANTICS = 'ksql') AS {text}", catalog)
    lake = DuckLake(catalog, catalog.definitions(), duck)
    for epoch, rows in enumerate(history()):
        for log, events in rows.items():
            lake.feed(log, events)
        lake.refresh()
        assert lake.wrong("v") == "", f"epoch {epoch}"
    before = sorted(map(str, lake.rows("v")))
    lake.recompute(view.name)
    assert sorted(map(str, lake.rows("v"))) == before


@pytest.mark.parametrize(
    "text",
    ["CREATE STREAM v AS SELECT s.k, t.name", "CREATE MATERIALIZED VIEW v WITH (SEMANTICS = 'ksql') AS SELECT t.name"],
)
def test_rows_that_are_only_added_are_stored_once(catalog: Catalog, text: str) -> None:
    view = run(f"{text} {JOINED.format(table='t')}", catalog)
    (stage,) = plan(view, catalog).stages
    assert storage_of(stage) == "append"


def test_what_was_found_has_the_columns_that_are_read_and_no_more(catalog: Catalog) -> None:
    text = QUERIES["a session"].format(joined=JOINED.format(table="t"))
    view = run(f"CREATE TABLE v WITH (SEMANTICS = 'ksql') AS {text}", catalog)
    made = plan(view, catalog)
    found, last = made.stages
    assert storage_of(found) == "append"
    assert isinstance(found, MapStage)
    assert [each.name for each in found.body[0].columns][:2] == ["j0_k", "j1_name"]
    assert len(found.body[0].columns) == 7, "and the meta columns of the event"
    assert [each.relation.name for each in inputs_of(last)] == [found.table]
    assert "an inner stage keeps what each of them found" in made.notes[0]


def test_a_view_that_follows_the_table_is_one_stage(catalog: Catalog) -> None:
    """SQL's semantics: the join is maintained, and no event stays with what it found."""
    text = QUERIES["an aggregate"].format(joined=JOINED.format(table="t"))
    assert len(plan(run(f"CREATE MATERIALIZED VIEW v AS {text}", catalog), catalog).stages) == 1
