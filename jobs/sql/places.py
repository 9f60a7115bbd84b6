"""Columns in expressions by their places, and expressions put in their stead.

A column's *place* is (alias, name); plain names have the alias `""`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.stage import AnalyticCall
from strandline.jobs.sql.trees import conjuncts

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
        if isinstance(part, exp.Column) and not _is_parameter(part):
            yield part


def replaced(node: exp.Expression, values: Mapping[Place, exp.Expression]) -> exp.Expression:
    """A copy with other expressions where the columns of `values` stood; other columns stay. Marks stay too."""

    def change(part: exp.Expr) -> exp.Expr:
        if not isinstance(part, exp.Column) or _is_parameter(part):
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


def _is_parameter(column: exp.Column) -> bool:
    """True if a plain name is a parameter of a lambda that it stands in."""
    if column.table:
        return False
    node = column.parent
    while node is not None:
        if isinstance(node, exp.Lambda) and any(each.name == column.name for each in node.expressions):
            return True
        node = node.parent
    return False
