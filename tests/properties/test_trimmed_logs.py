"""Any view over any history of which the past is gone: what no rule looks back at may go, and every view stays right.

After an epoch random events of the logs that no stage looks back at (`jobs.ivm.rules.maintenance`) are removed. Beside
it a twin keeps all events: it must be what DuckDB recomputes from all of them, and the trimmed one must be the twin.
"""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from strandline.jobs.ivm.rules.maintenance import looks_back
from strandline.jobs.model.stage import inputs_of
from tests.properties.picker import Picker
from tests.properties.scenario import Scenario, Tally, scenario, tables
from tests.support import oracle
from tests.support.duck_lake import DuckLake
from tests.support.examples import examples, seed_of
from tests.support.memory_runtime import FROM

SCENARIOS = examples(20)
VIEWS = 2
"""Of a scenario: one view that looks back keeps its logs."""


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def forgettable(lake: DuckLake) -> list[str]:
    """The event logs that no stage looks back at."""
    needed = {name for kept in lake.kept for name in looks_back(kept.stage)}
    read = {each.relation.name for kept in lake.kept for each in inputs_of(kept.stage)}
    written = {kept.stage.table for kept in lake.kept}
    return sorted(read - written - needed)


def check(example: Scenario, db: duckdb.DuckDBPyConnection, pick: Picker) -> int:
    """The events that went."""
    catalog = example.defined()
    lake, twin = (DuckLake(catalog, catalog.definitions(), db) for _ in range(2))
    gone = 0
    try:
        for batch in example.history:
            for each in (lake, twin):
                for log, rows in batch.items():
                    each.feed(log, rows)
                each.refresh()
            for name in tables(catalog):
                assert not twin.wrong(name)
                columns = twin.visible(name)
                assert oracle.counted(lake.rows(name), columns) == oracle.counted(twin.rows(name), columns), name
            for log in forgettable(lake):
                upto = pick.count(0, lake.epoch)
                went = f"DELETE FROM {lake.stores[log].table} WHERE {FROM} <= {upto}"
                gone += sum(count for (count,) in db.execute(went).fetchall())
    finally:
        lake.close()
        twin.close()
    return gone


@pytest.mark.timeout(0)
def test_views_do_not_miss_what_they_do_not_look_back_at(
    db: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    tally, gone = Tally(), []
    for part in range(SCENARIOS):
        seed = seed_of(part)
        pick = Picker.seeded(seed)
        example = scenario(pick, VIEWS, tally)
        try:
            gone.append(check(example, db, pick))
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed}\n{example}")
            raise
    with capsys.disabled():
        print(f"\n{tally}\n{sum(gone)} events went, in {sum(map(bool, gone))} of {len(gone)} scenarios")
    assert sum(map(bool, gone)) > len(gone) // 10
