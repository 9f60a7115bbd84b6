"""What a pull query may have and a view may not: subqueries anywhere in an expression, an order, names as PostgreSQL
gives them, and the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sqlglot import exp
from sqlglot.expressions import DType

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.expressions.casts import widened
from strandline.jobs.query.expressions.infer import condition, infer
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.inputs import Inputs, Outer
from strandline.jobs.query.logical import From, NestedFound, OrderItem, Query, outputs_of
from strandline.jobs.query.subquery_values import is_quantified, membership, quantified
from strandline.jobs.sql.dialect import WRITTEN, NestedQuery, OuterValue, position_of, sql_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.trees import by_every, conjuncts, row_values

# Subqueries in the expressions of a pull query: they stay where they stand, as functions of the row around them.
#
#     (SELECT MAX(x) FROM t WHERE t.k = s.k)      __q0(s.k)              any query of one column, read where it stands
#     EXISTS (SELECT 1 FROM t WHERE t.k = s.k)    __q0(s.k)              true if it has a row
#     s.a IN (SELECT x FROM t)                    __q0(s.a)              true if one of its rows is s.a
#
# Nothing is maintained of a pull query, so a subquery may read the query around it anywhere, and at any depth.


@dataclass
class RowAround:
    """The row around a nested query, and the values that the query reads of it.

    Attributes:
        name: of the query.
        values: what it has read so far, as expressions of the query around it.
    """

    inputs: Inputs
    name: str
    values: list[exp.Expression] = field(default_factory=list)

    def find(self, column: exp.Column) -> Typed | None:
        """Resolve a name in the query around, as a value by its place. Raises as `Inputs.find`."""
        found = self.inputs.find(column)
        if found is None:
            return None
        if found.expression not in self.values:
            self.values.append(found.expression)
        place = str(self.values.index(found.expression))
        node = OuterValue(this=exp.to_identifier(self.name), place=place, to=data_type(found.type))
        return Typed(node, found.type)


def _check_named(tree: exp.Expr) -> None:
    """Check that a subquery says how many columns it has. Raises InvalidQuery."""
    query = tree.unnest()
    if isinstance(query, exp.Query) and query.is_star:
        raise InvalidQuery(
            f"{sql_of(query)} does not say which columns are compared", hint="name them in the place of *"
        ).placed(*position_of(query))


class NestedQueries:
    """The subqueries in the expressions of one SELECT of a pull query."""

    def __init__(self, inputs: Inputs, found: NestedFound, read: Callable[[exp.Expr, Outer], Query]) -> None:
        """Begin with none; `found` takes them, `read` reads one inside the row around it."""
        self._inputs = inputs
        self._nested = found
        self._read_inside = read
        self._read: dict[str, Typed] = {}

    @property
    def froms(self) -> list[From]:
        """The inputs that they become: none."""
        return []

    @property
    def values(self) -> list[From]:
        """Those of the inputs that stand for a value: none."""
        return []

    def where(self, tree: exp.Expr) -> list[exp.Expression]:
        """Elaborate the terms of a WHERE. Raises as `condition`."""
        return conjuncts(condition(tree, self._inputs, "WHERE", self.read))

    def value_of(self, _node: exp.Column) -> Typed | None:
        """None: a subquery stays where it stands."""
        return None

    def read(self, node: exp.Expression, _typed: Infer) -> Typed | None:
        """Elaborate a subquery to a value; return None for any other node.

        Raises:
            InvalidQuery: it has several columns.
            TypeMismatch: IN looks for what cannot be among its rows.
        """
        asked = isinstance(node, exp.Exists | exp.Subquery) or (isinstance(node, exp.In) and node.args.get("query"))
        if is_quantified(node):
            _check_named(node.expression.this)
            return infer(quantified(node, *self._values(node.this)), self._inputs, self.read)
        if not asked:
            return None
        if isinstance(node, exp.In) and len(row_values(node.this)) > 1:
            _check_named(node.args["query"])
            return infer(membership(node, *self._values(node.this)), self._inputs, self.read)
        text = sql_of(node)
        if text not in self._read:
            made = self._made(node)
            made.expression.meta[WRITTEN] = text
            self._read[text] = made
        found = self._read[text]
        return Typed(found.expression.copy(), found.type)

    def _values(self, node: exp.Expr) -> list[exp.Expression]:
        """The value, or those of (a, b), that are compared with a subquery's."""
        return [infer(each, self._inputs, self.read).expression for each in row_values(node)]

    def _made(self, node: exp.Expression) -> Typed:
        match node:
            case exp.Exists():
                around, _ = self._query(node.this)
                return self._value(around, "exists", t.BOOLEAN)
            case exp.In():
                return self._member(node)
            case _:
                around, query = self._query(node)
                return self._value(around, "value", _only_column(query, "a subquery that stands for a value has"))

    def _member(self, node: exp.In) -> Typed:
        value = infer(node.this, self._inputs, self.read)
        around, query = self._query(node.args["query"])
        own = _only_column(query, "IN takes a subquery with")
        shared = t.common_type(value.type, own)
        if shared is None:
            raise TypeMismatch(
                f"cannot look for {value.type} among {own}: {sql_of(node)}", hint="convert one with CAST(… AS …)"
            )
        return self._value(around, "member", t.BOOLEAN, widened(value, shared))

    def _query(self, tree: exp.Expr) -> tuple[RowAround, Query]:
        """A query read inside the row around it, and noted."""
        while isinstance(tree, exp.Subquery):
            tree = tree.this
        around = RowAround(self._inputs, self._nested.name())
        query = self._read_inside(tree, around)
        self._nested.queries[around.name] = query
        return around, query

    def _value(self, around: RowAround, form: str, sql_type: SqlType, member: Typed | None = None) -> Typed:
        node = NestedQuery(
            this=exp.to_identifier(around.name),
            form=form,
            to=data_type(sql_type),
            member=member.expression if member is not None else None,
            expressions=around.values,
        )
        return Typed(node, sql_type)


