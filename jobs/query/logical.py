"""The logical query, from which the planner starts: names resolved, types known, conversions explicit.

    Query = Block (one SELECT) | SetOperation (UNION, INTERSECT, EXCEPT of queries) | Recursion (WITH RECURSIVE)
    PullQuery = a Query that is asked once, with its order, its offset and the queries nested in its expressions

The clauses of a block are listed in the order in which SQL evaluates them. Columns in the expressions are qualified
with the alias of an input (`visit.length`) up to and including `expand`, whose items have plain names; after grouping
they are the plain names of `group` and `calls`; after analytic functions also those of `analytic`. A block without
grouping and without analytic functions has outputs over the qualified columns. CTEs and subqueries in FROM are inputs;
IN, EXISTS and scalar subqueries have become joins (semi, anti, left) with inputs of their own; in a pull query they are
nodes of its expressions (`jobs.sql.dialect`). Inputs are listed in the order in which they join.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.model.definitions import Semantics
from strandline.jobs.model.stage import AggregateCall, AnalyticCall, JoinType, Output
from strandline.jobs.model.tables import ITEM, ITSELF, Relation
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import columns_in


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


def padded_in(froms: Sequence[From]) -> set[str]:
    """The inputs whose columns are NULL where an outer join found nothing."""
    found: set[str] = set()
    for number, each in enumerate(froms):
        if each.join in ("left", "full"):
            found.add(each.alias)
        if each.join in ("right", "full"):
            found |= {before.alias for before in froms[:number]}
    return found


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
            What GROUPING asks for can be read after grouping by the plain names of `jobs.query.clauses.grouping`.
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

    @property
    def before_windows(self) -> tuple[Output, ...]:
        """The outputs beside functions OVER a window that can fail of a row by itself: they read none of the calls.

        They are computed of each row that WHERE lets through, so that a row on which one fails is in no window.
        """
        calls = {call.name for call in self.analytic}
        return tuple(
            each for each in self.outputs if calls and can_fail(each.expression) and not _reads(each.expression, calls)
        )


@dataclass(frozen=True)
class SetOperation:
    """UNION [ALL], INTERSECT, EXCEPT. The branches give the same types; the names are those of the first."""

    operation: Literal["union all", "union", "intersect", "except", "intersect all", "except all"]
    branches: tuple[Query, ...]
    outputs: tuple[tuple[str, SqlType], ...]
    key: tuple[str, ...] = ()


@dataclass(frozen=True)
class Recursion:
    """A query of WITH RECURSIVE that reads itself: the rows to begin with, and what follows from them, round by round.

    Attributes:
        distinct: UNION: a row is there once, and nothing follows from it again. Otherwise UNION ALL.
        seed: the rows to begin with, with these outputs.
        steps: what follows from the rows of one round: each reads `jobs.model.tables.ITSELF` once, as a plain join.
        outputs: those of the seed and of each step.
        levels: the most rounds; None: a set of values that are there already, which ends by itself.
    """

    distinct: bool
    seed: Query
    steps: tuple[Block, ...]
    outputs: tuple[tuple[str, SqlType], ...]
    levels: int | None
    key: tuple[str, ...] = ()

    @property
    def branches(self) -> tuple[Query, ...]:
        """The seed and the steps."""
        return (self.seed, *self.steps)


Query = Block | SetOperation | Recursion


def _reads(tree: exp.Expression, calls: set[str]) -> bool:
    return any(not each.table and each.name in calls for each in columns_in(tree))


def relations_of(query: Query) -> tuple[Relation, ...]:
    """Relations of the catalog that a query reads, each once, in the order of the text."""
    if isinstance(query, SetOperation | Recursion):
        found = [each for branch in query.branches for each in relations_of(branch)]
        if isinstance(query, Recursion):
            found = [each for each in found if each.name != ITSELF]
    else:
        found = []
        for part in query.inputs:
            found += [part.source] if isinstance(part.source, Relation) else relations_of(part.source)
    return tuple({each.name: each for each in found}.values())


def reads(query: Query) -> int:
    """Count the tables that a query reads; a part of WITH counts wherever it is named."""
    known: dict[int, int] = {}

    def counted(each: Query) -> int:
        if id(each) not in known:
            if isinstance(each, SetOperation | Recursion):
                known[id(each)] = sum(map(counted, each.branches))
            else:
                sources = (part.source for part in each.inputs)
                known[id(each)] = sum(1 if isinstance(one, Relation) else counted(one) for one in sources) or 1
        return known[id(each)]

    return counted(query)


def mapped(block: Block, change: Callable[[exp.Expression], exp.Expression]) -> Block:
    """The block with other expressions over its inputs."""

    def outputs(given: tuple[Output, ...]) -> tuple[Output, ...]:
        return tuple(replace(each, expression=change(each.expression)) for each in given)

    def maybe(node: exp.Expression | None) -> exp.Expression | None:
        return None if node is None else change(node)

    return replace(
        block,
        inputs=tuple(replace(each, on=maybe(each.on)) for each in block.inputs),
        where=maybe(block.where),
        outputs=outputs(block.outputs),
        expand=outputs(block.expand),
        group=None if block.group is None else outputs(block.group),
        calls=tuple(
            replace(call, arguments=tuple(map(change, call.arguments)), filter=maybe(call.filter))
            for call in block.calls
        ),
        having=maybe(block.having),
        partition=tuple(map(change, block.partition)),
        analytic=tuple(_mapped_call(call, change) for call in block.analytic),
        qualify=maybe(block.qualify),
        partition_by=tuple(map(change, block.partition_by)),
    )


def _mapped_call(call: AnalyticCall, change: Callable[[exp.Expression], exp.Expression]) -> AnalyticCall:
    order = tuple((change(by), down, first) for by, down, first in call.order)
    return replace(call, arguments=tuple(map(change, call.arguments)), order=order)


# The form of a query's result: its columns, and whether its rows are events, groups or a single row.
#
# The record key is in `jobs.query.clauses.record_key`.


def outputs_of(query: Query) -> tuple[tuple[str, SqlType], ...]:
    """Names and types of the visible columns."""
    if isinstance(query, SetOperation | Recursion):
        return query.outputs
    return tuple((output.name, output.type) for output in query.outputs)


def gives_events(query: Query) -> bool:
    """True if each row is an event of one stream, with its time and place: rows are only ever inserted.

    So it is for filters and projections of a stream, also when its events look up tables as of their time.
    """
    if isinstance(query, Recursion):
        return False
    if isinstance(query, SetOperation):
        return query.operation == "union all" and all(gives_events(branch) for branch in query.branches)
    if grows_by_groups(query) or not query.inputs:
        return False
    first, *others = query.inputs
    return _adds(first) and all(each.frozen or (each.join == "semi" and _adds(each)) for each in others)


def grows_by_groups(block: Block) -> bool:
    """True if rows of the input are combined: by GROUP BY, DISTINCT, or functions over partitions."""
    return block.group is not None or block.distinct or bool(block.analytic)


def identity(block: Block) -> list[exp.Expression]:
    """The columns that identify a joined row, in the order of the inputs."""
    found: list[exp.Expression] = []
    for part in block.inputs:
        if part.join in ("semi", "anti"):
            continue
        if isinstance(part.source, Relation):
            names = part.source.key if part.source.storage == "keyed" else part.source.identity
        else:
            names = part.source.key
        found += [column(name, part.alias) for name in names]
    return found + ([column(ITEM)] if block.expand else [])


def one_row(query: Query) -> bool:
    """True if the result is always exactly one row: an aggregate over all rows."""
    return (
        isinstance(query, Block)
        and query.group == ()
        and query.window is None
        and query.having is None
        and query.qualify is None
        and not query.sets
    )


def _adds(part: From) -> bool:
    return part.source.storage == "append" if isinstance(part.source, Relation) else gives_events(part.source)


# The logical query of a pull query: what is asked once, and need not be maintained.
#
# SELECT a, (SELECT MAX(x) FROM t WHERE t.k = s.k) AS m FROM s ORDER BY b DESC OFFSET 2
#
# query    SELECT s.a AS a, __q0(s.k) AS m, s.b AS __o0 FROM s      shown  a, m
# nested   __q0: SELECT MAX(t.x) FROM t WHERE t.k = __q0.0          order  __o0 DESC        offset  2


@dataclass
class NestedFound:
    """Subqueries found in the expressions of a pull query, by the names of their nodes."""

    queries: dict[str, Query] = field(default_factory=dict)
    _named: int = 0

    def name(self) -> str:
        """Name the next one."""
        self._named += 1
        return f"__q{self._named - 1}"


@dataclass(frozen=True)
class OrderItem:
    """One item of ORDER BY: a column of the query, shown or not."""

    column: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class PullQuery:
    """A pull query: the logical query, and what is shown of it.

    Attributes:
        query: the SELECT, with the columns behind those shown that only ORDER BY reads.
        shown: the number of columns of the answer.
        order: ORDER BY; empty without one.
        offset: the rows that are left out first.
        nested: the queries inside its expressions, and inside theirs, by the names of their nodes.
    """

    query: Query
    shown: int
    order: tuple[OrderItem, ...]
    offset: int
    nested: Mapping[str, Query]

    @property
    def outputs(self) -> tuple[tuple[str, SqlType], ...]:
        """Names and types of the columns of the answer; no name occurs twice."""
        return outputs_of(self.query)[: self.shown]

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations that it reads, each once."""
        found = [each for query in (self.query, *self.nested.values()) for each in relations_of(query)]
        return tuple({each.name: each for each in found}.values())


