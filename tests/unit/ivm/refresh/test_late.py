"""Late rows: a view's record counts those that it leaves out, whatever the epochs were and however they were run."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import duckdb
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.guarded_stage import checked, guarded, null_instead
from strandline.jobs.ivm.rules.maintenance import late_rows
from strandline.jobs.model.stage import Stage
from strandline.state_store.commits import CommitRecord
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.support.duck_lake import DuckLake, Row

SOURCES = """
CREATE STREAM visit (product VARCHAR KEY, length INT);
CREATE TABLE stock (product VARCHAR PRIMARY KEY, length INT);
"""
TUMBLING = "WINDOW TUMBLING (SIZE 10 SECONDS, GRACE PERIOD 5 SECONDS)"
HOPPING = "WINDOW HOPPING (SIZE 10 SECONDS, ADVANCE BY 5 SECONDS, GRACE PERIOD 5 SECONDS)"
SESSION = "WINDOW SESSION (10 SECONDS, GRACE PERIOD 5 SECONDS)"

BEGIN = datetime(2024, 5, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        yield opened


def made(lake: LakeLayout, db: duckdb.DuckDBPyConnection, view: str) -> DuckLake:
    catalog: Catalog = catalog_of(lake, SOURCES + view)
    return DuckLake(catalog, catalog.definitions(), db)


def events(seconds: Sequence[int], first: int = 0, clock: int = 0) -> list[Row]:
    """An event at each of these seconds after the beginning, in order of arrival, from offset `first`."""
    rows: list[Row] = []
    for offset, second in enumerate(seconds, first):
        clock = max(clock, second)
        place = {"_partition": 0, "_offset": offset, "_timestamp": BEGIN + timedelta(seconds=second)}
        rows.append({"product": "ab"[offset % 2], "length": offset, **place})
        rows[-1]["_stream_time"] = BEGIN + timedelta(seconds=clock)
    return rows


# Second 4 comes at 14: its window [0, 10) takes rows up to second 15. At 15 and at 40 it no longer does.
CASES = {
    TUMBLING: ([14, 4, 15, 4, 40, 4, 26], 3),
    # 4 is in [-5, 5) too, open until 10; 26 is in [20, 30) and in [25, 35), open until 40.
    HOPPING: ([14, 4, 15, 4, 40, 4, 26, 29], 9),
    # A session of one row is open until its time + 10 + 5 has passed.
    SESSION: ([19, 4, 20, 4, 40, 4, 25, 24], 3),
}


@pytest.mark.parametrize("window", CASES)
@pytest.mark.parametrize("emit", ["CHANGES", "FINAL"])
def test_late_rows_are_counted_once_for_each_window_they_missed(
    lake: LakeLayout, db: duckdb.DuckDBPyConnection, window: str, emit: str
) -> None:
    seconds, late = CASES[window]
    tables = made(
        lake, db, f"CREATE TABLE v AS SELECT product, COUNT(*) AS n FROM visit {window} GROUP BY product EMIT {emit};"
    )
    tables.feed("visit", events(seconds[:3]))
    tables.refresh()
    tables.feed("visit", events(seconds[3:], first=3, clock=max(seconds[:3])))
    tables.refresh()
    assert tables.late("v") == late
    assert tables.wrong("v") == ""


@pytest.mark.parametrize("window", CASES)
def test_the_count_does_not_depend_on_the_epochs(lake: LakeLayout, db: duckdb.DuckDBPyConnection, window: str) -> None:
    pick = random.Random(7)
    seconds = [at + pick.choice([0, 0, 0, -9, -20, -40]) for at in range(50, 250)]
    rows = events(seconds)
    tables = made(lake, db, f"CREATE TABLE v AS SELECT product, COUNT(*) AS n FROM visit {window} GROUP BY product;")
    while rows:
        cut = pick.randint(1, 40)
        tables.feed("visit", rows[:cut])
        tables.refresh()
        rows = rows[cut:]
    whole = DuckLake(tables.catalog, tables.catalog.definitions(), db)
    whole.feed("visit", events(seconds))
    whole.refresh()
    assert tables.late("v") == whole.late("v")
    assert tables.late("v")


def test_a_late_row_that_is_retracted_counts_no_more(lake: LakeLayout, db: duckdb.DuckDBPyConnection) -> None:
    tables = made(
        lake, db, f"CREATE MATERIALIZED VIEW v AS SELECT length, COUNT(*) AS n FROM stock {TUMBLING} GROUP BY length;"
    )
    first, late, third = events([2, 40, 4], first=0)[0], *events([40, 4], first=1)
    tables.feed("stock__log", [first, late, third | {"product": "c"}])
    tables.refresh()
    assert tables.late("v") == 1
    again = events([41], first=3)[0] | {"product": "c", "_stream_time": BEGIN + timedelta(seconds=41)}
    tables.feed("stock__log", [again])
    tables.refresh()
    assert tables.late("v") == 0


def test_grouping_sets_count_a_row_once(lake: LakeLayout, db: duckdb.DuckDBPyConnection) -> None:
    view = f"SELECT product, COUNT(*) AS n FROM visit {TUMBLING} GROUP BY ROLLUP (product)"
    tables = made(lake, db, f"CREATE MATERIALIZED VIEW v AS {view};")
    tables.feed("visit", events([40, 4]))
    tables.refresh()
    assert tables.late("v") == 1


@pytest.mark.parametrize("rewritten", [checked, null_instead, lambda stage: guarded(stage, "letters").sound])
def test_a_late_row_that_fails_is_not_counted_and_stops_nothing(
    lake: LakeLayout, db: duckdb.DuckDBPyConnection, rewritten: Callable[[Stage], Stage]
) -> None:
    """Whatever the view's policy on errors: row 2 is late, row 0 would divide by zero."""
    view = (
        f"CREATE TABLE v AS SELECT product, COUNT(*) AS n FROM visit {TUMBLING} WHERE 9 / length > 1 GROUP BY product;"
    )
    tables = made(lake, db, view)
    (kept,) = (kept for kept in tables.kept if kept.stage.table == "v")
    stage = rewritten(kept.stage)
    late = late_rows(stage, "duckdb", None)
    assert late is not None
    rows = events([0, 40, 4, 5])
    for row, length in zip(rows, (1, 1, 2, 0), strict=True):
        row["length"] = length
    tables.feed("visit", rows)
    tables.epoch += 1
    log = f"new_visit AS ({tables.stores['visit'].at(tables.epoch)})"
    assert tables.fetch(f"WITH {log} {late}") == [{"__late": 1}]


def test_a_view_without_a_window_counts_nothing(lake: LakeLayout, db: duckdb.DuckDBPyConnection) -> None:
    tables = made(lake, db, "CREATE TABLE v AS SELECT product, COUNT(*) AS n FROM visit GROUP BY product;")
    tables.feed("visit", events([40, 4]))
    tables.refresh()
    assert tables.late("v") is None


def test_rows_that_a_record_from_before_did_not_count_are_counted(
    lake: LakeLayout, db: duckdb.DuckDBPyConnection
) -> None:
    tables = made(lake, db, f"CREATE TABLE v AS SELECT product, COUNT(*) AS n FROM visit {TUMBLING} GROUP BY product;")
    tables.feed("visit", events([40, 4]))
    tables.refresh()
    tables.kept[0].late = None
    tables.feed("visit", events([41, 5], first=2, clock=40))
    tables.refresh()
    assert tables.late("v") == 2


def test_a_record_says_nothing_of_late_rows_where_there_are_none_to_count() -> None:
    assert '"late"' not in CommitRecord(epoch=1).to_json()
    for record in (CommitRecord(epoch=1), CommitRecord(epoch=1, late=0), CommitRecord(epoch=1, late=3)):
        assert CommitRecord.from_json(record.to_json()) == record
