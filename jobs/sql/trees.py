"""Helpers for small sqlglot trees that many modules make or take apart: identifiers, calls, conditions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from sqlglot import exp

from strandline.jobs.model.stage import AnalyticCall
from strandline.jobs.sql.dialect import needs_quotes


def identifier(name: str) -> exp.Identifier:
    """A name, quoted where the language asks for it."""
    return exp.Identifier(this=name, quoted=needs_quotes(name))


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of one of the language's functions, over copies of the arguments."""
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


def row_values(node: exp.Expr) -> list[exp.Expr]:
    """The values of a row (a, b); one value alone is its own."""
    inner = node
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return list(inner.expressions) if isinstance(inner, exp.Tuple) else [node]


# CREATE MATERIALIZED VIEW v (a, b) AS …, FROM (SELECT …) AS v (a, b): names for the columns of a query, written into
# it.
#
# SELECT x, SUM(y) FROM t GROUP BY x      SELECT x AS a, SUM(y) AS b FROM t GROUP BY x
# anything else                           SELECT * FROM (…) AS v (a, b)

_INSIDE = "named"
_PLACE = "column_"


def with_names(query: exp.Query, names: Sequence[str]) -> exp.Query:
    """The query whose first columns have these names."""
    if can_be_named(query, names):
        items = list(query.expressions)
        for place, name in enumerate(names):
            items[place] = exp.Alias(this=items[place].unalias(), alias=identifier(name))
        query.set("expressions", items)
        return query
    alias = exp.TableAlias(this=identifier(_INSIDE), columns=[identifier(name) for name in names])
    inner = exp.Subquery(this=query, alias=alias)
    return exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))


def told_apart(query: exp.Query) -> exp.Query:
    """The query, for who reads its columns by their places: where a SELECT shows one twice, with names for all."""
    items = query.expressions if isinstance(query, exp.Select) else []
    said = [each.alias or each.sql() for each in items if each.alias_or_name]
    names = [f"{_PLACE}{place}" for place, _ in enumerate(items, 1)]
    return with_names(query.copy(), names) if len(set(said)) < len(said) and can_be_named(query, names) else query


def can_be_named(select: exp.Expr, names: Sequence[str]) -> bool:
    """True for a SELECT where each name is of an item of the list, and no clause reads an item by the name that it has
    now."""
    if not isinstance(select, exp.Select):
        return False
    items = select.expressions
    if len(names) > len(items) or any(each.is_star for each in items):
        return False
    old = {each.alias for each in items if isinstance(each, exp.Alias)}
    read = {node.name for node in select.find_all(exp.Column) if not node.table}
    return not old & read and not set(names) & read


def by_every(items: Sequence[exp.Expr], columns: int) -> list[exp.Expr]:
    """The items of an ORDER BY; of ORDER BY ALL the places of so many columns."""
    if len(items) != 1 or not isinstance(items[0].this, exp.Var):
        return list(items)
    made = []
    for place in range(1, columns + 1):
        item = items[0].copy()
        item.set("this", exp.Literal.number(place))
        made.append(item)
    return made


def is_not_null(value: exp.Expression) -> exp.Not:
    """The condition that a value is not NULL."""
    return exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))


def where_both(first: exp.Expr, then: exp.Expr) -> exp.Where:
    """The condition of a FILTER that has two: of what the first one leaves out the other is not computed. AND would
    compute it where the first one is NULL.
    """
    return exp.Where(this=exp.Case(ifs=[exp.If(this=first.copy(), true=then.copy())]))


def conjuncts(condition: exp.Expression | None) -> list[exp.Expression]:
    """The conditions that AND joins, in order, without their parentheses; none without a condition."""
    if condition is None:
        return []
    while isinstance(condition, exp.Paren):
        condition = condition.this
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.this), *conjuncts(condition.expression)]
    assert isinstance(condition, exp.Expression)
    return [condition]


