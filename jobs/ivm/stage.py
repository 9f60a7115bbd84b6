"""A view's plan as data: a list of stages, each maintained by one rule into one table.

    input ──> [core: where, project] ──> [top: none | latest | aggregate] ──> table

A stage reads one relation (joins give a core more inputs later; nothing here assumes that the core is narrow). Inner
stages have tables of their own, `<view>__stage_n`; the last one is the view's table.

Expressions are sqlglot trees in our dialect whose columns are plain names of the stage's input; every scalar function
in them is known to `jobs.sql.functions`. `lower(expression, dialect)` there writes them for Spark or DuckDB.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from jobs.sql.types import SqlType


@dataclass(frozen=True)
class Relation:
    """A table of the lake as a stage sees it.

    `append`: rows are only added (event logs, streams); all have the meta columns.
    `keyed`: at most one row per key; rows change and go.
    """

    name: str
    columns: tuple[tuple[str, SqlType], ...]
    kind: Literal["append", "keyed"]
    key: tuple[str, ...] = ()

    def type_of(self, column: str) -> SqlType:
        return dict(self.columns)[column]


@dataclass(frozen=True)
class Output:
    """A named, typed expression. The rule casts to `type`, so that both engines give the same."""

    name: str
    expression: exp.Expression
    type: SqlType


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function applied to expressions over the core's input.

    Attributes:
        name: what `AggregateStage.outputs` calls it: `__a0`, `__a1`, …
        function: upper-case name in `jobs.ivm.aggregates.FUNCTIONS`.
        arguments: the value expressions; constant parameters (N, ignoreNulls) are in `parameters`.
        argument_types: a type for each argument.
        type: the type of the result.
        distinct: COUNT(DISTINCT x) and the like.
        filter: FILTER (WHERE …).
    """

    name: str
    function: str
    arguments: tuple[exp.Expression, ...]
    argument_types: tuple[SqlType, ...]
    type: SqlType
    parameters: tuple[int | bool, ...] = ()
    distinct: bool = False
    filter: exp.Expression | None = None


@dataclass(frozen=True)
class MapStage:
    """Filter and project. Rows of an `append` input are appended; those of a `keyed` one keep their input's key.

    Attributes:
        outputs: every stored column in order. For an append input this includes the meta columns (after the visible
            ones); for a keyed input whose key is not among them, the missing key columns are kept in `hidden_key`.
        key: the columns that identify a row; empty for append.
        hidden_key: key expressions kept in `__state`.
    """

    table: str
    input: Relation
    where: exp.Expression | None
    outputs: tuple[Output, ...]
    key: tuple[str, ...] = ()
    hidden_key: tuple[Output, ...] = ()


@dataclass(frozen=True)
class LatestStage:
    """A keyed source: of the event log's rows with one key the newest, unless that is a tombstone (`_tombstone`)."""

    table: str
    input: Relation
    outputs: tuple[Output, ...]
    key: tuple[str, ...]


@dataclass(frozen=True)
class AggregateStage:
    """GROUP BY: one row per group.

    Attributes:
        group: the group expressions, over the input. A group column that is visible has its visible name; one that is
            not has a name `__k0`, … and is kept in `__state`.
        aggregates: the calls, over the input.
        outputs: the visible columns, expressions over the names of `group` and `aggregates`.
        key: names from `group`, in order. Empty for a global aggregate (one row, also over no input).
        drop_empty: SQL's way: a group without rows is no row. False keeps it with its zeros (ksqlDB's way).
        skip_null_keys: ksqlDB's way: rows with a null in the group key are left out.
    """

    table: str
    input: Relation
    where: exp.Expression | None
    group: tuple[Output, ...]
    aggregates: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    key: tuple[str, ...]
    drop_empty: bool = True
    skip_null_keys: bool = False


Stage = MapStage | LatestStage | AggregateStage


@dataclass(frozen=True)
class Plan:
    """The stages of one view, in order; each reads the view's inputs or the table of an earlier stage."""

    view: str
    stages: tuple[Stage, ...]
    notes: tuple[str, ...] = ()
    """Why something is as it is, for EXPLAIN."""

    @property
    def inputs(self) -> tuple[str, ...]:
        own = {stage.table for stage in self.stages}
        names = (stage.input.name for stage in self.stages)
        return tuple(dict.fromkeys(name for name in names if name not in own))
