"""What a core can do beside joining: read a table as of an event's time, and repeat rows for the items of arrays."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import Core, Input, MapStage, Output
from strandline.jobs.model.tables import Relation
from tests.support.examples import examples
from tests.support.rule_harness import Changes, RuleBench, append_log, multiset, parse

BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
EVENTS = append_log((("x", t.INT),), "events")
PRICES = Relation(
    "prices__log",
    (*append_log((("id", t.INT), ("price", t.INT))).columns, ("_tombstone", t.BOOLEAN)),
    "append",
    ("id",),
)


def priced(join: str) -> MapStage:
    """Events with the price their product had at their time."""
    inputs = (
        Input("e", EVENTS),
        Input("p", PRICES, "left" if join == "left" else "inner", parse("e.x = p.id"), frozen=True, as_of=True),
    )
    columns = (
        Output("x", parse("e.x"), t.INT),
        Output("price", parse("p.price"), t.INT),
        Output("at", parse("e._timestamp"), t.TIMESTAMP),
    )
    return MapStage("view", (Core(inputs, None, columns),), ("x", "price", "at"))


def at(second: int, offset: int) -> dict[str, Any]:
    time = BEGIN + timedelta(seconds=second)
    return {"_timestamp": time, "_stream_time": time, "_partition": 0, "_offset": offset}


steps = st.lists(st.tuples(st.sampled_from(["event", "price"]), st.integers(0, 1), st.none() | st.integers(1, 9)))


@settings(max_examples=examples(12), deadline=None)
@given(steps, st.lists(st.integers(0, 20), max_size=3), st.sampled_from(["left", "inner"]))
def test_an_event_keeps_the_row_that_was_the_newest_at_its_time(
    duck: DuckDBPyConnection, history: list[tuple[str, int, int | None]], cuts: list[int], join: str
) -> None:
    """Whatever the batch cuts; a tombstone is no row; a price of a later time changes nothing that was joined."""
    bench = RuleBench(duck, priced(join))
    expected: list[tuple[Any, ...]] = []
    now: dict[int, int | None] = {}
    batches: list[list[tuple[str, dict[str, Any]]]] = [[]]
    for number, (kind, key, value) in enumerate(history):
        if number in cuts:
            batches.append([])
        place = at(number, number)
        if kind == "price":
            now[key] = value
            row = {"id": key, "price": value, "_tombstone": value is None, **place}
        else:
            row = {"x": key, **place}
            if now.get(key) is not None or join == "left":
                expected.append((key, now.get(key), place["_timestamp"]))
        batches[-1].append((kind, row))
    for batch in batches:
        changes: dict[str, Changes] = {}
        for alias, kind in (("e", "event"), ("p", "price")):
            rows = [(row, 1, 0) for each, row in batch if each == kind]
            if rows:
                changes[alias] = rows
        if changes:
            bench.epoch(changes)
    assert bench.visible() == multiset(expected)


def test_changes_of_a_frozen_input_alone_ask_for_nothing() -> None:
    text = maintenance(priced("left"), "duckdb", ["p"])
    assert "delta_p" not in text
    assert "WHERE FALSE" in text


@settings(max_examples=examples(10), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.none() | st.lists(st.none() | st.integers(0, 3), max_size=3),
            st.none() | st.lists(st.integers(0, 3), max_size=2),
        ),
        max_size=5,
    )
)
def test_rows_are_repeated_for_the_items_of_arrays_side_by_side(
    duck: DuckDBPyConnection, rows: list[tuple[list[int | None] | None, list[int] | None]]
) -> None:
    """The shorter array is padded with NULL; no items are no rows; `__item` counts from 1."""
    log = append_log((("p", t.array(t.INT)), ("q", t.array(t.INT))), "lists")
    expand = (Output("__e0", parse("l.p"), t.INT), Output("__e1", parse("l.q"), t.INT))
    columns = tuple(Output(name, parse(f'"{name}"'), t.INT) for name in ("__e0", "__e1", "__item"))
    core = Core((Input("l", log),), parse('"__e0" IS NULL OR "__e0" < 3'), columns, expand=expand)
    bench = RuleBench(duck, MapStage("view", (core,), ("__e0", "__e1", "__item")))
    bench.epoch([({"p": p, "q": q}, 1, 0) for p, q in rows])
    expected = [
        (a, b, number + 1)
        for p, q in rows
        for number in range(max(len(p or []), len(q or [])))
        for a in [(p or [])[number] if number < len(p or []) else None]
        for b in [(q or [])[number] if number < len(q or []) else None]
        if a is None or a < 3
    ]
    assert bench.visible() == multiset(expected)
