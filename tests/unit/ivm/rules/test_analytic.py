"""Window functions, maintained per touched partition on DuckDB, equal the same functions over all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.rules.recompute import analytic_rule
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import AnalyticCall, AnalyticStage
from strandline.jobs.model.tables import Relation
from tests.support.examples import examples
from tests.support.rule_harness import RuleBench, core, multiset, output, parse

# An example runs a few epochs in a few milliseconds each: this many take some seconds.
EXAMPLES = examples(10)

COLUMNS = (("id", t.INT), ("k", t.VARCHAR), ("v", t.INT), ("s", t.VARCHAR), ("d", t.decimal(10, 2)))
TABLE = Relation("t", COLUMNS, "keyed", ("id",))
DOWN = (parse("v"), True, False)
UP = (parse("v"), False, True)

_tied = "PARTITION BY k ORDER BY v DESC NULLS LAST"
_total = f"{_tied}, id NULLS FIRST"
_rows = "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW"
_peers = "o.k IS NOT DISTINCT FROM n.k AND o.v IS NOT DISTINCT FROM n.v"

Call = tuple[str, tuple[str, ...], tuple[Any, ...], t.SqlType, str | None, str]
CALLS: dict[str, Call] = {
    # name: (function, arguments, order, type, frame, DuckDB's own words over all rows)
    "number": ("ROW_NUMBER", (), (DOWN,), t.BIGINT, None, f"row_number() OVER ({_total})"),
    "place": ("ROW_NUMBER", (), (), t.BIGINT, None, "row_number() OVER (PARTITION BY k ORDER BY id)"),
    "rank": ("RANK", (), (DOWN,), t.BIGINT, None, f"rank() OVER ({_tied})"),
    "rank_up": ("RANK", (), (UP,), t.BIGINT, None, "rank() OVER (PARTITION BY k ORDER BY v ASC NULLS FIRST)"),
    "equals": ("RANK", (), (), t.BIGINT, None, "1"),
    "dense": ("DENSE_RANK", (), (DOWN,), t.BIGINT, None, f"dense_rank() OVER ({_tied})"),
    "half": ("NTILE", ("2",), (DOWN,), t.BIGINT, None, f"ntile(2) OVER ({_total})"),
    "before": ("LAG", ("s",), (DOWN,), t.VARCHAR, None, f"lag(s) OVER ({_total})"),
    "after": ("LEAD", ("d", "2", "0"), (DOWN,), t.decimal(10, 2), None, f"lead(d, 2, 0.00) OVER ({_total})"),
    "first": ("FIRST_VALUE", ("s",), (DOWN,), t.VARCHAR, None, f"first_value(s) OVER ({_total})"),
    "last_peer": (
        *("LAST_VALUE", ("s",), (DOWN,), t.VARCHAR, None),
        f"(SELECT o.s FROM new_s o WHERE {_peers} ORDER BY id DESC LIMIT 1)",
    ),
    "last_of_all": (
        *("LAST_VALUE", ("s",), (), t.VARCHAR, None),
        "(SELECT o.s FROM new_s o WHERE o.k IS NOT DISTINCT FROM n.k ORDER BY id DESC LIMIT 1)",
    ),
    "last_of_two": ("LAST_VALUE", ("s",), (DOWN,), t.VARCHAR, _rows, f"last_value(s) OVER ({_total} {_rows})"),
    "last_known": (
        *("LAST_VALUE", ("s IGNORE NULLS",), (DOWN,), t.VARCHAR, _rows),
        f"last_value(s IGNORE NULLS) OVER ({_total} {_rows})",
    ),
    "count": ("COUNT", (), (), t.BIGINT, None, "count(*) OVER (PARTITION BY k)"),
    "running": ("COUNT", ("v",), (DOWN,), t.BIGINT, None, f"count(v) OVER ({_tied})"),
    "sum": ("SUM", ("v",), (DOWN,), t.BIGINT, None, f"sum(v) OVER ({_tied})"),
    "sum_of_two": ("SUM", ("d",), (DOWN,), t.decimal(20, 2), _rows, f"sum(d) OVER ({_total} {_rows})"),
    "mean": ("AVG", ("v",), (), t.DOUBLE, None, "avg(v) OVER (PARTITION BY k)"),
    "mean_of_two": ("AVG", ("d",), (DOWN,), t.DOUBLE, _rows, f"avg(d) OVER ({_total} {_rows})"),
    "least": ("MIN", ("s",), (DOWN,), t.VARCHAR, None, f"min(s) OVER ({_tied})"),
    "greatest": ("MAX", ("v",), (DOWN,), t.INT, _rows, f"max(v) OVER ({_total} {_rows})"),
}

values = st.fixed_dictionaries(
    {
        "k": st.sampled_from([None, "a", "b"]),
        "v": st.none() | st.integers(0, 3),
        "s": st.none() | st.sampled_from(["p", "q", "r"]),
        "d": st.none() | st.decimals(0, 100, places=2),
    }
)
operations = st.lists(st.tuples(st.integers(0, 5), st.none() | values), max_size=5)
histories = st.lists(operations, min_size=1, max_size=5)
"""Epochs of changes: a row by its id, or None where it goes."""


def _argument(text: str) -> exp.Expression:
    value = parse(text.removesuffix(" IGNORE NULLS"))
    return exp.IgnoreNulls(this=value) if text.endswith(" IGNORE NULLS") else value


def stage_of(*names: str, shown: str = "id k", keep: str | None = None, partition: str | None = "k") -> AnalyticStage:
    """The calls of those names, beside the `shown` columns."""
    calls = []
    for number, name in enumerate(names):
        function, arguments, order, kind, frame, _ = CALLS[name]
        calls.append(AnalyticCall(f"__w{number}", function, tuple(map(_argument, arguments)), order, kind, frame))
    return AnalyticStage(
        table="view",
        body=(replace(core(TABLE), key=("id",)),),
        partition=(output(partition, "k", t.VARCHAR),) if partition else (),
        calls=tuple(calls),
        outputs=(
            *(output(name, name, TABLE.type_of(name)) for name in shown.split()),
            *(output(name, call.name, call.type) for name, call in zip(names, calls, strict=True)),
        ),
        keep=parse(keep) if keep else None,
        key=("id",),
    )


def expected(*names: str, shown: str = "id k") -> str:
    """The same over all rows, in DuckDB's own words."""
    words = [f"{CALLS[name][-1]} AS {name}" for name in names]
    return f"SELECT {', '.join([*shown.split(), *words])} FROM new_s n"


