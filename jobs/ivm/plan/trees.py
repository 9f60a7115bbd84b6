"""Operations of the planner on expressions: references to columns, numbers."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.sql.trees import call, identifier


def named(name: str, alias: str = "") -> exp.Column:
    """A reference to a column, plain or qualified."""
    qualifier = identifier(alias) if alias else None
    return exp.Column(this=identifier(name), table=qualifier)


def number(value: int) -> exp.Expression:
    """A whole number."""
    literal = exp.Literal.number(abs(value))
    return exp.Neg(this=literal) if value < 0 else literal


def greatest(values: list[exp.Expression]) -> exp.Expression:
    """The greatest of some values; NULLs are passed over."""
    return values[0] if len(values) == 1 else call("GREATEST", *values)
