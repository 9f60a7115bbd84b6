"""Conditions: joining them by AND, the inputs that they read, and the equalities between inputs."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from strandline.jobs.query.logical.inputs import OUTER
from strandline.jobs.sql.trees import conjuncts


def conjoined(terms: Iterable[exp.Expression]) -> exp.Expression:
    """The conditions (at least one) joined by AND, an OR among them in parentheses."""
    made: exp.Expression | None = None
    for term in terms:
        each: exp.Expression = exp.Paren(this=term) if isinstance(term, exp.Or) else term
        made = each if made is None else exp.And(this=made, expression=each)
    assert made is not None
    return made


def aliases(node: exp.Expr) -> set[str]:
    """The aliases of the inputs that an elaborated expression reads, without those of the outer query."""
    return {found.table for found in node.find_all(exp.Column) if OUTER not in found.meta}


def is_equality(term: exp.Expr, alias: str, known: set[str]) -> bool:
    """True if a condition is `a = b` with one side over the input `alias` alone, the other over `known` inputs."""
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
