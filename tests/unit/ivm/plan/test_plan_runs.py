"""Plans do what their queries say: after every epoch the view equals the query over all rows."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pytest

from strandline.jobs.ivm.plan.plan import plan_of_query
from strandline.jobs.model.definitions import State
from strandline.state_store.layout import LakeLayout
from tests.support.examples import AT_LENGTH
from tests.support.plan_bench import Feeder, PlanBench, e
from tests.unit.ivm.plan.cases_by_hand import CASES
from tests.unit.ivm.plan.queries_by_hand import SOURCES, VALUES, groups

# After the first, in which all rows there are come in.
EPOCHS = 8 if AT_LENGTH else 3


@pytest.mark.share(2)
@pytest.mark.parametrize("state", ["full", "shared"])
@pytest.mark.parametrize("name", CASES)
def test_after_every_epoch_the_view_equals_the_query_over_all_rows(
    name: str, state: State, lake: LakeLayout, duck: duckdb.DuckDBPyConnection
) -> None:
    case = CASES[name]
    bench = PlanBench(lake, SOURCES, duck)
    feeder = Feeder(bench, VALUES, seed=2)
    feeder.epoch()
    made = plan_of_query("view", case.query(bench.relation), state=state, pipeline="p")
    if state == "shared" and made == plan_of_query("view", case.query(bench.relation), pipeline="p"):
        return  # no stage that could be shared: it is the other plan
    bench.maintain(made)
    bench.refresh()
    seen = 0
    for _ in range(EPOCHS):
        feeder.epoch(most=5)
        assert bench.shown("view") == bench.truth(case.sql)
        seen += bench.shown("view").total()
    bench.close()
    assert seen, "the events of this seed never make a row"


def test_with_ksql_semantics_a_group_lasts_also_when_its_row_went_within_one_epoch(
    lake: LakeLayout, duck: duckdb.DuckDBPyConnection
) -> None:
    bench = PlanBench(lake, SOURCES, duck)
    feeder = Feeder(bench, VALUES, seed=1)
    query = groups(bench.relation, "info", "category")
    bench.maintain(plan_of_query("view", replace(query, where=e("info.price > 1")), "ksql"))
    row = {"product": "apple", "category": "fruit", "price": 7}
    feeder.feed("info", [row, {**row, "product": "carrot", "category": "root"}, {**row, "_tombstone": True}])
    feeder.feed("info", [{**row, "category": "cheap", "price": 1}, {**row, "category": None}])
    bench.refresh()
    assert bench.shown("view") == {("fruit", 0): 1, ("root", 1): 1}
    feeder.feed("info", [{**row, "product": "carrot", "_tombstone": True}])
    bench.refresh()
    assert bench.shown("view") == {("fruit", 0): 1, ("root", 0): 1}
    bench.close()
