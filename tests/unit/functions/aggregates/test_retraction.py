"""Every aggregate function, over tables whose rows come, change and go, equals the function over the rows present."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateCall, AggregateStage, Core, Input, Output
from strandline.jobs.model.tables import EVENT_ORDER, META_COLUMNS, Relation
from tests.support.aggregate_cases import BEGIN, CALLS, COLUMNS, ORDERED, called, rounded, values
from tests.support.examples import AT_LENGTH, examples
from tests.support.rule_harness import RuleBench, core, multiset, output, parse

# Each part is one query of a dozen calls, of which DuckDB plans some four a second; an example runs it a few times.
PARTS = [list(CALLS)[start::4] for start in range(4)]
EXAMPLES = examples(3)
_AT_ONCE = 3 if AT_LENGTH else 8
"""Rows that go from a group in one epoch."""
SEEDS = examples(1)

PLACE = tuple((name, dict(META_COLUMNS)[name]) for name in EVENT_ORDER)
TABLE = Relation("t", (("id", t.INT), *COLUMNS), "keyed", ("id",), PLACE)
NAMES = Relation("names", (("k", t.VARCHAR), ("name", t.VARCHAR)), "keyed", ("k",))

VALUES: dict[str, list[Any]] = {
    "k": [None, "a", "b"],
    "v": [None, -2, 0, 3, 2**31 - 1],
    "s": [None, "", "p", "q", "ü"],
    "d": [None, Decimal("0.5"), Decimal("-3.000000000000000001"), Decimal(10**9)],
    "x": [None, 0.0, 0.1, -2.5, 7.25],
    "y": [None, b"", b"a", b"\xff"],
    "m": [None, {}, {"a": 1}, {"a": None, "b": 2}],
    "l": [None, [], [1, 2], [None, 3]],
    "z": [None, 1.0, 2.0, 4.0],
}

Operation = tuple[int, dict[str, Any] | None, int]
operations = st.lists(st.tuples(st.integers(0, 4), st.none() | values, st.integers(0, 3)), max_size=6)
epochs_of = st.lists(operations, max_size=4)


def some_operations(chance: random.Random, count: int) -> list[Operation]:
    """Rows that come, change and go; enough of them to fill groups."""
    made: list[Operation] = []
    for _ in range(count):
        row = {name: chance.choice(values) for name, values in VALUES.items()}
        made.append((chance.randint(0, 19), row if chance.random() < 0.7 else None, chance.randint(0, 9)))
    return made


class Table:
    """The rows of `TABLE` as upserts and deletes leave them; each has the place of the event that wrote it."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}
        self.offset = 0

    def changes(self, operations: list[Operation]) -> list[tuple[dict[str, Any], int, int]]:
        """(row, weight, commit) of every change, in order."""
        made = []
        for key, value, second in operations:
            self.offset += 1
            if key in self.rows:
                made.append((self.rows.pop(key), -1, self.offset))
            if value is not None:
                place = {"_partition": key % 2, "_offset": self.offset, "_stream_time": BEGIN + timedelta(0, second)}
                self.rows[key] = {"id": key, **value, **place}
                made.append((self.rows[key], 1, self.offset))
        return made


def body(*, places: bool) -> Core:
    """All columns of `TABLE`, with or without the rows' places in the order of events."""
    columns = (*COLUMNS, *(PLACE if places else ()))
    return core(TABLE, None, [output(name, f'"{name}"', kind) for name, kind in columns])


def stage_of(source: Core, calls: list[AggregateCall], names: list[str], **options: Any) -> AggregateStage:
    group = output("k", "k", t.VARCHAR)
    shown = [output(name, rounded(call.name, name), call.type) for name, call in zip(names, calls, strict=True)]
    return AggregateStage("view", (source,), (group,), tuple(calls), (group, *shown), ("k",), **options)


def expected(bench: RuleBench, names: list[str], rows: str, where: str = "TRUE") -> Counter[tuple[Any, ...]]:
    """The view by its definition, group by group: the calls see only the rows where the condition holds."""
    found = []
    for (key,) in bench.query(f"SELECT DISTINCT k FROM {rows}"):
        same = "k IS NULL" if key is None else f"k = '{key}'"
        shown = ", ".join(rounded(CALLS[name][2], name) for name in names)
        found += [(key, *row) for row in bench.query(f"SELECT {shown} FROM {rows} WHERE {same} AND ({where})")]
    return multiset(found)


@pytest.mark.parametrize("names", PARTS, ids=",".join)
@settings(max_examples=EXAMPLES, deadline=None)
@given(epochs=epochs_of)
def test_rows_that_change_and_go(duck: DuckDBPyConnection, names: list[str], epochs: list[list[Operation]]) -> None:
    """Rows are inserted, replaced (also into another group) and deleted, several times within one epoch."""
    bench = RuleBench(duck, stage_of(body(places=True), [called(f"__a{i}", n) for i, n in enumerate(names)], names))
    table = Table()
    for operations in epochs:
        bench.epoch(table.changes(operations))
        assert bench.visible() == expected(bench, names, "new_s")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_function_over_groups_that_shrink_row_by_row(duck: DuckDBPyConnection, seed: int) -> None:
    """Larger groups than an example has, in one view; in the end they are taken away a few rows at a time."""
    names = list(CALLS)
    bench = RuleBench(duck, stage_of(body(places=True), [called(f"__a{i}", n) for i, n in enumerate(names)], names))
    chance, table = random.Random(seed), Table()
    for operations in [some_operations(chance, 30), some_operations(chance, 8)]:
        bench.epoch(table.changes(operations))
        assert bench.visible() == expected(bench, names, "new_s")
    left = list(table.rows)
    chance.shuffle(left)
    while left:
        bench.epoch(table.changes([(key, None, 0) for key in left[:_AT_ONCE]]))
        del left[:_AT_ONCE]
        assert bench.visible() == expected(bench, names, "new_s")


