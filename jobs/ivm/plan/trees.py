"""Operations of the planner on expressions: references to columns, conjunction, numbers."""

from __future__ import annotations

from sqlglot import exp

from jobs.sql.trees import call, conjuncts, identifier


def named(name: str, alias: str = "") -> exp.Column:
    """A reference to a column, plain or qualified."""
    qualifier = identifier(alias) if alias else None
    return exp.Column(this=identifier(name), table=qualifier)


def all_of(*conditions: exp.Expression | None) -> exp.Expression | None:
    """All conditions joined by AND; None when there are none."""
    parts = [part for condition in conditions for part in conjuncts(condition)]
    made: exp.Expression | None = None
    for part in parts:
        side = exp.Paren(this=part.copy()) if isinstance(part, exp.Or) and len(parts) > 1 else part.copy()
        made = side if made is None else exp.And(this=made, expression=side)
    return made


def number(value: int) -> exp.Expression:
    """A whole number."""
    literal = exp.Literal.number(abs(value))
    return exp.Neg(this=literal) if value < 0 else literal


def greatest(values: list[exp.Expression]) -> exp.Expression:
    """The greatest of some values; NULLs are passed over."""
    return values[0] if len(values) == 1 else call("GREATEST", *values)