def _only_column(query: Query, words: str) -> SqlType:
    columns = outputs_of(query)
    if len(columns) != 1:
        raise InvalidQuery(f"{words} one column, not {len(columns)}")
    return columns[0][1]


# ORDER BY of a pull query: each item is a column of the answer, or one that is computed beside it and not shown.
#
# SELECT a, b + 1 AS c FROM s ORDER BY 1, c DESC, b      a, c DESC, __o0        with b AS __o0

HIDDEN: Final = "__o"
"""How the names of the outputs begin that are not shown."""


def order_items(query: exp.Query) -> list[exp.Expr]:
    """Items of a query's ORDER BY."""
    clause = query.args.get("order")
    return list(clause.expressions) if clause is not None else []


def shown_item(item: exp.Expr, names: Sequence[str]) -> OrderItem | None:
    """Match an item with a column of the answer, by place or name; None if it is another value.

    Raises:
        InvalidQuery: there are not as many columns.
    """
    node = item.this
    if isinstance(node, exp.Literal) and node.is_int:
        return item_of(item, names[place_of(node, len(names), "ORDER BY")])
    named = isinstance(node, exp.Column) and not node.table and node.name in names
    return item_of(item, node.name) if named else None


def read_order(
    items: Sequence[exp.Expr], outputs: Sequence[Output], typed: Callable[[exp.Expr], Typed], *, distinct: bool
) -> tuple[tuple[Output, ...], tuple[OrderItem, ...]]:
    """Read ORDER BY; return the outputs, with further ones that only ORDER BY reads, and the order.

    Args:
        typed: elaborates an expression of the SELECT.
        distinct: each row is given once, so that there is no further output.

    Raises:
        SqlError: an item is not valid, or with DISTINCT not selected; with its position.
    """
    names, every, order = [output.name for output in outputs], list(outputs), []
    for item in by_every(items, len(names)):
        found = shown_item(item, names)
        if found is None:
            value = typed(item.this)
            made = next((each for each in every if each.expression == value.expression), None)
            if made is None:
                if distinct:
                    raise not_selected(item, names, "SELECT DISTINCT")
                made = Output(f"{HIDDEN}{len(every) - len(outputs)}", value.expression, value.type)
                every.append(made)
            found = item_of(item, made.name)
        order.append(found)
    return tuple(every), tuple(order)


def set_order(tree: exp.Query, query: Query) -> tuple[OrderItem, ...]:
    """Read the ORDER BY of a UNION, INTERSECT or EXCEPT, over the columns of its answer.

    Raises:
        UnknownName, InvalidQuery: an item is no column of the answer.
    """
    names = [name for name, _ in outputs_of(query)]
    order = []
    for item in by_every(order_items(tree), len(names)):
        found = shown_item(item, names)
        if found is None:
            raise not_selected(item, names, tree.key.upper())
        order.append(found)
    return tuple(order)


