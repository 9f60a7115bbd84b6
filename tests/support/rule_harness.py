"""Runs maintenance rules on DuckDB as a refresh does on Spark: epoch after epoch over a stored table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.ivm.refresh.runtime import maintain
from strandline.jobs.ivm.rules.stored import consolidated, stored_columns
from strandline.jobs.model.stage import AggregateCall, Core, Input, MapStage, Output, Stage, inputs_of
from strandline.jobs.model.stage_columns import visible_columns
from strandline.jobs.model.tables import META_COLUMNS, Relation
from strandline.jobs.model.types import SqlType
from strandline.state_store.commits import CommitRecord
from strandline.state_store.tablespec import VERSION, WEIGHT
from tests.support.memory_runtime import ALWAYS, MemoryRuntime, MemoryTable
from tests.support.stage_rule import StageRule

Row = Mapping[str, Any]
Changes = Sequence[tuple[Row, int, int]]
"""(row, weight, commit version) each."""


def parse(text: str) -> exp.Expression:
    """An expression over plain column names."""
    made = sqlglot.parse_one(text, dialect="duckdb")
    assert isinstance(made, exp.Expression)
    return made


def output(name: str, text: str, kind: SqlType) -> Output:
    return Output(name, parse(text), kind)


def call(name: str, function: str, arguments: Sequence[tuple[str, SqlType]], **options: Any) -> AggregateCall:
    """An aggregate call as the planner makes it: bound by the function itself."""
    expressions = tuple(parse(text) for text, _ in arguments)
    types = tuple(kind for _, kind in arguments)
    bound = FUNCTIONS[function].bind(expressions, types, distinct=bool(options.get("distinct")))
    return AggregateCall(
        name, function, bound.arguments, bound.argument_types, bound.type, parameters=bound.parameters, **options
    )


def comparable(value: Any) -> Any:
    """A value that hashes; doubles at nine digits, since sums may be added up in any order."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else float(f"{value:.9g}") + 0.0
        case Decimal():
            return value.normalize()
        case dict():
            return tuple(sorted(((comparable(k), comparable(v)) for k, v in value.items()), key=repr))
        case tuple() if hasattr(value, "asDict"):  # a STRUCT of Spark's
            return comparable(value.asDict())
        case list():
            return tuple(comparable(v) for v in value)
        case _:
            return value


def multiset(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(comparable(value) for value in row) for row in rows)


def core(relation: Relation, where: str | None = None, columns: Sequence[Output] | None = None) -> Core:
    """A core over one relation, with the alias `s`: all its columns, or those given as expressions over plain names."""
    given = columns if columns is not None else [output(n, f'"{n}"', kind) for n, kind in relation.columns]
    placed = tuple(Output(each.name, _placed(each.expression), each.type) for each in given)
    return Core((Input("s", relation),), _placed(parse(where)) if where else None, placed, ())


def mapped(
    relation: Relation,
    where: str | None,
    outputs: Sequence[Output],
    key: tuple[str, ...] = (),
    hidden: Sequence[Output] = (),
    table: str = "view",
) -> MapStage:
    """Filter and projection of one relation, as the planner makes it."""
    one = replace(core(relation, where, [*outputs, *hidden]), key=key)
    return MapStage(table, (one,), tuple(each.name for each in outputs), key)


def _placed(expression: exp.Expression) -> exp.Expression:
    made = expression.copy()
    for node in made.find_all(exp.Column):
        node.set("table", exp.to_identifier("s"))
    return made