def all_of(*conditions: exp.Expression | None) -> exp.Expression | None:
    """All conditions joined by AND; None when there are none."""
    parts = [part for condition in conditions for part in conjuncts(condition)]
    made: exp.Expression | None = None
    for part in parts:
        side = exp.Paren(this=part.copy()) if isinstance(part, exp.Or) and len(parts) > 1 else part.copy()
        made = side if made is None else exp.And(this=made, expression=side)
    return made


def any_of(conditions: Iterable[exp.Expression | None]) -> exp.Expression | None:
    """The conditions joined by OR, in parentheses; None when there are none."""
    made: exp.Expression | None = None
    for condition in conditions:
        if condition is not None:
            made = condition if made is None else exp.Or(this=made, expression=condition)
    return exp.Paren(this=made) if made is not None else None


# Columns in expressions by their places, and expressions put in their stead.
#
# A column's *place* is (alias, name); plain names have the alias `""`.

Place = tuple[str, str]

MARK = "condition"
"""Key of a tree's `meta` under which a condition keeps the number that the planner knows it by."""

# Expressions that keep their meaning wherever they stand; any other gets parentheses when it takes a column's place.
_ATOMS = (exp.Column, exp.Literal, exp.Anonymous, exp.Cast, exp.Paren, exp.Null, exp.Boolean, exp.Case, exp.Bracket)


def place_of(node: exp.Expr) -> Place | None:
    """The place of an expression that is a column and nothing else."""
    return (node.table, node.name) if isinstance(node, exp.Column) else None


def columns_in(node: exp.Expr) -> Iterator[exp.Column]:
    """The columns that an expression reads; the parameters of its lambdas are none."""
    for part in node.walk():
        if isinstance(part, exp.Column) and not is_parameter(part):
            yield part


def replaced(node: exp.Expression, values: Mapping[Place, exp.Expression]) -> exp.Expression:
    """A copy with other expressions where the columns of `values` stood; other columns stay. Marks stay too."""

    def change(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or is_parameter(part):
            return part
        value = values.get((part.table, part.name))
        if value is None:
            return part
        alone = part.parent is None or isinstance(value, _ATOMS)
        put = value.copy()
        for each in conjuncts(put) if MARK in part.meta else ():
            each.meta[MARK] = part.meta[MARK]
        return put if alone else exp.Paren(this=put)

    made = node.copy().transform(change, copy=False)
    assert isinstance(made, exp.Expression)
    return made


def replaced_call(over: AnalyticCall, values: Mapping[Place, exp.Expression]) -> AnalyticCall:
    """A call of an analytic function with other expressions where the columns of `values` stood."""
    arguments = tuple(replaced(each, values) for each in over.arguments)
    order = tuple((replaced(each, values), down, nulls_first) for each, down, nulls_first in over.order)
    return replace(over, arguments=arguments, order=order)


def is_parameter(column: exp.Column) -> bool:
    """True if a plain name is a parameter of a lambda that it stands in."""
    if column.table:
        return False
    node = column.parent
    while node is not None:
        if isinstance(node, exp.Lambda) and any(each.name == column.name for each in node.expressions):
            return True
        node = node.parent
    return False


def constant_number(node: exp.Expr) -> int | None:
    """The whole number from 0 that an expression of constants is, as LIMIT and OFFSET take; None for any other."""
    found = _constant(node)
    return int(found) if found is not None and found >= 0 and found == int(found) else None


def _constant(node: exp.Expr | None) -> Decimal | None:
    if isinstance(node, exp.Literal):
        return Decimal(node.name) if _NUMBER.fullmatch(node.name) else None
    if isinstance(node, exp.Paren | exp.Cast):
        return _constant(node.this)
    if isinstance(node, exp.Neg):
        inner = _constant(node.this)
        return -inner if inner is not None else None
    if isinstance(node, exp.Add | exp.Sub | exp.Mul):
        left, right = _constant(node.left), _constant(node.right)
        if left is None or right is None:
            return None
        return (
            left + right if isinstance(node, exp.Add) else left - right if isinstance(node, exp.Sub) else left * right
        )
    return None


_NUMBER: Final = re.compile(r"\d{1,18}(\.\d{1,18})?")
