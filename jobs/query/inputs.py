"""The inputs of a SELECT: resolution of names over them, and what the expressions of a block read of them.

SELECT l.id, name, ROWTIME FROM l JOIN r ON l.id = r.id

l.id      the column of l, or an error that lists the columns of l
name      the column of the only input that has one, or an error that lists both inputs
ROWTIME   the greatest of the times of the streams: GREATEST(UNIX_TIMESTAMP(l._timestamp), …)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, SqlError, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import ITEM, META_COLUMNS, PSEUDO_COLUMNS, WINDOW_BOUNDS, Relation
from strandline.jobs.model.types import INT, SqlType
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical import Block, From, Query, identity, outputs_of
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.trees import Place, columns_in, conjuncts
from strandline.state_store.wording import Name, sentence

ROWKEY = "rowkey"
"""ksqlDB's name for the key of a join whose sides are both expressions, or may both be missing."""
UNNAMED = "unnamed_subquery"
"""The name in messages of a subquery in FROM that was given none, as in PostgreSQL; of further ones with a number."""
OUTER = "outer"
"""Mark on a column in a subquery that belongs to the outer query."""


@dataclass(frozen=True)
class FromItem:
    """One input under its alias.

    Attributes:
        name: the name of the relation or subquery, for messages.
        source: the relation or query that the planner reads.
        columns: the visible columns, which `*` stands for.
        hidden: other columns that can be read by name: meta columns, bounds of windows.
        key: the visible columns of the record's key.
        row_key: the columns that identify a row, when all can be read; else empty.
        stream: True if its rows are events, each with a time.
        log: the event log of a source table, which holds its past versions; None for anything else.
        read: where a column is read that is not read under the alias: from a nested query, or as an item of an array.
    """

    alias: str
    name: str
    source: Relation | Query
    columns: tuple[tuple[str, SqlType], ...]
    hidden: Mapping[str, SqlType]
    key: tuple[str, ...] = ()
    row_key: tuple[str, ...] = ()
    stream: bool = False
    log: Relation | None = None
    read: Mapping[str, exp.Column] = field(default_factory=dict)

    def type_of(self, name: str) -> SqlType | None:
        """The type of a column that can be read by that name."""
        return dict(self.columns).get(name) or self.hidden.get(name)

    def column(self, name: str) -> exp.Column:
        """Refer to one of its columns."""
        found = self.read.get(name)
        return found.copy() if found is not None else column(name, self.alias)

    @property
    def aliases(self) -> frozenset[str]:
        """The aliases under which its columns are read."""
        return frozenset(each.table for each in self.read.values()) or frozenset({self.alias})

    @property
    def unnamed(self) -> bool:
        """True for an input without an alias, whose columns have no name before theirs."""
        return self.alias.startswith(UNNAMED)

    @property
    def has_time(self) -> bool:
        return self.type_of("_timestamp") is not None


class Outer(Protocol):
    """The scope around a subquery."""

    def find(self, column: exp.Column) -> Typed | None:
        """The meaning of a name; None when there is none. Raises SqlError: there is more than one."""


