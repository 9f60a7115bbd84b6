"""Guards: conditions that a view's rows must meet, as terms of its WHERE. A row that does not fails there.

    MEETS(c, 'name')    true of the rows that stay; it fails on a row that does not meet it

So such a row goes the way of every row on which an expression fails (`jobs.functions.failing_rows`): it is kept out of
the view, and is in its dead letters until it is corrected.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.functions.scalars.contract import Scalar, Types
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.trees import call, conjuncts

MEETS = "MEETS"


def meets(condition: exp.Expression, name: str) -> exp.Anonymous:
    """The guard that asks for an elaborated condition; NULL does not meet it. `name` says what a row breaks."""
    return call(MEETS, condition, exp.Literal.string(name))


def is_guard(node: exp.Expr) -> bool:
    """True of a guard in the form that `meets` gives it."""
    return isinstance(node, exp.Anonymous) and node.name == MEETS


def guards_in(condition: exp.Expression | None) -> list[exp.Expression]:
    """The guards among the terms of a condition."""
    return [term for term in conjuncts(condition) if is_guard(term)]


def name_of(guard: exp.Expression) -> str:
    """What a row breaks that does not meet the guard."""
    return str(guard.expressions[1].name)


def _unmet(arguments: Sequence[exp.Expression]) -> exp.Expression:
    return exp.Not(this=call("COALESCE", arguments[0], exp.false()))


def _made(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what an expectation becomes; write WHERE", hint="or EXPECT, with quarantine: true")


GUARDS = (Scalar(MEETS, _made, "({0})", hidden=True, fails=_unmet),)
