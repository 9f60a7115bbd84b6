"""ORDER BY of a pull query: each item is a column of the answer, or one that is computed beside it and not shown.

SELECT a, b + 1 AS c FROM s ORDER BY 1, c DESC, b      a, c DESC, __o0        with b AS __o0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, SqlError, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.query.logical.keys import outputs_of
from strandline.jobs.query.logical.pull import OrderItem
from strandline.jobs.query.logical.query import Query
from strandline.jobs.sql.dialect import position_of, sql_of

HIDDEN: Final = "__o"
"""How the names of the outputs begin that are not shown."""


def order_items(query: exp.Query) -> list[exp.Expr]:
    """The items of a query's ORDER BY."""
    clause = query.args.get("order")
    return list(clause.expressions) if clause is not None else []


def shown_item(item: exp.Expr, names: Sequence[str]) -> OrderItem | None:
    """The item as a column of the answer, by its place or its name; None where it is another value.

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
    """The outputs, with those behind them that only ORDER BY reads, and the order.

    Args:
        typed: elaborates an expression of the SELECT.
        distinct: each row is given once, so that there is no further output.

    Raises:
        SqlError: an item is not valid, or with DISTINCT not selected; with its position.
    """
    names, every, order = [output.name for output in outputs], list(outputs), []
    for item in items:
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
    """The ORDER BY of a UNION, INTERSECT or EXCEPT, over the columns of its answer.

    Raises:
        UnknownName, InvalidQuery: an item is no column of the answer.
    """
    names = [name for name, _ in outputs_of(query)]
    order = []
    for item in order_items(tree):
        found = shown_item(item, names)
        if found is None:
            raise not_selected(item, names, tree.key.upper())
        order.append(found)
    return tuple(order)


def item_of(item: exp.Expr, column: str) -> OrderItem:
    """The item over a column."""
    return OrderItem(column, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))


def not_selected(item: exp.Expr, names: Sequence[str], what: str) -> SqlError:
    """The error of an item that is no column of the answer, in a query that is ordered by those alone."""
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
    """The place that a whole number names, from 0.

    Raises:
        InvalidQuery: the SELECT list is shorter.
    """
    number = int(node.name)
    if not 1 <= number <= count:
        line, column = position_of(node)
        raise InvalidQuery(f"{clause} {number}: the SELECT list has {count} columns", line=line, column=column)
    return number - 1