@dataclass(frozen=True)
class Inputs:
    """The scope of a SELECT: the parts in the order of the text, and the other names that can be read.

    Attributes:
        merged: columns of JOIN … USING, by their name.
        equated: the aliases of the parts whose columns a name of `merged` stands for.
        windowed: True with WINDOW, whose bounds can be read.
        rowkey: the value that the last join is on.
        synthetic_key: no column alone has that value: both sides are expressions, or either may be missing.
        outer: what a subquery can read of the query around it.
    """

    parts: tuple[FromItem, ...]
    merged: Mapping[str, Typed] = field(default_factory=dict)
    windowed: bool = False
    rowkey: Typed | None = None
    synthetic_key: bool = False
    outer: Outer | None = None
    equated: Mapping[str, frozenset[str]] = field(default_factory=dict)

    @property
    def aliases(self) -> set[str]:
        """The aliases under which the columns of the parts are read."""
        return {alias for part in self.parts for alias in part.aliases}

    @property
    def items(self) -> set[str]:
        """The names of the columns that parts are read by where they have others: an item of UNNEST has no alias."""
        return {each.name for part in self.parts for each in part.read.values()}

    def resolve(self, column: exp.Column) -> Typed:
        """Resolve a name to a column, qualified with its input's alias.

        Raises:
            UnknownName: no such column or input; nearest names proposed.
            InvalidQuery: more than one input has it; or a pseudo column of a table that has none.
        """
        try:
            found = self.find(column) or self._in_capitals(column)
        except SqlError as error:
            raise error.placed(*position_of(column)) from None
        if found is None:
            raise self._unknown(column).placed(*position_of(column))
        for node in found.expression.find_all(exp.Column):
            node.this.meta.update({key: value for key, value in column.this.meta.items() if key != OUTER})
        return found

    def _in_capitals(self, column: exp.Column) -> Typed | None:
        """Resolve a quoted name in capitals, to which ksqlDB folds: `F0` is the column declared as F0 or f0."""
        if column.name != column.name.upper() or column.name == column.name.lower():
            return None
        folded = column.copy()
        folded.set("this", exp.to_identifier(column.name.lower()))
        return self.find(folded)

    def part(self, alias: str) -> FromItem | None:
        """The input of that alias."""
        return next((part for part in self.parts if part.alias == alias), None)

    def holder(self, node: exp.Column) -> FromItem | None:
        """The input that a resolved column is of; None for one of the outer query."""
        return next((part for part in self.parts if _holds(part, node)), None)

    def time(self, of: Literal["_timestamp", "_stream_time"] = "_timestamp") -> exp.Expression | None:
        """Time of the rows, or of their streams (TIMESTAMP): of several streams the greatest; None if there is none."""
        having = [part for part in self.parts if part.has_time and part.type_of(of) is not None]
        times: list[exp.Expression] = [part.column(of) for part in [part for part in having if part.stream] or having]
        if len(times) < 2:
            return times[0] if times else None
        return exp.Anonymous(this="GREATEST", expressions=times)

    def find(self, column: exp.Column) -> Typed | None:
        """The meaning of a name here or in the outer query; None when there is none."""
        if column.table:
            part = self.part(column.table)
            if part is not None:
                return self._of_part(part, column.name)
            return self._elsewhere(column) or self._around(column)
        name = column.name
        if name in self.merged:
            return Typed(self.merged[name].expression.copy(), self.merged[name].type)
        holders = [part for part in self.parts if part.type_of(name) is not None]
        visible = [part for part in holders if name in dict(part.columns)]
        holders = visible or holders
        if len(holders) == 1 and not (self.windowed and name in WINDOW_BOUNDS):
            return self._of_part(holders[0], name)
        return self._unqualified(name, holders) or self._elsewhere(column) or self._around(column)

    def words(self, node: exp.Expr) -> str:
        """Write an elaborated expression as a user would: without the alias if there is one input only."""
        made = node.copy()
        for found in made.find_all(exp.Column) if len(self.parts) == 1 else ():
            found.set("table", None)
        return sql_of(made)

    def _unqualified(self, name: str, holders: list[FromItem]) -> Typed | None:
        """The meaning of a name that no single input has; None when there is none."""
        if self.windowed and name in WINDOW_BOUNDS:
            return Typed(column(name), t.BIGINT)
        if name == ROWKEY and not holders and self.rowkey is not None:
            return Typed(self.rowkey.expression.copy(), self.rowkey.type)
        if name in PSEUDO_COLUMNS and not holders:
            if len(self.parts) == 1:
                return self._pseudo(self.parts[0], name)
            if name == "rowtime" and (time := self.time()) is not None:
                return Typed(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time]), t.BIGINT)
            holders = [part for part in self.parts if part.has_time]
        if len(holders) > 1:
            written = [f"{part.alias}.{name}" for part in holders]
            raise InvalidQuery(
                f"column '{name}' is ambiguous: {' and '.join(repr(part.alias) for part in holders)} have one",
                hint=f"write {' or '.join(written)}",
            )
        return None

    def _of_part(self, part: FromItem, name: str) -> Typed | None:
        sql_type = part.type_of(name)
        if sql_type is not None:
            return Typed(part.column(name), sql_type)
        return self._pseudo(part, name) if name in PSEUDO_COLUMNS else None

    def _pseudo(self, part: FromItem, name: str) -> Typed:
        stored, sql_type = PSEUDO_COLUMNS[name]
        if part.type_of(stored) is None:
            raise InvalidQuery(
                sentence("the rows of '{}' have no {}", Name(part.name), name.upper()),
                hint="events have one, and what keeps the newest",
            )
        node = part.column(stored)
        if stored == "_timestamp":
            return Typed(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[node]), sql_type)
        return Typed(node, sql_type)

    def _elsewhere(self, column: exp.Column) -> Typed | None:
        """A column that is resolved already: in the nested query that it is read from, or an item of UNNEST."""
        for part in self.parts:
            name = next((name for name, node in part.read.items() if node == column), None)
            if name is not None:
                return self._of_part(part, name)
        return None

    def _around(self, column: exp.Column) -> Typed | None:
        """A column of a query around, marked by how many levels out that is; None when none has one of that name."""
        found = self.outer.find(column) if self.outer is not None else None
        if found is None:
            return None
        for node in found.expression.find_all(exp.Column):
            node.meta[OUTER] = levels_out(node) + 1
        return found

    def _unknown(self, column: exp.Column) -> UnknownName:
        known: list[str] = []
        if column.table and self.part(column.table) is None:
            error = UnknownName.among("stream, table or alias", column.table, [part.alias for part in self.parts])
            types = [sql_type for part in self.parts if (sql_type := part.type_of(column.table)) is not None]
            if any(sql_type.base is t.BaseType.STRUCT for sql_type in types):
                error.hint = f"the field of a STRUCT is {column.table}->{column.name}"
            return error
        for part in self.parts:
            if not column.table or part.alias == column.table:
                known += [name for name, _ in part.columns]
                known += PSEUDO_COLUMNS if part.has_time else ()
        return UnknownName.among("column", column.name, known)


