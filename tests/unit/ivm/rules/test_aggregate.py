"""GROUP BY, maintained from changes on DuckDB, equals GROUP BY computed from all rows, after every epoch."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.engines.engine import NEGATIVE_WEIGHT
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateStage
from strandline.jobs.model.tables import Relation
from tests.support.aggregate_cases import AT, BEGIN, CALLS, LOG, called, grouped, logs
from tests.support.examples import examples
from tests.support.rule_harness import RuleBench, call, core, insert, multiset, output, parse

# An example runs a few epochs, of all functions at once in half a second each.
EXAMPLES = examples(2)


def added(batch: list[dict[str, Any]]) -> list[tuple[dict[str, Any], int, int]]:
    return [(row, 1, 0) for row in batch]


@settings(max_examples=EXAMPLES, deadline=None)
@given(logs())
def test_every_function_equals_recomputation_over_an_append_only_log(
    duck: DuckDBPyConnection, batches: list[list[dict[str, Any]]]
) -> None:
    """Whatever the batch cuts, with NULL groups and values, late events and empty batches."""
    stage, recomputed = grouped(*CALLS)
    bench = RuleBench(duck, stage)
    for batch in batches:
        bench.epoch(added(batch))
        assert bench.visible() == multiset(bench.query(recomputed))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(logs())
def test_filters_and_groups_nobody_selected(duck: DuckDBPyConnection, batches: list[list[dict[str, Any]]]) -> None:
    """A group that is not visible is kept in the state, and still tells the rows apart."""
    stage, recomputed = grouped("n", "sv", "l", where="v > 0 OR s = 'p'", hidden=True)
    bench = RuleBench(duck, stage)
    for batch in batches:
        bench.epoch(added(batch))
        assert bench.visible() == multiset(bench.query(recomputed))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(logs())
def test_a_filter_clause_holds_for_its_own_call_only(
    duck: DuckDBPyConnection, batches: list[list[dict[str, Any]]]
) -> None:
    condition = "v > 0"
    calls = tuple(called(f"__a{i}", name, filter=parse(condition)) for i, name in enumerate(("n", "sv", "ln", "hist")))
    outputs = tuple(output(c.name, c.name, c.type) for c in (*calls, call("__a9", "COUNT", [])))
    stage = AggregateStage(
        "view",
        (core(LOG),),
        (output("k", "k", t.VARCHAR),),
        (*calls, call("__a9", "COUNT", [])),
        (output("k", "k", t.VARCHAR), *outputs),
        ("k",),
    )
    bench = RuleBench(duck, stage)
    kept = f"FILTER (WHERE {condition})"
    recomputed = (
        f"SELECT k, count(*) {kept}, sum(v) {kept}, (arg_max({{'v': s}}, {AT}) {kept}).v,"
        f" coalesce(histogram(s) {kept}, map {{}}), count(*) FROM history GROUP BY k"
    )
    for batch in batches:
        bench.epoch(added(batch))
        assert bench.visible() == multiset(bench.query(recomputed))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(logs())
def test_a_global_aggregate_has_one_row_from_the_first_epoch_on(
    duck: DuckDBPyConnection, batches: list[list[dict[str, Any]]]
) -> None:
    """Also over nothing at all: COUNT is 0 and SUM is NULL."""
    calls = (call("__a0", "COUNT", []), call("__a1", "SUM", [("v", t.INT)]), called("__a2", "l"))
    outputs = tuple(output(c.name, c.name, c.type) for c in calls)
    bench = RuleBench(duck, AggregateStage("view", (core(LOG),), (), calls, outputs, ()))
    for batch in batches:
        bench.epoch(added(batch))
        expected = bench.query(f"SELECT count(*), sum(v), {CALLS['l'][2]} FROM history")
        assert bench.visible() == multiset(expected)


keyed_values = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b"]),
        "v": st.none() | st.integers(-(10**12), 10**12),
        "d": st.none() | st.decimals(-(10**18), 10**18, places=18),
        "x": st.none() | st.floats(-1e6, 1e6).map(lambda value: round(value, 3)),
    }
)
operations = st.tuples(st.integers(0, 3), st.none() | keyed_values)
TABLE = Relation(
    "t",
    (("id", t.INT), ("k", t.VARCHAR), ("v", t.BIGINT), ("d", t.decimal(38, 18)), ("x", t.DOUBLE)),
    "keyed",
    ("id",),
)


@settings(max_examples=4 * EXAMPLES, deadline=None)
@given(st.lists(st.lists(operations, max_size=6), max_size=5))
def test_linear_functions_equal_recomputation_over_a_table_that_changes(
    duck: DuckDBPyConnection,
    epochs: list[list[tuple[int, dict[str, Any] | None]]],
) -> None:
    """Rows are inserted, replaced (also into another group) and deleted, several times within one epoch."""
    arguments = [("v", t.BIGINT), ("d", t.decimal(38, 18)), ("x", t.DOUBLE)]
    calls = [call("__a0", "COUNT", []), call("__a1", "COUNT", arguments[:1])]
    calls += [call(f"__a{len(calls) + i}", "SUM", [argument]) for i, argument in enumerate(arguments)]
    calls += [call(f"__a{len(calls) + i}", "AVG", [argument]) for i, argument in enumerate(arguments)]
    outputs = (output("k", "k", t.VARCHAR), *(output(c.name, c.name, c.type) for c in calls))
    rate = output("rate", "100 // __a0", t.BIGINT)
    stage = AggregateStage("view", (core(TABLE),), outputs[:1], tuple(calls), (*outputs, rate), ("k",))
    bench = RuleBench(duck, stage)
    rows: dict[int, dict[str, Any]] = {}
    version = 0
    for epoch in epochs:
        changes = []
        for key, value in epoch:
            version += 1
            if key in rows:
                changes.append((rows.pop(key), -1, version))
            if value is not None:
                rows[key] = {"id": key, **value}
                changes.append((rows[key], 1, version))
        bench.epoch(changes)
        bench.db.execute("CREATE OR REPLACE TABLE present AS SELECT * FROM history LIMIT 0")
        insert(bench.db, "present", [[*(row[name] for name, _ in TABLE.columns), 1, 0] for row in rows.values()])
        expected = bench.query(
            "SELECT k, count(*), count(v), sum(v), sum(d), round(fsum(x), 6), avg(v), sum(d)::DOUBLE / count(d),"
            " round(fsum(x) / count(x), 6), 100 // count(*) FROM present GROUP BY k"
        )
        shown = "k, __a0, __a1, __a2, __a3, round(__a4, 6), __a5, __a6, round(__a7, 6), rate"
        assert multiset(bench.query(f"SELECT {shown} FROM self_old")) == multiset(expected)


def test_of_a_group_that_is_computed_again_only_what_cannot_retract_is() -> None:
    calls = (call("__a0", "SUM", [("v", t.BIGINT)]), call("__a1", "MAX", [("d", t.decimal(38, 18))]))
    outputs = (output("k", "k", t.VARCHAR), *(output(c.name, c.name, c.type) for c in calls))
    text = maintenance(AggregateStage("view", (core(TABLE),), outputs[:1], calls, outputs, ("k",)), "duckdb")
    again = text[text.index("__b AS (") : text.index("__w AS (")]
    assert "__a1" in again
    assert "__a0" not in again


def test_a_row_that_was_never_there_cannot_be_taken_away(duck: DuckDBPyConnection) -> None:
    """The whole batch fails: nothing of it may be stored."""
    calls = (call("__a0", "COUNT", []),)
    outputs = (output("k", "k", t.VARCHAR), output("n", "__a0", t.BIGINT))
    bench = RuleBench(duck, AggregateStage("view", (core(TABLE),), outputs[:1], calls, outputs, ("k",)))
    bench.epoch([({"id": 1, "k": "a"}, 1, 0)])
    with pytest.raises(duckdb.Error, match=NEGATIVE_WEIGHT):
        bench.epoch([({"id": 2, "k": "b"}, -1, 1), ({"id": 3, "k": "a"}, 1, 1)])
    assert bench.visible() == multiset([("a", 1)])


def test_a_sum_that_does_not_fit_is_an_error(duck: DuckDBPyConnection) -> None:
    """BIGINT never wraps, neither within a batch nor when merged."""
    calls = (call("__a0", "SUM", [("v", t.BIGINT)]),)
    outputs = (output("k", "k", t.VARCHAR), output("total", "__a0", t.BIGINT))
    bench = RuleBench(duck, AggregateStage("view", (core(TABLE),), outputs[:1], calls, outputs, ("k",)))
    bench.epoch([({"k": "a", "v": 2**63 - 1}, 1, 0)])
    with pytest.raises(duckdb.Error, match=r"range|verflow"):
        bench.epoch([({"k": "a", "v": 1}, 1, 0)])
    assert bench.visible() == multiset([("a", 2**63 - 1)])


def test_groups_with_a_null_key_can_be_left_out_and_empty_groups_kept(duck: DuckDBPyConnection) -> None:
    """ksqlDB's way, by the two switches of the stage."""
    calls = (call("__a0", "COUNT", []),)
    outputs = (output("k", "k", t.VARCHAR), output("n", "__a0", t.BIGINT))
    stage = AggregateStage(
        "view", (core(TABLE),), outputs[:1], calls, outputs, ("k",), drop_empty=False, skip_null_keys=True
    )
    bench = RuleBench(duck, stage)
    bench.epoch([({"id": 1, "k": "a"}, 1, 0), ({"id": 2, "k": None}, 1, 0)])
    bench.epoch([({"id": 1, "k": "a"}, -1, 1)])
    assert bench.visible() == multiset([("a", 0)])


def test_latest_keeps_maps_and_values_that_cannot_be_compared(duck: DuckDBPyConnection) -> None:
    calls = (
        call("__a0", "LATEST_BY_OFFSET", [("m", t.map_of(t.VARCHAR, t.INT))]),
        call("__a1", "LATEST_BY_OFFSET", [("m", t.map_of(t.VARCHAR, t.INT)), ("2", t.INT)]),
    )
    outputs = (output("k", "k", t.VARCHAR), *(output(c.name, c.name, c.type) for c in calls))
    bench = RuleBench(duck, AggregateStage("view", (core(LOG),), outputs[:1], calls, outputs, ("k",)))
    for offset, value in enumerate(([1], [2], [3])):
        row = {"k": "a", "m": dict(zip(["x"], value, strict=True)), "_offset": offset, "_partition": 0}
        bench.epoch(added([{**row, "_stream_time": BEGIN}]))
    assert bench.visible() == multiset([("a", {"x": 3}, [{"x": 2}, {"x": 3}])])
