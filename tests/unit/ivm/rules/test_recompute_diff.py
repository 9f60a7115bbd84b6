"""The difference between rows computed anew and rows stored brings the stored ones to the new, touching no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.rules.stored import difference
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import MapStage
from strandline.jobs.model.tables import Relation
from tests.support.examples import examples
from tests.support.rule_harness import RuleBench, core, multiset

COLUMNS = (("k", t.VARCHAR), ("l", t.INT), ("v", t.INT), ("x", t.DOUBLE))
TABLE = Relation("t", COLUMNS, "keyed", ("k", "l"))
STAGE = MapStage("view", (replace(core(TABLE), key=("k", "l")),), ("v", "k", "x"), ("k", "l"))
rows = st.dictionaries(
    st.tuples(st.none() | st.sampled_from("ab"), st.none() | st.integers(0, 2)),
    st.tuples(st.none() | st.integers(0, 1), st.none() | st.sampled_from([0.5, float("nan")])),
)


class DifferenceBench(RuleBench):
    """Every epoch computes all rows anew, as the relation `fresh`."""

    fresh = "new_s"

    def rule(self, moved: Sequence[str] | None) -> str:
        return difference(self.stage, self.fresh, engine_of("duckdb"))


class HiddenKeyBench(DifferenceBench):
    fresh = "(SELECT v, k, x, {'l': l} AS __state FROM new_s)"


def settled_rows(tables: RuleBench) -> int:
    return int(tables.query("SELECT count(*) FROM settled")[0][0])


def as_rows(state: dict[Any, Any]) -> list[dict[str, Any]]:
    return [{"k": k, "l": number, "v": v, "x": x} for (k, number), (v, x) in state.items()]


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(rows, min_size=1, max_size=4))
def test_the_stored_rows_become_the_fresh_ones(duck: DuckDBPyConnection, states: list[Any]) -> None:
    """Keys may be NULL, visible or kept in the state; each settled key differs, and all that differ are settled."""
    tables = HiddenKeyBench(duck, STAGE)
    before: set[Any] = set()
    for state in states:
        tables.state(as_rows(state))
        assert tables.visible() == multiset(tables.query("SELECT v, k, x FROM new_s"))
        after = {(key, repr(row)) for key, row in state.items()}
        assert settled_rows(tables) == len({key for key, _ in before ^ after})
        before = after


def test_a_row_that_goes_holds_its_key_only(duck: DuckDBPyConnection) -> None:
    tables = HiddenKeyBench(duck, STAGE)
    tables.state(as_rows({("a", None): (1, 0.5)}))
    tables.state([])
    assert tables.query("SELECT v, k, x, __state.l, __exists, (__old).v FROM settled") == [
        (None, "a", None, None, False, 1)
    ]


def test_one_row_without_a_key(duck: DuckDBPyConnection) -> None:
    table = replace(TABLE, key=())
    stage = replace(STAGE, body=(core(table),), visible=("k", "l", "v", "x"), key=())
    tables = DifferenceBench(duck, stage)
    for state in ([{"v": 1}], [{"v": 1}], [{"v": None}], []):
        tables.state(state)
        assert tables.visible() == multiset((None, None, row["v"], None) for row in state)


def test_rows_with_maps_are_left_to_the_store(duck: DuckDBPyConnection) -> None:
    """Spark cannot compare maps: all rows are settled, the equal ones too."""
    columns = (("k", t.VARCHAR), ("m", t.map_of(t.VARCHAR, t.INT)))
    table = Relation("t", columns, "keyed", ("k",))
    stage = MapStage("view", (replace(core(table), key=("k",)),), ("k", "m"), ("k",))
    tables = DifferenceBench(duck, stage)
    for _ in range(2):
        tables.state([{"k": "a", "m": {"p": 1}}])
        assert settled_rows(tables) == 1
        assert tables.query("SELECT k, m FROM self_old") == [("a", {"p": 1})]