def levels_out(node: exp.Column) -> int:
    """How far out the query is that a column is of: 0 for this query, 1 for the one around it."""
    return int(node.meta.get(OUTER, 0))


def one_level_out(node: exp.Expression) -> exp.Expression:
    """An expression of a subquery, as it reads in the query around it."""
    made = node.copy()
    for each in made.find_all(exp.Column):
        if levels_out(each) > 1:
            each.meta[OUTER] = levels_out(each) - 1
        else:
            each.meta.pop(OUTER, None)
    return made


def from_outside(node: exp.Expr) -> bool:
    """True if any column in the expression belongs to the outer query."""
    return any(OUTER in found.meta for found in node.find_all(exp.Column))


def _holds(part: FromItem, node: exp.Column) -> bool:
    return any(each == node for each in part.read.values()) if part.read else part.alias == node.table


# Conditions: joining them by AND, the inputs that they read, and the equalities between inputs.


def conjoined(terms: Iterable[exp.Expression]) -> exp.Expression:
    """Join at least one condition by AND, with an OR in parentheses."""
    made: exp.Expression | None = None
    for term in terms:
        each: exp.Expression = exp.Paren(this=term) if isinstance(term, exp.Or) else term
        made = each if made is None else exp.And(this=made, expression=each)
    assert made is not None
    return made


def aliases(node: exp.Expr) -> set[str]:
    """Aliases of the inputs that an elaborated expression reads, without those of the outer query."""
    return {found.table for found in node.find_all(exp.Column) if OUTER not in found.meta}


def is_equality(term: exp.Expr, alias: str, known: set[str]) -> bool:
    """True if a condition is `a = b` with one side over the input `alias` alone, and the other over `known` inputs."""
    while isinstance(term, exp.Paren):
        term = term.this
    if not isinstance(term, exp.EQ):
        return False
    sides = (aliases(term.this), aliases(term.expression))
    return any(one == {alias} and bool(other) and other <= known for one, other in (sides, sides[::-1]))