def play(changes: Sequence[tuple[int, dict[str, Any] | None]], rows: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """Apply one epoch's operations; the rows after it."""
    for key, row in changes:
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = {"id": key, **row}
    return list(rows.values())


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories)
def test_every_function_equals_recomputation(duck: DuckDBPyConnection, epochs: list[Any]) -> None:
    """Rows come, change (also their partition and order) and go, with NULL in both, and ties."""
    tables = RuleBench(duck, stage_of(*CALLS), initial=True)
    rows: dict[int, dict[str, Any]] = {}
    for changes in epochs:
        tables.state(play(changes, rows))
        assert tables.visible() == multiset(tables.query(expected(*CALLS)))


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories, st.sampled_from(["number", "rank", "dense"]))
def test_the_best_of_each_partition(duck: DuckDBPyConnection, epochs: list[Any], function: str) -> None:
    """`keep`: a row that falls out of the best is gone, and comes back when a better one goes."""
    tables = RuleBench(duck, stage_of(function, keep="__w0 <= 2"), initial=True)
    rows: dict[int, dict[str, Any]] = {}
    for changes in epochs:
        tables.state(play(changes, rows))
        assert tables.visible() == multiset(tables.query(f"FROM ({expected(function)}) WHERE {function} <= 2"))


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories)
def test_keys_and_partitions_nobody_selected(duck: DuckDBPyConnection, epochs: list[Any]) -> None:
    tables = RuleBench(duck, stage_of("number", "sum", shown="s", partition="__k0"), initial=True)
    rows: dict[int, dict[str, Any]] = {}
    for changes in epochs:
        tables.state(play(changes, rows))
        assert tables.visible() == multiset(tables.query(expected("number", "sum", shown="s")))


@settings(max_examples=EXAMPLES, deadline=None)
@given(histories)
def test_without_a_partition_all_rows_are_one(duck: DuckDBPyConnection, epochs: list[Any]) -> None:
    tables = RuleBench(duck, stage_of("number", "sum", partition=None), initial=True)
    rows: dict[int, dict[str, Any]] = {}
    for changes in epochs:
        tables.state(play(changes, rows))
        words = expected("number", "sum").replace("PARTITION BY k ", "")
        assert tables.visible() == multiset(tables.query(words))


def test_rows_of_partitions_that_are_not_touched_are_not_settled(duck: DuckDBPyConnection) -> None:
    tables = RuleBench(duck, stage_of("number"), initial=True)
    rows = [{"id": number, "k": "ab"[number % 2], "v": number} for number in range(10)]
    tables.state(rows)
    tables.state([*rows, {"id": 10, "k": "a", "v": -1}])
    assert tables.query("SELECT id, number, __exists, __old IS NULL FROM settled") == [(10, 6, True, True)]


def test_a_row_that_moves_changes_both_partitions(duck: DuckDBPyConnection) -> None:
    tables = RuleBench(duck, stage_of("number", keep="__w0 <= 1"), initial=True)
    rows = [{"id": 1, "k": "a", "v": 10}, {"id": 2, "k": "a", "v": 20}, {"id": 3, "k": "b", "v": 9}]
    tables.state([*rows, {"id": 4, "k": "b", "v": 5}])
    tables.state([*rows[:2], {"id": 3, "k": "a", "v": 30}, {"id": 4, "k": "b", "v": 5}])
    assert tables.query("SELECT id, k, number, __exists, (__old).k FROM settled ORDER BY id") == [
        (2, None, None, False, "a"),
        (3, "a", 1, True, "b"),
        (4, "b", 1, True, None),
    ]


@pytest.mark.parametrize(
    "frame", ["RANGE BETWEEN 1 PRECEDING AND CURRENT ROW", "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW"]
)
def test_the_ends_of_a_frame_that_ties_leave_open_are_refused(frame: str) -> None:
    stage = stage_of("first")
    call = AnalyticCall("__w0", "FIRST_VALUE", (parse("s"),), (DOWN,), t.VARCHAR, frame)
    with pytest.raises(NotSupported, match="no definite value"):
        analytic_rule(
            AnalyticStage("view", stage.body, stage.partition, (call,), stage.outputs, None, stage.key),
            engine_of("duckdb"),
            None,
        )
