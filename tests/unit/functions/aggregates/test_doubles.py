"""SUM and AVG of DOUBLE over values that come and go, at the ends of the type."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from strandline.jobs.functions.aggregates import linear
from strandline.jobs.ivm.plan.builder import digest_of
from strandline.jobs.ivm.rules.stored import form_of, marked, unmarked
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateStage
from strandline.jobs.model.tables import Relation
from tests.support.rule_harness import RuleBench, call, core, output

TABLE = Relation("t", (("id", t.INT), ("x", t.DOUBLE)), "keyed", ("id",))
INF, NAN, MOST = math.inf, math.nan, 1.7976931348623157e308


def stage() -> AggregateStage:
    calls = (call("__a0", "SUM", [("x", t.DOUBLE)]), call("__a1", "AVG", [("x", t.DOUBLE)]))
    shown = (output("s", "__a0", t.DOUBLE), output("a", "__a1", t.DOUBLE))
    return AggregateStage("view", (core(TABLE),), (), calls, shown, ())


def sums(duck: DuckDBPyConnection, *epochs: Sequence[tuple[float | None, int]]) -> list[tuple[float | None, ...]]:
    """What the view shows after each epoch; an epoch is values that come (weight 1) and go (−1)."""
    bench, seen = RuleBench(duck, stage()), []
    ids: dict[str, list[int]] = {}
    made = 0
    for epoch in epochs:
        changes = []
        for version, (value, weight) in enumerate(epoch):
            if weight > 0:
                made += 1
                ids.setdefault(repr(value), []).append(made)
            changes.append(({"id": ids[repr(value)].pop() if weight < 0 else made, "x": value}, weight, version))
        bench.epoch(changes)
        (row,) = bench.query("SELECT s, a FROM self_old")
        seen.append(row)
    return seen


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=1e-12)


CASES: dict[str, tuple[Any, float | None, int]] = {
    "a large value goes": ([[(1.0, 1), (5.0, 1), (1e17, 1)], [(1e17, -1), (1.0, 1)]], 7.0, 3),
    "it comes and goes at once": ([[(1.0, 1), (5.0, 1)], [(1e17, 1), (1e17, -1)]], 6.0, 2),
    "slowly, in many steps": (
        [[(0.1, 1)], *([(value, 1)] for value in (1e15, 1e12, 1e9)), *([(v, -1)] for v in (1e9, 1e12, 1e15))],
        0.1,
        1,
    ),
    "infinity": ([[(1.0, 1), (INF, 1)]], INF, 2),
    "infinity goes": ([[(1.0, 1), (INF, 1)], [(INF, -1)]], 1.0, 1),
    "both infinities": ([[(INF, 1), (-INF, 1)]], NAN, 2),
    "one of both goes": ([[(INF, 1), (-INF, 1)], [(INF, -1)]], -INF, 1),
    "NaN goes": ([[(NAN, 1), (2.0, 1)], [(NAN, -1)]], 2.0, 1),
    "a sum too large": ([[(MOST, 1), (MOST, 1)]], INF, 2),
    "no longer too large": ([[(MOST, 1), (MOST, 1)], [(MOST, -1)]], MOST, 1),
    "a part too large": ([[(1e308, 1), (1e308, 1)], [(-1e308, 1)]], 1e308, 3),
    "subnormal beside large": ([[(5e-324, 1), (1e308, 1)], [(1e308, -1)]], 5e-324, 1),
    "nothing is left": ([[(1e17, 1), (None, 1)], [(1e17, -1)]], None, 0),
    "zeros": ([[(0.0, 1), (0.0, 1), (-0.0, 1)], [(0.0, -1)]], 0.0, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_sum_is_that_of_the_values_that_are_there(duck: DuckDBPyConnection, name: str) -> None:
    epochs, total, count = CASES[name]
    found, mean = sums(duck, *epochs)[-1]
    assert same(found, total), found
    assert same(mean, None if total is None else total / count), mean


def test_values_that_are_replaced_for_long_keep_their_digits(duck: DuckDBPyConnection) -> None:
    """No group loses nine digits however often its rows are replaced: it is computed again in between."""
    epochs = [[(0.1, 1), (1e7, 1)]]
    for step in range(60):
        epochs.append([(1e7 + step, -1), (1e7 + step + 1, 1)])
    epochs.append([(1e7 + 60, -1)])
    found, _ = sums(duck, *epochs)[-1]
    assert found == pytest.approx(0.1, rel=1e-9)


def test_the_form_of_the_accumulator_is_marked() -> None:
    """A table of the former form has commits without the mark, and a shared one another name."""
    assert form_of((stage(),)) == linear.DOUBLES_FORM
    assert marked("0123456789abcdef", (stage(),)) == "0123456789abcdef.2"
    assert unmarked("0123456789abcdef.2") == unmarked("0123456789abcdef") == "0123456789abcdef"
    plain = AggregateStage(
        "view", (core(TABLE),), (), (call("__a0", "COUNT", []),), (output("s", "__a0", t.BIGINT),), ()
    )
    assert marked("0123456789abcdef", (plain,)) == "0123456789abcdef"
    assert digest_of(plain) == digest_of(plain)
