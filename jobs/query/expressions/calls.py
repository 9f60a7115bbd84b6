"""Calls of scalar functions over arguments that are elaborated already.

A rewrite of one function into others types its arguments once, and calls the others over what came of it: an elaborated
expression may read columns that no name of the query means, such as that of a subquery that stands for a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.functions.registry import find
from strandline.jobs.functions.scalars.contract import Scalar
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.casts import widened
from strandline.jobs.query.expressions.coercion import together
from strandline.jobs.query.expressions.nested import is_constant
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.types_text import data_type


def called(name: str, *arguments: Typed) -> Typed:
    """The call of a registered function. Raises as `call_of`."""
    scalar = find(name)
    assert scalar is not None, name
    return call_of(scalar, name, arguments)


def call_of(scalar: Scalar, name: str, arguments: Sequence[Typed]) -> Typed:
    """The call of a function under the name that was written.

    Raises:
        TypeMismatch: the arguments do not fit.
        InvalidQuery: one must be a constant, or is a constant that the function does not know.
    """
    values = together(arguments) if scalar.alike else list(arguments)
    scalar = _for_types(scalar, values)
    wanted, result = scalar.signature(name, tuple(each.type for each in values))
    parts = [widened(each, sql_type).expression for each, sql_type in zip(values, wanted, strict=True)]
    for index in scalar.constant:
        if index < len(parts) and not is_constant(parts[index]):
            raise InvalidQuery(f"argument {index + 1} of {name} must be a constant, not {sql_of(parts[index])}")
    if scalar.check is not None:
        scalar.check([part.name if isinstance(part, exp.Literal) else None for part in parts])
    made: exp.Expression = exp.Anonymous(this=scalar.name, expressions=parts)
    return Typed(exp.Cast(this=made, to=data_type(result)) if scalar.exact else made, result)


def _for_types(scalar: Scalar, arguments: Sequence[Typed]) -> Scalar:
    """The function, or the one that replaces it for arguments of that type."""
    base = next((each.type.base for each in arguments if each.type.base is not BaseType.NULL), BaseType.NULL)
    return find(dict(scalar.instead).get(base, "")) or scalar
