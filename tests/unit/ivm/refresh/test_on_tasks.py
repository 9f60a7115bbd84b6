"""First refreshes that tasks share: who shares what, and the same rows as by one task."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh import on_spark
from strandline.jobs.ivm.refresh.context import RunContext, Spread
from strandline.jobs.ivm.refresh.on_spark import sizes
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.properties.on_delta import PIPELINE, refreshed
from tests.support import lake_tables
from tests.support.catalog_from_sql import run
from tests.support.invariants import assert_correct
from tests.support.local_tasks import LocalTasks
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.state_store.commits import Head

SOURCES = (
    "CREATE STREAM visit (product VARCHAR, person INT, length BIGINT) WITH (PARTITIONS = 1)",
    "CREATE STREAM info (product VARCHAR, kind VARCHAR) WITH (PARTITIONS = 1)",
)
ALWAYS = Spread(1, 512, (None, 0), read_again=100.0)


class Shared:
    """A lake whose views are first computed by tasks in this process."""

    def __init__(self, lake: LakeLayout, *views: str) -> None:
        self.lake = lake
        catalog = Catalog(lake)
        for statement in (*SOURCES, *views):
            run(statement, catalog, PIPELINE)
        self.tasks = LocalTasks()
        self._offsets: dict[str, int] = {}

    def feed(self, name: str, rows: Sequence[Mapping[str, object]]) -> None:
        first = self._offsets.get(name, 0)
        lake_tables.events(self.lake, name, rows, first=first, epoch=first)
        self._offsets[name] = first + len(rows)

    def refresh(self, duckdb_engine: DuckDBEngine, spread: Spread | None = ALWAYS) -> None:
        context = RunContext(
            self.tasks.sessions, self.lake, f"{PIPELINE}/1", duckdb_engine=duckdb_engine, spread=spread
        )
        assert not refreshed(context)

    def head(self, table: str) -> Head:
        found = reader.head(self.lake.table(table))
        assert found is not None
        return found

    def how(self, table: str) -> str:
        return str(self.head(table).record.reason)


def visits(count: int, first: int = 0) -> list[dict[str, object]]:
    return [
        {"product": f"p{n % 7}", "person": n % 11 or None, "length": n * 7919 % 100}
        for n in range(first, first + count)
    ]


VIEWS = {
    "shown": "SELECT product, length * 2 AS twice FROM visit WHERE length > 20",
    "folded": "SELECT kind, COUNT(*) AS n, SUM(length) AS total, AVG(length) AS mean, MAX(person) AS p,"
    " MIN(length) AS s FROM visit v JOIN info i ON v.product = i.product GROUP BY kind",
    "met": "SELECT person, MEDIAN(length) AS m, COUNT(DISTINCT product) AS d FROM visit GROUP BY person",
    "whole": "SELECT COUNT(*) AS n, SUM(length) AS total, STDDEV(length) AS s FROM visit",
    "numbered": "SELECT person, length, ROW_NUMBER() OVER (PARTITION BY person ORDER BY length DESC) AS r FROM visit"
    " QUALIFY r <= 3",
    "padded": "SELECT v.product, i.kind, v.length FROM visit v LEFT JOIN info i ON v.product = i.product",
}


@pytest.mark.parametrize("view", VIEWS)
def test_the_rows_are_those_of_one_task(lake: LakeLayout, duckdb_engine: DuckDBEngine, view: str) -> None:
    shared = Shared(
        lake, f"CREATE MATERIALIZED VIEW v AS {VIEWS[view]}", f"CREATE MATERIALIZED VIEW w AS {VIEWS[view]}"
    )
    for first in (0, 40, 80, 120):
        shared.feed("visit", visits(40, first))
    shared.feed("info", [{"product": f"p{n}", "kind": f"k{n % 3}"} for n in range(7)])
    shared.refresh(duckdb_engine)
    assert shared.tasks.shared
    assert "in Spark's tasks: 3 parts" in shared.how("v")
    assert_correct(lake, PIPELINE)
    shared.feed("visit", visits(30, 160))
    shared.refresh(duckdb_engine)
    assert "by DuckDB: " in shared.how("v")
    assert_correct(lake, PIPELINE)
    assert shared.head("v").record.digest == shared.head("w").record.digest


def test_no_failing_row_is_lost_between_the_parts(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    """Its dead letters are those of the joined rows and those of one side, which is dealt out in both or in neither."""
    select = "SELECT CAST(v.product AS INT) AS p FROM visit v JOIN info i ON v.length * 2 = LEN(i.kind)"
    shared = Shared(lake, f"CREATE MATERIALIZED VIEW v AS {select}")
    for _ in range(3):
        shared.feed("visit", [{"product": "x", "person": 1, "length": 2}])
        shared.feed("info", [{"product": "x", "kind": "abcd"}] * 4)
    shared.feed("visit", [{"product": "x", "person": 1, "length": 2**62}])
    shared.refresh(duckdb_engine)
    assert shared.tasks.shared
    assert shared.head("v").record.rows == 0
    assert shared.head("v__dead_letters").record.rows == 3 * 12 + 1


def test_rows_of_an_input_that_each_part_reads_whole_are_not_read_too_often(
    lake: LakeLayout, duckdb_engine: DuckDBEngine
) -> None:
    shared = Shared(lake, f"CREATE MATERIALIZED VIEW v AS {VIEWS['padded']}")
    shared.feed("visit", visits(10))
    shared.feed("info", [{"product": f"p{n}", "kind": "k"} for n in range(7)])
    shared.refresh(duckdb_engine, Spread(1, 512, (None, 0)))
    assert shared.tasks.shared == 0
    assert "by DuckDB: 17 rows" in shared.how("v")


def test_few_rows_are_one_tasks(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    shared = Shared(lake, f"CREATE MATERIALIZED VIEW v AS {VIEWS['shown']}")
    shared.feed("visit", visits(10))
    shared.refresh(duckdb_engine, Spread(11, 512, (None, 0)))
    assert shared.tasks.shared == 0


def test_a_sum_is_right_though_its_parts_have_more_digits(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    shared = Shared(lake, "CREATE MATERIALIZED VIEW v AS SELECT SUM(length) AS total FROM visit")
    for length in (2**62, -(2**62)):
        shared.feed("visit", [{"product": "p", "person": 1, "length": length}] * 3)
    shared.feed("visit", [{"product": "p", "person": 1, "length": 3}])
    shared.refresh(duckdb_engine)
    assert shared.tasks.shared == 1
    assert_correct(lake, PIPELINE)


def test_rows_that_fail_are_kept_aside(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    shared = Shared(lake, "CREATE MATERIALIZED VIEW v AS SELECT product, 100 / length AS x FROM visit")
    for first in (0, 40, 80):
        shared.feed("visit", visits(40, first))
    shared.refresh(duckdb_engine)
    assert "in Spark's tasks" in shared.how("v")
    assert shared.head("v").record.rows == sum(1 for row in visits(120) if row["length"])
    assert shared.head("v__dead_letters").record.rows == sum(1 for row in visits(120) if not row["length"])


def test_late_rows_are_counted_once(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    view = (
        "CREATE MATERIALIZED VIEW {} AS SELECT product, COUNT(*) AS n FROM visit"
        " WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY product"
    )
    shared = Shared(lake, view.format("v"))
    for first in (0, 30, 60):
        rows = [{**row, **_place(first + at, lateness=25 * (at % 2))} for at, row in enumerate(visits(30))]
        lake_tables.append(lake, "visit", rows, epoch=first)
    shared.refresh(duckdb_engine)
    assert "in Spark's tasks" in shared.how("v")
    by_tasks = shared.head("v").record
    run(view.format("w"), Catalog(lake), PIPELINE)
    shared.refresh(duckdb_engine, None)
    assert by_tasks.late == shared.head("w").record.late
    assert by_tasks.late
    assert by_tasks.digest == shared.head("w").record.digest


def test_nothing_of_a_part_that_fails_is_left(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Shared(lake, f"CREATE MATERIALIZED VIEW v AS {VIEWS['shown']}")
    for first in (0, 40, 80):
        shared.feed("visit", visits(40, first))
    wrote = on_spark._Work.write
    calls = []

    def write(work: on_spark._Work, *arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 3:
            raise duckdb.InvalidInputException("the third part")
        return wrote(work, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(on_spark._Work, "write", write)
    shared.refresh(duckdb_engine)
    assert len(calls) == 3
    assert "by DuckDB: 120 rows" in shared.how("v")
    assert len([each for each in on_disk(lake.table("v")).iterdir() if each.name.startswith("epoch-")]) == 1
    assert_correct(lake, PIPELINE)


def _place(second: int, lateness: int) -> dict[str, object]:
    """The place of an event that came in that second, and is of an earlier one."""
    at = [lake_tables.NOON + dt.timedelta(seconds=each) for each in (second - lateness, second)]
    return {"_partition": 0, "_offset": second, "_timestamp": at[0], "_stream_time": at[1]}


@pytest.mark.parametrize(
    ("slots", "rows", "most_parts", "wanted"),
    [(4, 1_000, float("inf"), (4, 4)), (4, 200_000_000, 1e9, (10, 10)), (8, 1_000, 2.9, (2, 8)), (2, 0, 0.5, (1, 2))],
)
def test_sizes(slots: int, rows: int, most_parts: float, wanted: tuple[int, int]) -> None:
    assert sizes(slots, rows, most_parts) == wanted
