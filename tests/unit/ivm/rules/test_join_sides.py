"""Joins of every kind, maintained from the changes of any of their inputs on DuckDB, equal the join computed anew."""

from __future__ import annotations

from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import Core, Input, JoinType, MapStage, Output
from strandline.jobs.model.tables import Relation
from tests.support.examples import examples
from tests.support.rule_harness import Changes, RuleBench, append_log, multiset, parse

# Some ten milliseconds each, for every shape of join.
EXAMPLES = examples(3)

COLUMNS = (("id", t.INT), ("x", t.INT), ("v", t.INT))
TABLES = {name: Relation(name, COLUMNS, "keyed", ("id",)) for name in ("a", "b", "c")}
LOGS = {name: append_log(COLUMNS, name) for name in ("a", "b", "c")}

Operations = list[tuple[str, int, tuple[int | None, int | None] | None]]

# A small domain, so that rows meet, move between join keys, and go.
values = st.tuples(st.none() | st.integers(0, 2), st.none() | st.integers(0, 2))
operations = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.none() | values), max_size=6), max_size=6
)


def joined(*inputs: Input, where: str | None = None) -> MapStage:
    """All columns of all inputs that give some, the keys hidden."""
    shown = [each for each in inputs if each.join not in ("semi", "anti")]
    columns = [
        Output(f"{each.alias}_{name}", parse(f"{each.alias}.{name}"), kind) for each in shown for name, kind in COLUMNS
    ]
    columns += [Output(f"__k_{each.alias}", parse(f"{each.alias}.id"), t.INT) for each in shown]
    key = tuple(f"__k_{each.alias}" for each in shown)
    core = Core(inputs, parse(where) if where else None, tuple(columns), key)
    return MapStage("view", (core,), tuple(c.name for c in columns if not c.name.startswith("__")), key)


def take(alias: str, join: JoinType = "inner", on: str | None = None, relation: str | None = None) -> Input:
    return Input(alias, TABLES[relation or alias], join, parse(on) if on else None)


