"""A view's plan as data: a list of stages, each maintained by one rule into one table, and the calls in them.

    inputs ──> [body: joins, where, columns] ──> [top: none | latest | aggregate | analytic | session] ──> table

A *body* is one *core* or a UNION ALL of several. A core reads one or more relations, joined from left to right, and
gives named columns; what stands on top reads those by their plain names. Inner stages have tables of their own; the
last one is the view's table.

Expressions are sqlglot trees in our dialect; every scalar function in them is known to `jobs.functions.registry`, and
`lower(expression, dialect)` there writes them for Spark or DuckDB. Inside a core their columns are qualified with the
alias of an input (`visit.length`), everywhere else they are plain names.

What is computed of a stage once, and kept for as long as the stage is there.

A stage is refreshed again and again, and what its ERRORS makes of it, or the text of its rule, takes milliseconds of
small trees each time. It cannot be looked up by the stage as a value: trees are equal where their hashes are, which
ignore case, and the hash of a large one costs as much. So it is kept by the object, which is the same one in all epochs
of a run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Concatenate, Literal, ParamSpec, TypeVar

from sqlglot import exp

from strandline.jobs.model.tables import ITSELF, Relation
from strandline.jobs.model.types import SqlType

# Calls of functions that look at many rows. Their expressions read the columns of a stage's body.


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate function applied to expressions over the body's columns.

    Attributes:
        name: what the outputs call it: `__a0`, `__a1`, …
        function: upper-case name in `jobs.functions.aggregates.registry.FUNCTIONS`.
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
    parameters: tuple[int | bool | str, ...] = ()
    distinct: bool = False
    filter: exp.Expression | None = None


@dataclass(frozen=True)
class AnalyticCall:
    """One function OVER (PARTITION BY … ORDER BY … frame), over the body's columns.

    Attributes:
        name: what the outputs call it: `__w0`, …
        function: ROW_NUMBER, RANK, LAG, FIRST_VALUE, …, an aggregate, or COUNT_DISTINCT.
        order: (expression, descending, nulls first); ties are broken by the row's key, so that the result is a
            function of the rows.
        frame: text of the frame (`ROWS BETWEEN 9 PRECEDING AND CURRENT ROW`); None is SQL's default.
        null_beyond: a sum is NULL while it is out of its type's range.
    """

    name: str
    function: str
    arguments: tuple[exp.Expression, ...]
    order: tuple[tuple[exp.Expression, bool, bool], ...]
    type: SqlType
    frame: str | None = None
    null_beyond: bool = False

    @property
    def by_row(self) -> bool:
        """True if its frame counts rows one by one, not those that tie together."""
        return self.frame is not None and self.frame.upper().startswith("ROWS")


@dataclass(frozen=True)
class AggregateOver(AnalyticCall):
    """An aggregate that no engine is asked for OVER a window: it is computed of a frame's rows as of a group's.

    Attributes:
        arguments: those of the aggregate, each NULL where FILTER does not hold; then FILTER's condition, if any.
        aggregate: the call without its trees, which are `arguments`.
        filtered: the last argument is a condition.
    """

    aggregate: AggregateCall = field(kw_only=True)
    filtered: bool = field(kw_only=True, default=False)

    @property
    def call(self) -> AggregateCall:
        """The aggregate of the frame's rows."""
        found = self.of_aggregate
        values = found[:-1] if self.filtered else found
        condition = found[-1] if self.filtered else None
        return replace(self.aggregate, name=self.name, arguments=values, filter=condition)

    @property
    def of_aggregate(self) -> tuple[exp.Expression, ...]:
        """The arguments of the aggregate, and FILTER's condition."""
        return self.arguments

    @property
    def by_group(self) -> bool:
        """True if its frame counts those that tie together as one."""
        return self.frame is not None and self.frame.startswith("GROUPS")

    @property
    def whole(self) -> bool:
        """True if every row's frame is its whole partition."""
        return not self.order if self.frame is None else self.frame.upper().endswith(ALL_ROWS)


Excluded = Literal["CURRENT ROW", "GROUP", "TIES"]
"""What a row's frame is without: the row itself, it and those that tie with it, or those that tie with it alone."""


@dataclass(frozen=True)
class AggregateFramed(AggregateOver):
    """An aggregate over frames that not every engine knows.

    Attributes:
        reaches: how many of the last arguments are distances of the frame, which has `?` in their places.
    """

    exclude: Excluded | None = field(kw_only=True, default=None)
    reaches: int = field(kw_only=True, default=0)

    @property
    def of_aggregate(self) -> tuple[exp.Expression, ...]:
        return self.arguments[: len(self.arguments) - self.reaches]

    @property
    def distances(self) -> tuple[exp.Expression, ...]:
        """How far the frame of a row reaches."""
        return self.arguments[len(self.arguments) - self.reaches :]

    @property
    def whole(self) -> bool:
        """False: each row's frame has rows of its own."""
        return False


