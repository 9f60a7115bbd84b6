"""Functions that users wrote, as the language sees them: their types, their names, and the calls of them.

`jobs.functions.python` runs them. In the text of a stage they have `registered` names, so that they never clash
with a function of an engine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import pairwise
from typing import TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.functions.scalars.contract import Scalar, takes
from strandline.jobs.model.definitions import Function
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.sql.from_text import tokenize

E = TypeVar("E", bound=exp.Expr)
_META = "function"

FOLD, MERGE, FINISH = "fold", "merge", "finish"
"""The parts of an aggregate, each a scalar function of the engines."""


def registered(function: Function) -> str:
    """The name of a function in the engines and in the expressions of a stage.

    The name changes with the function's code and types: so do the fingerprints of the views that call it.
    """
    types = ", ".join(str(parameter.type) for parameter in function.parameters)
    parts = (types, function.returns, function.module, function.attribute, function.source, function.retracts)
    version = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]
    return f"py_{function.name.lower()}_{version}"


def part_of(name: str, part: str) -> str:
    """The name in the engines of a part of an aggregate, given the aggregate's registered name."""
    return f"{name}__{part}"


def scalar_of(function: Function) -> Scalar:
    """The function as a scalar of the language; arguments widen to the declared types.

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
    """Note at each call which function it calls, before the query is read."""
    for node in tree.find_all(exp.Anonymous):
        if node.name in functions:
            node.meta[_META] = functions[node.name]
    return tree


def function_at(node: exp.Expr) -> Function | None:
    """The function that a user wrote and that is called here; None for anything else."""
    found: Function | None = node.meta.get(_META) if isinstance(node, exp.Anonymous) else None
    return found


def calls(text: str, function: str) -> bool:
    """True if a query's text calls the function of that upper-case name."""
    return any(
        token.text.upper() == function and after.token_type is TokenType.L_PAREN
        for token, after in pairwise(tokenize(text))
    )