class Tables:
    """Rows of keyed inputs, and the changes that operations make of them, several per key and batch."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        self.version = 0

    def changes(self, batch: Operations) -> dict[str, list[tuple[dict[str, Any], int, int]]]:
        made: dict[str, list[tuple[dict[str, Any], int, int]]] = {}
        for name, key, value in batch:
            self.version += 1
            changes = made.setdefault(name, [])
            if (name, key) in self.rows:
                changes.append((self.rows.pop((name, key)), -1, self.version))
            if value is not None:
                self.rows[name, key] = {"id": key, "x": value[0], "v": value[1]}
                changes.append((self.rows[name, key], 1, self.version))
        return made


def run(duck: DuckDBPyConnection, stage: MapStage, epochs: list[Operations], recomputed: str, initial: bool) -> None:
    bench, tables = RuleBench(duck, stage, initial=initial), Tables()
    names = {each.alias: each.relation.name for each in stage.body[0].inputs}
    for batch in epochs:
        made = tables.changes(batch)
        changes: dict[str, Changes] = {alias: made[name] for alias, name in names.items() if name in made}
        if changes or bench.initial:
            bench.epoch(changes)
        assert bench.visible() == multiset(bench.query(recomputed))


SHAPES = {
    "inner": (joined(take("a"), take("b", "inner", "a.x = b.x")), "FROM new_a a JOIN new_b b ON a.x = b.x"),
    "inner, filtered": (
        joined(take("a"), take("b", "inner", "a.x = b.x"), where="a.v < b.v"),
        "FROM new_a a JOIN new_b b ON a.x = b.x WHERE a.v < b.v",
    ),
    "self": (
        joined(take("a"), take("b", "inner", "a.x = b.id", relation="a")),
        "FROM new_a a JOIN new_a b ON a.x = b.id",
    ),
    "left": (joined(take("a"), take("b", "left", "a.x = b.x")), "FROM new_a a LEFT JOIN new_b b ON a.x = b.x"),
    "left, more than equality": (
        joined(take("a"), take("b", "left", "a.x = b.x AND a.v < b.v"), where="b.v IS NULL OR b.v > 0"),
        "FROM new_a a LEFT JOIN new_b b ON a.x = b.x AND a.v < b.v WHERE b.v IS NULL OR b.v > 0",
    ),
    "right": (joined(take("a"), take("b", "right", "a.x = b.x")), "FROM new_a a RIGHT JOIN new_b b ON a.x = b.x"),
    "full": (joined(take("a"), take("b", "full", "a.x = b.x")), "FROM new_a a FULL JOIN new_b b ON a.x = b.x"),
    "three": (
        joined(take("a"), take("b", "inner", "a.x = b.x"), take("c", "inner", "a.v = c.v")),
        "FROM new_a a JOIN new_b b ON a.x = b.x JOIN new_c c ON a.v = c.v",
    ),
    "left of left": (
        joined(take("a"), take("b", "left", "a.x = b.x"), take("c", "left", "b.v = c.v")),
        "FROM new_a a LEFT JOIN new_b b ON a.x = b.x LEFT JOIN new_c c ON b.v = c.v",
    ),
    "inner of left": (
        joined(take("a"), take("b", "left", "a.x = b.x"), take("c", "inner", "a.v = c.v")),
        "FROM new_a a LEFT JOIN new_b b ON a.x = b.x JOIN new_c c ON a.v = c.v",
    ),
    "full of inner": (
        joined(take("a"), take("b", "inner", "a.x = b.x"), take("c", "full", "a.v = c.v")),
        "FROM new_a a JOIN new_b b ON a.x = b.x FULL JOIN new_c c ON a.v = c.v",
    ),
    "right of left": (
        joined(take("a"), take("b", "left", "a.x = b.x"), take("c", "right", "b.v = c.v")),
        "FROM new_a a LEFT JOIN new_b b ON a.x = b.x RIGHT JOIN new_c c ON b.v = c.v",
    ),
    "full of full": (
        joined(take("a"), take("b", "full", "a.x = b.x"), take("c", "full", "b.v = c.v")),
        "FROM new_a a FULL JOIN new_b b ON a.x = b.x FULL JOIN new_c c ON b.v = c.v",
    ),
    "left of full": (
        joined(take("a"), take("b", "full", "a.x = b.x"), take("c", "left", "b.v = c.v")),
        "FROM new_a a FULL JOIN new_b b ON a.x = b.x LEFT JOIN new_c c ON b.v = c.v",
    ),
    "semi": (joined(take("a"), take("b", "semi", "a.x = b.x")), "FROM new_a a SEMI JOIN new_b b ON a.x = b.x"),
    "anti": (
        joined(take("a"), take("b", "anti", "a.x = b.x OR b.x IS NULL")),
        "FROM new_a a ANTI JOIN new_b b ON a.x = b.x OR b.x IS NULL",
    ),
    "semi of join": (
        joined(take("a"), take("b", "inner", "a.x = b.x"), take("c", "semi", "b.v = c.v")),
        "FROM new_a a JOIN new_b b ON a.x = b.x SEMI JOIN new_c c ON b.v = c.v",
    ),
    "everything with one row": (joined(take("a"), take("b", "left")), "FROM new_a a LEFT JOIN new_b b ON TRUE"),
}


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=EXAMPLES, deadline=None)
@given(operations, st.booleans())
def test_a_join_of_tables_equals_the_join_computed_anew(
    duck: DuckDBPyConnection, shape: str, epochs: list[Operations], initial: bool
) -> None:
    """Rows of all inputs come, change, move to another join key and go, also within one epoch."""
    stage, clause = SHAPES[shape]
    shown = ", ".join(column.replace("_", ".", 1) for column in stage.visible)
    run(duck, stage, epochs, f"SELECT {shown} {clause}", initial)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), values), max_size=6), max_size=5))
def test_a_join_of_streams_only_appends(duck: DuckDBPyConnection, batches: list[list[Any]]) -> None:
    """Every pair once, whichever side comes first, and no relation is asked for changes when it has none."""
    inputs = (Input("a", LOGS["a"]), Input("b", LOGS["b"], "inner", parse("a.x = b.x")))
    columns = tuple(Output(f"{i.alias}_v", parse(f"{i.alias}.v"), t.INT) for i in inputs)
    stage = MapStage("view", (Core(inputs, None, columns),), ("a_v", "b_v"))
    bench = RuleBench(duck, stage)
    for batch in batches:
        made: dict[str, Changes] = {}
        for name in {name for name, _ in batch}:
            made[name] = [({"x": x, "v": v}, 1, 0) for each, (x, v) in batch if each == name]
        if made:
            bench.epoch(made)
        assert bench.visible() == multiset(bench.query("SELECT a.v, b.v FROM new_a a JOIN new_b b ON a.x = b.x"))
    assert "delta_b" not in maintenance(stage, "duckdb", ["a"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(operations)
def test_union_all_keeps_every_row_of_every_branch(duck: DuckDBPyConnection, epochs: list[Operations]) -> None:
    """Equal rows of two branches are two rows: the branch is part of the key."""

    def branch(number: int, alias: str) -> Core:
        columns = (
            Output("x", parse(f"{alias}.x"), t.INT),
            Output("__branch", parse(str(number)), t.INT),
            Output("__k0", parse(f"{alias}.id"), t.INT),
        )
        return Core((take(alias),), None, columns, ("__branch", "__k0"))

    stage = MapStage("view", (branch(0, "a"), branch(1, "b")), ("x",), ("__branch", "__k0"))
    run_union = "SELECT x FROM new_a UNION ALL SELECT x FROM new_b"
    bench, tables = RuleBench(duck, stage), Tables()
    for batch in epochs:
        changes = {name: made for name, made in tables.changes(batch).items() if name in "ab"}
        if changes:
            bench.epoch(changes)
        assert bench.visible() == multiset(bench.query(run_union))
