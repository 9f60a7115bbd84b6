"""Functions that users wrote, as the language sees them: what they take and give, and who calls them.

`jobs.functions` runs them; here they are names and types. In the text of a stage they go by `registered` names, so that
they never meet a function of an engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from jobs.functions.scalars.contract import Scalar, takes
from jobs.model.definitions import Function
from jobs.model.errors import InvalidQuery
from jobs.sql.from_text import tokenize

E = TypeVar("E", bound=exp.Expr)
_META = "function"

FOLD, MERGE, FINISH = "fold", "merge", "finish"
"""The parts of an aggregate, each a scalar function of the engines."""


def registered(function: Function) -> str:
    """What the engines, and the expressions of a stage, call a function.

    The name changes with the function's code and types: so do the fingerprints of the views that call it.
    """
    kinds = ", ".join(str(parameter.type) for parameter in function.parameters)
    parts = (kinds, function.returns, function.module, function.attribute, function.source, function.retracts)
    version = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]
    return f"py_{function.name.lower()}_{version}"


def part_of(name: str, part: str) -> str:
    """What they call a part of an aggregate that has that registered name."""
    return f"{name}__{part}"


def scalar_of(function: Function) -> Scalar:
    """One as a scalar of the language; arguments widen to the declared types.

    Raises:
        InvalidQuery: it is an aggregate.
    """
    if function.aggregate:
        raise InvalidQuery(
            f"the aggregate {function.name} cannot stand here",
            hint="aggregates belong into the SELECT list or HAVING of a query with GROUP BY, and not into each other",
        )
    signature = takes(function.returns, *(parameter.type for parameter in function.parameters))
    name = registered(function)
    return Scalar(name.upper(), signature, name)


def attach(tree: E, functions: Mapping[str, Function]) -> E:
    """Note at each call what function it is, before the query is read."""
    for node in tree.find_all(exp.Anonymous):
        if node.name in functions:
            node.meta[_META] = functions[node.name]
    return tree


def function_at(node: exp.Expr) -> Function | None:
    """The function that a user wrote and that is called here; None for anything else."""
    found: Function | None = node.meta.get(_META) if isinstance(node, exp.Anonymous) else None
    return found


def calls(text: str, function: str) -> bool:
    """Whether a query's text calls the function of that upper-case name."""
    return any(
        token.text.upper() == function and after.token_type is TokenType.L_PAREN
        for token, after in pairwise(tokenize(text))
    )