@pytest.mark.parametrize("names", PARTS, ids=",".join)
@settings(max_examples=EXAMPLES, deadline=None)
@given(epochs=epochs_of)
def test_a_filter_clause_hides_rows_that_come_and_go(
    duck: DuckDBPyConnection, names: list[str], epochs: list[list[Operation]]
) -> None:
    """A group whose rows are all hidden still is one; its calls give what they give over no rows."""
    condition = parse("v > 0")
    calls = [called(f"__a{i}", name, filter=condition) for i, name in enumerate(names)]
    bench = RuleBench(duck, stage_of(body(places=True), calls, names))
    table = Table()
    for operations in epochs:
        bench.epoch(table.changes(operations))
        assert bench.visible() == expected(bench, names, "new_s", "v > 0")


@pytest.mark.parametrize("names", PARTS, ids=",".join)
@settings(max_examples=EXAMPLES, deadline=None)
@given(
    epochs=st.lists(st.tuples(operations, st.dictionaries(st.sampled_from("ab"), st.sampled_from("xy"))), max_size=3)
)
def test_rows_that_come_and_go_again_within_one_batch(
    duck: DuckDBPyConnection, names: list[str], epochs: list[tuple[list[Operation], dict[str, str]]]
) -> None:
    """Both sides of a join change: its terms give rows in one step and take them back in the next."""
    columns = [Output(n, parse(f's."{n}"'), kind) for n, kind in (*COLUMNS[1:], *PLACE)]
    joined = Core(
        (Input("s", TABLE), Input("n", NAMES, on=parse("s.k = n.k"))),
        None,
        (output("k", "n.name", t.VARCHAR), *columns),
        ("id",),
    )
    calls = [called(f"__a{i}", name) for i, name in enumerate(names)]
    bench = RuleBench(duck, stage_of(joined, calls, names))
    table, named = Table(), dict[str, str]()
    for version, (operations, renamed) in enumerate(epochs):
        other = [({"k": key, "name": named[key]}, -1, version) for key in renamed if key in named]
        named |= renamed
        other += [({"k": key, "name": name}, 1, version) for key, name in renamed.items()]
        bench.epoch({"s": table.changes(operations), "n": other})
        rows = "(SELECT s.* REPLACE (n.name AS k) FROM new_s s JOIN new_n n ON s.k = n.k)"
        assert bench.visible() == expected(bench, names, rows)


@settings(max_examples=EXAMPLES, deadline=None)
@given(epochs=epochs_of)
def test_rows_that_are_no_events_are_listed_in_the_order_of_their_values(
    duck: DuckDBPyConnection, epochs: list[list[Operation]]
) -> None:
    names = ["all", "set", "sets"]
    assert set(names) <= ORDERED
    bench = RuleBench(duck, stage_of(body(places=False), [called(f"__a{i}", n) for i, n in enumerate(names)], names))
    table = Table()
    for operations in epochs:
        bench.epoch(table.changes(operations))
        sorted_lists = (
            "SELECT k, list(s ORDER BY s NULLS FIRST), list(DISTINCT s ORDER BY s NULLS FIRST),"
            " list(DISTINCT v ORDER BY v NULLS FIRST) FROM new_s GROUP BY k"
        )
        assert bench.visible() == multiset(bench.query(sorted_lists))


@pytest.mark.parametrize("names", PARTS, ids=",".join)
def test_a_group_that_is_kept_when_its_rows_are_gone_shows_what_calls_give_over_no_rows(
    duck: DuckDBPyConnection, names: list[str]
) -> None:
    calls = [called(f"__a{i}", name) for i, name in enumerate(names)]
    kept = replace(stage_of(body(places=True), calls, names), drop_empty=False)
    bench = RuleBench(duck, kept)
    table = Table()
    row = {"k": "a", "v": 1, "s": "p", "x": 0.5, "y": b"a", "m": {"a": 1}, "l": [1], "z": 1.0}
    bench.epoch(table.changes([(1, row, 0), (2, {**row, "x": 1.5, "z": 2.0}, 0)]))
    bench.epoch(table.changes([(1, None, 0), (2, None, 0)]))
    shown = ", ".join(rounded(CALLS[name][2], name) for name in names)
    assert bench.visible() == multiset([("a", *bench.query(f"SELECT {shown} FROM new_s")[0])])
    bench.epoch(table.changes([(1, row, 1)]))
    assert bench.visible() == expected(bench, names, "new_s")