# The fingerprint of a query: a hash of everything that its rows depend on, except its inputs' rows.
#
# Texts with the same meaning have the same fingerprint: `SELECT r.a FROM readings r` and `select A from readings`.


def fingerprint(query: Query, semantics: Semantics = "sql") -> str:
    """Hash everything that the rows depend on, the inputs' columns included: 16 hex digits."""
    text = f"{semantics}\n{_text(query, {})}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _text(value: Any, names: Mapping[str, str]) -> str:
    """Any part of a logical query as text; `names` maps the inputs' aliases to the names in the text."""
    if isinstance(value, Block):
        names = {each.alias: f"i{number}" for number, each in enumerate(value.inputs)}
    if isinstance(value, exp.Expression):
        return _expression(value, names)
    if is_dataclass(value):
        parts = [(field.name, getattr(value, field.name)) for field in fields(value)]
        inner = ", ".join(
            f"{field_name(value, name)}={_text(part, names)}"
            for name, part in parts
            if name not in ("alias", "unseen_key")
        )
        return f"{class_name(value)}({inner})"
    if isinstance(value, tuple):
        return f"[{', '.join(_text(part, names) for part in value)}]"
    return plain_text(value)


def _expression(node: exp.Expression, names: Mapping[str, str]) -> str:
    made = node.copy()
    for read in made.find_all(exp.Column):
        if read.table in names:
            read.set("table", exp.to_identifier(names[read.table]))
    return sql_of(made)


# The names of classes and fields that fingerprints hash.
#
# A fingerprint stands in every commit of a view, and the digest of a shared stage in the name of its table. Both hash
# the names of classes and fields beside their values, so those names are a persisted format: where a name has changed
# in the code, the old one stays here.

_CLASSES = {"SessionWindow": "Session"}
_FIELDS = {("SqlType", "base"): "kind", ("Relation", "storage"): "kind", ("TimeWindow", "type"): "kind"}


def class_name(value: object) -> str:
    """Name of a dataclass in a hash."""
    name = type(value).__name__
    return _CLASSES.get(name, name)


def field_name(value: object, field: str) -> str:
    """Name of a dataclass's field in a hash."""
    return _FIELDS.get((type(value).__name__, field), field)


def plain_text(value: object) -> str:
    """Text in a hash for a value that is neither tree, dataclass nor tuple."""
    if isinstance(value, BaseType):
        return f"<Kind.{value.name}: {value.value!r}>"
    return repr(value)