def item_of(item: exp.Expr, column: str) -> OrderItem:
    """Order by a column as an item says."""
    return OrderItem(column, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))


def not_selected(item: exp.Expr, names: Sequence[str], what: str) -> SqlError:
    """Error for an item that is no column of the answer, where ORDER BY must name one."""
    line, column = position_of(item.this)
    if isinstance(item.this, exp.Column) and not item.this.table:
        return UnknownName.among(f"column of {what}", item.this.name, names, line=line, column=column)
    return InvalidQuery(
        f"ORDER BY {sql_of(item.this)}: {what} is ordered by the columns that it selects",
        line=line,
        column=column,
        hint="select it, and order by its name or its place",
    )


def place_of(node: exp.Literal, count: int, clause: str) -> int:
    """Place, from 0, that a whole number names.

    Raises:
        InvalidQuery: the SELECT list is shorter.
    """
    number = int(node.name)
    if not 1 <= number <= count:
        raise InvalidQuery(f"{clause} {number}: the SELECT list has {count} columns").placed(*position_of(node))
    return number - 1


# The names that PostgreSQL gives to the columns of an answer that nobody named, as its clients expect them.
#
# COUNT(*), SUM(a) OVER (…)   count, sum          a::int, x[1], (a)      a, x, a
# 'x'::text, TRUE             text, bool          CASE … END             case, or the name of what ELSE gives
# (SELECT MAX(a) FROM t)      max                 a + 1, 'x', NOT b      ?column?

Unnamed = Literal["ksql", "postgres"]
"""Whose names the columns get that nobody named: `ksql_col_0`, …, or those of this module."""
NAMELESS: Final = "?column?"
_TYPES: Final = {
    DType.BOOLEAN: "bool",
    DType.INT: "int4",
    DType.BIGINT: "int8",
    DType.DOUBLE: "float8",
    DType.DECIMAL: "numeric",
    DType.VARCHAR: "text",
    DType.VARBINARY: "bytea",
}
"""PostgreSQL's own names where they are not the language's in small letters."""
_CALLS: Final = {
    "LOCATE": "position",
    **dict.fromkeys(("JSON_GET", "JSON_GET_TEXT", "JSON_PATH", "JSON_PATH_TEXT", "REGEXP_LIKE"), ""),
}
"""PostgreSQL's names of calls that are written in another way there; its operators have none."""
_OWN: Final[dict[type[exp.Expr], Callable[[exp.Expr], str]]] = {
    exp.Alias: lambda node: node.alias,
    exp.Column: lambda node: node.name,
    exp.Dot: lambda node: str(node.args["expression"].name),
    exp.Anonymous: lambda node: _CALLS.get(node.name, node.name.lower()),
    exp.Array: lambda _: "array",
    exp.Exists: lambda _: "exists",
    exp.WithinGroup: lambda node: node.this.name.lower(),
}
"""What has a name of its own."""
_AROUND: Final = (exp.Paren, exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.Bracket)
"""What stands around a value without giving it another name."""


def column_name(node: exp.Expr) -> str:
    """Name an item of a SELECT list without AS."""
    return _named(node)[0] or NAMELESS


def _named(node: exp.Expr) -> tuple[str, bool]:
    """Name of a node, empty if there is none, and whether it is its own. A name by CASE or by a type gives way to one
    inside."""
    if type(node) in _OWN:
        name = _OWN[type(node)](node)
        return name, name != ""
    match node:
        case exp.Subquery() if isinstance(node.this, exp.Query) and node.this.selects:
            return _named(node.this.selects[0])
        case exp.Case():
            return _or_else(node.args.get("default"), "case")
        case exp.Cast() | exp.TryCast():
            kind = node.to.this
            return _or_else(node.this, _TYPES.get(kind, str(getattr(kind, "value", kind)).lower()))
        case exp.Boolean():
            return "bool", False
        case _ if isinstance(node, _AROUND):
            return _named(node.this)
        case _:
            return "", False


def _or_else(inner: exp.Expr | None, name: str) -> tuple[str, bool]:
    """Name of the inner node if it is its own, else this one."""
    found, own = _named(inner) if inner is not None else ("", False)
    return (found, True) if own else (name, False)
