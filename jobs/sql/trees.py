"""Helpers for small sqlglot trees that many modules make or take apart: identifiers, calls, conditions."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

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


def is_not_null(value: exp.Expression) -> exp.Not:
    """The condition that a value is not NULL."""
    return exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))


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