ALL_ROWS = "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
"""How a frame ends that is the whole partition."""


JoinType = Literal["inner", "left", "right", "full", "semi", "anti"]

JOIN_WORDS: dict[JoinType, str] = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}
"""The words of each join, the same for both engines."""


@dataclass(frozen=True)
class Output:
    """A named, typed expression. The rule casts to `type`, so that both engines give the same."""

    name: str
    expression: exp.Expression
    type: SqlType


@dataclass(frozen=True)
class Input:
    """One relation of a core under a name of its own, and how it joins what stands left of it.

    Attributes:
        alias: unique in the core; the rule's relations are `delta_<alias>`, `old_<alias>`, `new_<alias>`.
        join: `semi` and `anti` (IN, EXISTS and their negations) give no columns.
        on: the join's condition, over the qualified columns of this input and of those before it; None for the
            first, and for an inner join with a relation of one row. The first has a condition, and a join, where it
            joins constants that stand left of it: one row, which never changes.
        frozen: rows that exist are not touched when this input changes: an event joins the table as it is when the
            event is taken in. The input's changes alone give nothing.
        as_of: only with `frozen`; `relation` is the event log of a keyed source, and the row that joins is the one
            that was the newest of its key at the event's time (`_timestamp` of the first input).
    """

    alias: str
    relation: Relation
    join: JoinType = "inner"
    on: exp.Expression | None = None
    frozen: bool = False
    as_of: bool = False

    @property
    def joins_nothing(self) -> bool:
        """True if it is the first of its core and joins nothing, not even constants."""
        return self.on is None and self.join == "inner"


@dataclass(frozen=True)
class Core:
    """Relations joined from left to right, filtered and projected: what a stage does before its top.

    Attributes:
        inputs: the same relation may come twice under two aliases. None: one row of constants, which never changes.
        where: over qualified columns and the names of `expand`.
        columns: what the core gives, in order; every name the top uses is among them.
        key: names among `columns` that identify a row of a keyed core. Empty for an append one, and for the one row
            of a global aggregate.
        expand: array expressions over qualified columns; each row is repeated for each item, several arrays side by
            side (the shorter are padded with NULL). `columns` and `where` read an item by the output's plain name;
            `type` is that of an item. The item's number, from 1, can be read as `__item`.
        repeated: `expand` is one array of the groups that a row is in, not of items that the query asks for: what is
            computed of a row is the same for each, and what filters by an item holds for the first if for any.
    """

    inputs: tuple[Input, ...]
    where: exp.Expression | None
    columns: tuple[Output, ...]
    key: tuple[str, ...] = ()
    expand: tuple[Output, ...] = ()
    repeated: bool = False

    @property
    def storage(self) -> Literal["append", "keyed"]:
        """`append` if every change of an input only adds rows: nothing read can change or go, nothing is padded, and no
        row joins again because of a second match (semi). Constants have no place in an order of events, and are
        identified by key."""
        grows = bool(self.inputs) and all(
            i.frozen or (i.relation.storage == "append" and i.join == "inner") for i in self.inputs
        )
        return "append" if grows else "keyed"


Body = tuple[Core, ...]
"""UNION ALL of cores that give the same columns (names and types) and have the same key."""


def storage_of_body(body: Body) -> Literal["append", "keyed"]:
    return "append" if all(core.storage == "append" for core in body) else "keyed"