def columns_equated(on: exp.Expression, alias: str) -> set[str]:
    """The columns of an input that a condition equates with an expression over the other inputs."""
    found = set()
    for term in conjuncts(on):
        if not isinstance(term, exp.EQ):
            continue
        for side, other in ((term.this, term.expression), (term.expression, term.this)):
            while isinstance(side, exp.Paren):
                side = side.this
            if isinstance(side, exp.Column) and side.table == alias and alias not in aliases(other):
                found.add(side.name)
    return found


# The columns that can be read after grouping beside groups and calls: marks of grouping sets, bounds of windows.

BOUNDS = tuple(Output(name, column(name), t.BIGINT) for name in WINDOW_BOUNDS)
"""The bounds of a group's window, as columns that can be read after grouping."""
_MARK = "__grouping_"


def mark_name(index: int) -> str:
    """The plain name of the mark of a group column, by its place in GROUP BY (from 0)."""
    return f"{_MARK}{index}"


def mark_value(value: int) -> exp.Expression:
    """A mark with a known value, 0 or 1, as a BIGINT."""
    return exp.Cast(this=exp.Literal.number(value), to=data_type(t.BIGINT))


def marks_in(block: Block) -> tuple[int, ...]:
    """Places of the group columns whose marks the clauses after grouping read."""
    nodes = [*(output.expression for output in block.outputs), *block.partition]
    nodes += [node for node in (block.having, block.qualify) if node is not None]
    nodes += [node for call in block.analytic for node in (*call.arguments, *(each for each, _, _ in call.order))]
    names = {found.name for node in nodes for found in node.find_all(exp.Column) if not found.table}
    return tuple(index for index in range(len(block.group or ())) if mark_name(index) in names)


def mark_outputs(block: Block) -> tuple[Output, ...]:
    """Columns for the marks that the clauses after grouping read."""
    names = [mark_name(index) for index in marks_in(block)]
    return tuple(Output(name, column(name), t.BIGINT) for name in names)


# The columns of a block: the scope of its inputs, the types of what its clauses can read, and what they do read.


def inputs_of(block: Block) -> Inputs:
    """Scope of a block's inputs, for expressions that are elaborated already."""
    return Inputs(tuple(_part(each) for each in block.inputs))


def _part(each: From) -> FromItem:
    source = each.source
    if isinstance(source, Relation):
        return FromItem(each.alias, source.name, source, (*source.columns, *source.hidden), {})
    return FromItem(each.alias, each.alias, source, outputs_of(source), dict(META_COLUMNS))


def expressions_of(block: Block) -> Iterator[exp.Expression]:
    """Expressions of all clauses of a block, but for those that only streams have."""
    singles = (block.where, block.having, block.qualify, *(each.on for each in block.inputs), *block.partition)
    yield from (node for node in singles if node is not None)
    for output in (*block.outputs, *block.expand, *(block.group or ())):
        yield output.expression
    for call in block.calls:
        yield from call.arguments
        if call.filter is not None:
            yield call.filter
    for analytic in block.analytic:
        yield from (*analytic.arguments, *(node for node, _, _ in analytic.order))


class ReadableColumns:
    """The scope of a block's clauses after WHERE and grouping, for expressions that are elaborated already."""

    def __init__(self, block: Block) -> None:
        self._inputs = inputs_of(block)
        plain = (*(block.group or ()), *block.expand, *mark_outputs(block), *BOUNDS)
        types = {ITEM: INT, **{each.name: each.type for each in plain}}
        self._plain: dict[str, SqlType] = types | {call.name: call.type for call in block.calls}

    def resolve(self, column: exp.Column) -> Typed:
        """Find the type of a column."""
        return self._inputs.resolve(column) if column.table else Typed(column, self._plain[column.name])


def row_identity(block: Block) -> list[exp.Expression]:
    """Columns that identify a row of the block, after grouping if it groups, as far as they can be read."""
    if block.group is None:
        return identity(block)
    bounds = BOUNDS if block.window is not None else ()
    return [column(each.name) for each in (*block.group, *bounds)]


def places_in(trees: Iterable[exp.Expression]) -> list[Place]:
    """Columns of this query, not of the outer one, that some expressions read, in the order of the text."""
    found = (node for tree in trees for node in columns_in(tree) if OUTER not in node.meta)
    return list(dict.fromkeys((node.table, node.name) for node in found))
