"""The logical query, which the planner starts from: names resolved, types known, conversions explicit.

    Query = Block (one SELECT) | SetOperation (UNION, INTERSECT, EXCEPT of queries)

The clauses of a block are listed in the order in which SQL evaluates them. Columns in the expressions are qualified
with the alias of an input (`visit.length`) up to and including `expand`, whose items have plain names; after grouping
they are the plain names of `group` and `calls`; after analytic functions also those of `analytic`. A block without
grouping and without analytic functions has outputs over the qualified columns. CTEs and subqueries in FROM are inputs;
IN, EXISTS and scalar subqueries have become joins (semi, anti, left) with inputs of their own; in a pull query they are
nodes of its expressions (`jobs.sql.nested_query`). Inputs are listed in the order in which they join.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from strandline.jobs.model.calls import AggregateCall, AnalyticCall
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import JoinType, Output
from strandline.jobs.model.types import SqlType


@dataclass(frozen=True)
class From:
    """One input of a block.

    Attributes:
        alias: unique in the block; made up (`__s0`, …) for a subquery that came from an expression.
        source: a relation of the catalog, or a query of its own (a subquery or CTE).
        join, on, frozen, as_of: as in `jobs.model.stage.Input`.
        one_row: the source always has exactly one row (a global aggregate), so that a join needs no condition.
    """

    alias: str
    source: Relation | Query
    join: JoinType = "inner"
    on: exp.Expression | None = None
    frozen: bool = False
    as_of: bool = False
    one_row: bool = False


@dataclass(frozen=True)
class TimeWindow:
    """WINDOW TUMBLING | HOPPING | SESSION: groups of rows that are near in time. All lengths are milliseconds.

    A row belongs to every [start, start + size) that holds its rowtime, `start` being a multiple of `advance`. A
    session lasts while rows are no further than `size` apart; its bounds are the first and the last row's times.
    A row is late for a window, and left out, when the stream's time has passed the window's end by `grace`.

    Attributes:
        size: length of the window; of a session the gap.
        advance: for hopping windows; `size` for tumbling ones.
        grace: ksqlDB's default is 24 h; EMIT FINAL without one has 0. None: no row is ever late.
        retention: parsed, and kept for EXPLAIN: windows are not forgotten.
        final: EMIT FINAL: a window is shown once it is closed, when no row can enter it any more.
    """

    type: Literal["tumbling", "hopping", "session"]
    size: int
    advance: int
    grace: int | None
    retention: int | None = None
    final: bool = False


@dataclass(frozen=True)
class Block:
    """One SELECT.

    Attributes:
        inputs: none for a query without FROM, which has one row.
        where: over qualified columns. A condition that joins inputs (`a.x = b.y` of a comma join) is in `on` of the
            later one.
        expand: EXPLODE and other table functions in the SELECT list, as `jobs.model.stage.Core.expand`.
        time: the column that gives the rows' time, qualified (`s._timestamp`), when `window` is given.
        group: None without grouping; empty for one group of all rows. Expressions over qualified columns; a key that is
            selected has its output's name, another is `__k0`, …. WINDOWSTART and WINDOWEND (BIGINT) can be read after
            grouping by the plain names `windowstart` and `windowend` when `window` is given; they are not in `group`.
        sets: GROUPING SETS, ROLLUP, CUBE: each a set of indexes into `group`; empty when there is one set, all of it.
            What GROUPING asks for can be read after grouping by the plain names of `jobs.query.clauses.grouping_calls`.
        calls: aggregate calls, over qualified columns.
        having: over the names of group and calls.
        analytic, partition: calls OVER a window; all calls of one block share one PARTITION BY.
        qualify: condition over everything up to here (QUALIFY).
        outputs: the visible columns.
        distinct: SELECT DISTINCT.
        partition_by: PARTITION BY of a stream: expressions like those of `outputs` that make the record key.
        key: names of outputs that are the record's key (of a stream) or identify a row (of a table), when all that do
            are visible; else empty.
        unseen_key: in words, the key when it is not among the outputs; ksqlDB's statements must select it.
    """

    inputs: tuple[From, ...]
    where: exp.Expression | None
    outputs: tuple[Output, ...]
    expand: tuple[Output, ...] = ()
    window: TimeWindow | None = None
    time: exp.Expression | None = None
    group: tuple[Output, ...] | None = None
    sets: tuple[tuple[int, ...], ...] = ()
    calls: tuple[AggregateCall, ...] = ()
    having: exp.Expression | None = None
    partition: tuple[exp.Expression, ...] = ()
    analytic: tuple[AnalyticCall, ...] = ()
    qualify: exp.Expression | None = None
    distinct: bool = False
    partition_by: tuple[exp.Expression, ...] = ()
    key: tuple[str, ...] = ()
    unseen_key: str = ""


@dataclass(frozen=True)
class SetOperation:
    """UNION [ALL], INTERSECT, EXCEPT. The branches give the same types; the names are those of the first."""

    operation: Literal["union all", "union", "intersect", "except", "intersect all", "except all"]
    branches: tuple[Query, ...]
    outputs: tuple[tuple[str, SqlType], ...]
    key: tuple[str, ...] = ()


Query = Block | SetOperation


def relations_of(query: Query) -> tuple[Relation, ...]:
    """The relations of the catalog that a query reads, each once, in the order of the text."""
    if isinstance(query, SetOperation):
        found = [each for branch in query.branches for each in relations_of(branch)]
    else:
        found = []
        for part in query.inputs:
            found += [part.source] if isinstance(part.source, Relation) else relations_of(part.source)
    return tuple({each.name: each for each in found}.values())


def reads(query: Query) -> int:
    """How many tables a query reads, once each part of WITH is put wherever it is named."""
    known: dict[int, int] = {}

    def counted(each: Query) -> int:
        if id(each) not in known:
            if isinstance(each, SetOperation):
                known[id(each)] = sum(map(counted, each.branches))
            else:
                sources = (part.source for part in each.inputs)
                known[id(each)] = sum(1 if isinstance(one, Relation) else counted(one) for one in sources) or 1
        return known[id(each)]

    return counted(query)