class RuleBench:
    """A stage, the rows of its inputs, and its stored table, all in one DuckDB.

    `epoch` runs the rule over changes as a refresh does (`tests.support.memory_runtime`), which checks that each key is
    settled once and that `__old` is what is stored.

    Tables: `new_<alias>` and `old_<alias>` as in the rule; `history` all changes of the first input ever; `self_old`
    the stored rows.

    Args:
        db: where the tables are made, in place of those of the bench before: to open one costs as much as an epoch.
        initial: the first epoch is a first refresh: all rows at once.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, stage: Stage, *, initial: bool = False) -> None:
        self.stage = stage
        self.texts = StageRule(stage)
        self.db = db
        self.inputs = {each.alias: each.relation for each in inputs_of(stage)}
        self.names = [name for name, _ in visible_columns(stage)]
        self.initial = initial
        self.rows: list[Row] = []
        self.epochs = 0
        for alias, relation in self.inputs.items():
            columns = ", ".join(f'"{name}" {kind.duckdb()}' for name, kind in (*relation.columns, *relation.hidden))
            for table in (f"old_{alias}", f"new_{alias}"):
                self.db.execute(f'CREATE OR REPLACE TABLE "{table}" ({columns})')
            self.db.execute(f'CREATE OR REPLACE TABLE "delta_{alias}" ({columns}, {WEIGHT} BIGINT)')
            self.db.execute(f'CREATE OR REPLACE TABLE "raw_{alias}" ({columns}, {WEIGHT} BIGINT, {VERSION} BIGINT)')
        first = next(iter(self.inputs))
        self.db.execute(f'CREATE OR REPLACE TABLE history AS SELECT * FROM "raw_{first}"')
        self.table = MemoryTable(db, "main", "stored", stored_columns(stage))
        self.db.execute(f"CREATE OR REPLACE VIEW self_old AS {self.table.at(ALWAYS - 1)}")

    def epoch(self, changes: Changes | Mapping[str, Changes]) -> None:
        """Take in changes: (row, weight, commit version) each, of the only input or by alias."""
        given = changes if isinstance(changes, Mapping) else {next(iter(self.inputs)): changes}
        for alias in self.inputs:
            self._take_in(alias, given.get(alias, ()))
        moved = None if self.initial else [alias for alias in self.inputs if alias in given]
        self.initial = False
        since, self.epochs = self.epochs, self.epochs + 1
        runtime = MemoryRuntime(self.stage, self.table, _table_of_side, since)
        maintain(runtime, self.stage, self.rule(moved), CommitRecord(epoch=self.epochs))

    def rule(self, moved: Sequence[str] | None) -> str:
        """The text of an epoch in which these inputs moved; None: the first refresh."""
        return self.texts.text(moved)

    def state(self, rows: Sequence[Row]) -> None:
        """Apply what makes these rows, in whatever order, of those that the only input has."""
        before, self.rows = self.rows, list(rows)
        gone = [(row, -1, 0) for row in before if row not in self.rows]
        self.epoch(gone + [(row, 1, 0) for row in self.rows if row not in before])

    def _take_in(self, alias: str, batch: Changes) -> None:
        """The raw changes of one input, netted, as `delta_…`, and its rows before and after them."""
        relation = self.inputs[alias]
        names = [name for name, _ in (*relation.columns, *relation.hidden)]
        columns = ", ".join(f'"{name}"' for name in names)
        delta, old, new, raw = (f'"{side}_{alias}"' for side in ("delta", "old", "new", "raw"))
        for table in (delta, old, raw):
            self.db.execute(f"DELETE FROM {table}")
        insert(self.db, raw, [[*(row.get(n) for n in names), weight, at] for row, weight, at in batch])
        if alias == next(iter(self.inputs)):
            self.db.execute(f"INSERT INTO history FROM {raw}")
        net = (
            consolidated(relation, raw, engine_of("duckdb"))
            if relation.storage == "keyed"
            else f"SELECT * EXCLUDE (_commit_version) FROM {raw}"
        )
        self.db.execute(f"INSERT INTO {delta} SELECT {columns}, __weight FROM ({net})")
        self.db.execute(f"INSERT INTO {old} FROM {new}")
        if relation.storage == "keyed":
            same = " AND ".join(f'd."{key}" IS NOT DISTINCT FROM n."{key}"' for key in relation.key) or "TRUE"
            self.db.execute(f"DELETE FROM {new} n WHERE EXISTS (FROM {delta} d WHERE {same} AND __weight < 0)")
        self.db.execute(f"INSERT INTO {new} SELECT {columns} FROM {delta} WHERE __weight > 0")

    def visible(self) -> Counter[tuple[Any, ...]]:
        """The rows a reader sees."""
        names = ", ".join(f'"{name}"' for name in self.names)
        return multiset(self.query(f"SELECT {names} FROM self_old"))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()


def _table_of_side(side: str, each: Input) -> str:
    return f'SELECT * FROM "{side}_{each.alias}"'


def insert(db: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """All rows in one statement: a statement costs more than a row."""
    if rows:
        values = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        db.execute(f"INSERT INTO {table} VALUES {values}", [value for row in rows for value in row])


def append_log(columns: Sequence[tuple[str, SqlType]], name: str = "events") -> Relation:
    """An event log with these columns and the meta columns that order events."""
    return Relation(name, (*columns, *META_COLUMNS), "append")