@dataclass(frozen=True)
class MapStage:
    """Filter, project, join, union all: the body itself, stored.

    Attributes:
        visible: names of the body's columns that are the table's visible columns, in order (for append: with the
            meta columns, last). All other columns of the body are kept in `__state`.
        key: the body's key.
    """

    table: str
    body: Body
    visible: tuple[str, ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class LatestStage:
    """A keyed source: the newest row of each key in the event log, unless it is a tombstone (`_tombstone`).

    Attributes:
        bag: the source has no key: a tombstone takes away one row of its values, and `key` is `COPY`.
        exact: each event brings or takes away one row, and a key has one at most: anything else is the source's fault.
    """

    table: str
    input: Relation
    outputs: tuple[Output, ...]
    key: tuple[str, ...]
    bag: bool = False
    exact: bool = False


@dataclass(frozen=True)
class SessionWindow:
    """WINDOW SESSION (gap, GRACE PERIOD grace): rows of one group no further apart than `gap` are one session.

    Attributes:
        gap, grace: milliseconds; `grace` None: no row is too late.
        time: name of the body's TIMESTAMP column by which rows are placed.
        clock: name of the body's column that says how late a row is (`_stream_time`).
    """

    gap: int
    grace: int | None
    time: str
    clock: str


PART = "__part"
"""A column of the body of an aggregate: 0 in a row of the groups, from 1 on in one that is a value of a group, which an
inner stage keeps. Only the former count as rows of the group."""


@dataclass(frozen=True)
class AggregateStage:
    """GROUP BY: one row per group.

    Attributes:
        group: the group expressions, over the body's columns. A group column that is visible has its visible name; one
            that is not has a name `__k0`, … and is kept in `__state`.
        aggregates: the calls, over the body's columns.
        outputs: the visible columns, expressions over the names of `group` and `aggregates`; with a session also over
            `windowstart` and `windowend` (BIGINT, milliseconds), which are then part of the key.
        key: names from `group`, in order. Empty for a global aggregate (one row, also over no input).
        drop_empty: SQL's way: a group without rows is no row. False keeps it with its zeros (ksqlDB's way).
        skip_null_keys: ksqlDB's way: rows with a null in the group key are left out.
        session: the groups are cut into sessions.
        late: the body again, of those rows alone that came too late for their window and are left out; a row is there
            once for each window that it missed. Empty where no row is ever late. Aliases are those of `body`.
    """

    table: str
    body: Body
    group: tuple[Output, ...]
    aggregates: tuple[AggregateCall, ...]
    outputs: tuple[Output, ...]
    key: tuple[str, ...]
    drop_empty: bool = True
    skip_null_keys: bool = False
    session: SessionWindow | None = None
    late: Body = ()


@dataclass(frozen=True)
class AnalyticStage:
    """Functions OVER windows: each partition that a change touches is computed again, old and new.

    Attributes:
        partition: over the body's columns; kept in `__state` where they are not visible. May be empty: one partition.
        calls: over the body's columns.
        outputs: the visible columns, over the names of the body's columns and of `calls`.
        keep: rows stay only where this holds (ROW_NUMBER() … <= k, QUALIFY), over the same names.
        key: the body's key; names that are not visible are kept in `__state`.
    """

    table: str
    body: Body
    partition: tuple[Output, ...]
    calls: tuple[AnalyticCall, ...]
    outputs: tuple[Output, ...]
    keep: exp.Expression | None
    key: tuple[str, ...]


@dataclass(frozen=True)
class RecursiveStage:
    """WITH RECURSIVE: the rows to begin with, and what follows from them, round by round, until nothing new comes.

    Attributes:
        seed: the rows to begin with.
        steps: what follows from the rows of a round. The first input whose relation is `ITSELF` stands for those.
        distinct: rows are there once; otherwise each has a number among equal ones, `COPY_NUMBER`, hidden.
        levels: the most rounds; the steps then also give the column `LEVEL` of the row that theirs follows from. None:
            the rounds are not counted.
        outputs: the visible columns, over the names of the seed's.
    """

    table: str
    seed: Body
    steps: Body
    distinct: bool
    levels: int | None
    outputs: tuple[Output, ...]

    @property
    def key(self) -> tuple[str, ...]:
        """A row is told apart by its values, and the number among equal ones."""
        names = tuple(each.name for each in self.outputs)
        return names if self.distinct else (*names, COPY_NUMBER)


COPY_NUMBER = "__number"
"""The number, from 1, of a row among equal ones of a recursion (BIGINT)."""

Stage = MapStage | LatestStage | AggregateStage | AnalyticStage | RecursiveStage


def body_of(stage: Stage) -> Body:
    """The stage's body; a keyed source reads its event log as it is; of a recursion the seed and the steps."""
    if isinstance(stage, RecursiveStage):
        return (*stage.seed, *stage.steps)
    if not isinstance(stage, LatestStage):
        return stage.body
    log = stage.input
    columns = tuple(
        Output(name, exp.column(name, table="log", quoted=True), sql_type) for name, sql_type in log.columns
    )
    return (Core((Input("log", log),), None, columns),)


def inputs_of(stage: Stage) -> tuple[Input, ...]:
    """All inputs of all cores, but for a recursion itself; aliases are unique within a stage."""
    return tuple(each for core in body_of(stage) for each in core.inputs if each.relation.name != ITSELF)


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
        names = (each.relation.name for stage in self.stages for each in inputs_of(stage))
        return tuple(dict.fromkeys(name for name in names if name not in own))


_Rest = ParamSpec("_Rest")
_Made = TypeVar("_Made")


def kept_with_stage(
    function: Callable[Concatenate[Stage, _Rest], _Made],
) -> Callable[Concatenate[Stage, _Rest], _Made]:
    """Keep what a function makes of a stage and of other arguments, which can be hashed. Two threads may both make it.

    Preconditions:
        1. What is made does not refer to the stage: it would never end.
    """
    kept: dict[int, dict[object, _Made]] = {}

    @wraps(function)
    def find(stage: Stage, /, *args: _Rest.args, **kwargs: _Rest.kwargs) -> _Made:
        known = kept.get(id(stage))
        if known is None:
            known = kept.setdefault(id(stage), {})
            weakref.finalize(stage, kept.pop, id(stage), None).atexit = False
        asked = (args, tuple(kwargs.items()))
        if asked not in known:
            known[asked] = function(stage, *args, **kwargs)
        return known[asked]

    return find
