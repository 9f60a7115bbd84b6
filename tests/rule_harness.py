"""Runs maintenance rules on DuckDB as a refresh does on Spark: epoch after epoch over a stored table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from jobs.ivm.aggregates import FUNCTIONS
from jobs.ivm.rules import maintenance
from jobs.ivm.stage import AggregateCall, AggregateStage, LatestStage, MapStage, Output, Relation
from jobs.ivm.storage import key_names, key_path, kind_of, state_type
from jobs.sql.model import META_COLUMNS
from jobs.sql.types import SqlType
from state_store.tablespec import STATE

Row = Mapping[str, Any]


def parse(text: str) -> exp.Expression:
    """An expression over plain column names."""
    return sqlglot.parse_one(text, dialect="duckdb")


def output(name: str, text: str, kind: SqlType) -> Output:
    return Output(name, parse(text), kind)


def call(name: str, function: str, arguments: Sequence[tuple[str, SqlType]], **options: Any) -> AggregateCall:
    """An aggregate call as the planner makes it: bound by the function itself."""
    expressions = tuple(parse(text) for text, _ in arguments)
    bound = FUNCTIONS[function].bind(expressions, tuple(kind for _, kind in arguments))
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
            return tuple(sorted((comparable(k), comparable(v)) for k, v in value.items()))
        case list():
            return tuple(comparable(v) for v in value)
        case _:
            return value


def multiset(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(comparable(value) for value in row) for row in rows)


class RuleBench:
    """A stage, the rows of its input so far, and its stored table, all in one DuckDB.

    `epoch` runs the rule over a batch of changes and applies what it settles: touched keys are replaced. It checks by
    itself that each key is settled once and that `__old` is what is stored.

    Args:
        db: where the tables are made, in place of those of the bench before: to open one costs as much as an epoch.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, stage: MapStage | LatestStage | AggregateStage) -> None:
        self.stage = stage
        self.db = db
        self.names = [column.name for column in stage.outputs]
        self.rule = maintenance(stage, "duckdb")
        self.types_checked = False
        columns = [f'"{name}" {kind.duckdb()}' for name, kind in stage.input.columns]
        more = "__weight BIGINT, _commit_version BIGINT"
        self.db.execute(f"CREATE OR REPLACE TABLE delta ({', '.join(columns)}, {more})")
        self.db.execute(f"CREATE OR REPLACE TABLE history ({', '.join(columns)}, {more})")
        kept = [f'"{column.name}" {column.type.duckdb()}' for column in stage.outputs]
        state = state_type(stage)
        self.stored = [*self.names, *([STATE] if state else [])]
        if state:
            kept.append(f"{STATE} {state.duckdb()}")
        self.db.execute(f"CREATE OR REPLACE TABLE self_old ({', '.join(kept)})")

    def epoch(self, changes: Sequence[tuple[Row, int, int]]) -> None:
        """Apply one batch: (row, weight, commit version) each."""
        self.db.execute("DELETE FROM delta")
        names = [name for name, _ in self.stage.input.columns]
        insert(self.db, "delta", [[*(row.get(n) for n in names), weight, at] for row, weight, at in changes])
        self.db.execute("INSERT INTO history FROM delta")
        stored = ", ".join(f'"{name}"' for name in self.stored)
        if kind_of(self.stage) == "append":
            self.db.execute(f"INSERT INTO self_old SELECT {stored} FROM ({self.rule})")
            return
        self.db.execute(f"CREATE OR REPLACE TEMP TABLE settled AS {self.rule}")
        self._check_settled()
        self.db.execute(f"DELETE FROM self_old o WHERE EXISTS (FROM settled s WHERE {self._same_key('o', 's')})")
        self.db.execute(f"INSERT INTO self_old SELECT {stored} FROM settled WHERE __exists")

    def visible(self) -> Counter[tuple[Any, ...]]:
        """The rows a reader sees."""
        names = ", ".join(f'"{name}"' for name in self.names)
        return multiset(self.query(f"SELECT {names} FROM self_old"))

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        return self.db.execute(sql).fetchall()

    def _same_key(self, left: str, right: str) -> str:
        paths = [".".join(f'"{step}"' for step in key_path(self.stage, name)) for name in key_names(self.stage)]
        return " AND ".join(f"{left}.{path} IS NOT DISTINCT FROM {right}.{path}" for path in paths) or "TRUE"

    def _check_settled(self) -> None:
        if not self.types_checked:
            kinds = {name: kind for name, kind, *_ in self.query("DESCRIBE settled")}
            declared = {name: kind for name, kind, *_ in self.query("DESCRIBE self_old")}
            assert {name: kinds[name] for name in self.stored} == declared, "the rule's types are not the stored ones"
            self.types_checked = True
        pairs = " AND ".join(f'(s.__old)."{name}" IS NOT DISTINCT FROM o."{name}"' for name in self.stored)
        twice, wrong = self.query(
            f"SELECT count(*) FROM settled a JOIN settled b ON {self._same_key('a', 'b')} AND a.rowid <> b.rowid"
            f" UNION ALL SELECT count(*) FROM settled s LEFT JOIN (SELECT *, TRUE AS here FROM self_old) o"
            f" ON {self._same_key('s', 'o')} WHERE (s.__old IS NOT NULL) <> COALESCE(o.here, FALSE)"
            f" OR (o.here AND NOT ({pairs}))"
        )
        assert twice == (0,), "a key is settled twice"
        assert wrong == (0,), "__old is not the stored row"


def insert(db: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """All rows in one statement: a statement costs more than a row."""
    if rows:
        values = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
        db.execute(f"INSERT INTO {table} VALUES {values}", [value for row in rows for value in row])


def append_log(columns: Sequence[tuple[str, SqlType]], name: str = "events") -> Relation:
    """An event log with these columns and the meta columns that order events."""
    return Relation(name, (*columns, *META_COLUMNS), "append")
