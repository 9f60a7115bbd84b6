"""Constant expressions of `INSERT INTO … VALUES`, evaluated to Python values of the columns' types.

There are two steps, as everywhere in SQL: an expression has a value of its own type (1.5 is a DECIMAL, 1e0 a DOUBLE),
and assigning it to a column widens it or is an error (`jobs.session.conversions`). A text literal alone takes the type
of its column: '12' is a number for a BIGINT.
"""

from __future__ import annotations

import base64
import operator
from collections.abc import Callable
from decimal import Decimal, DecimalException, localcontext
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch
from strandline.jobs.model.types import MAX_PRECISION
from strandline.jobs.serve.format import cell
from strandline.jobs.session.conversions import assign, assign_text, convert
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.types_text import type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.types import SqlType

_Number = int | float | Decimal

_ARITHMETIC: dict[type[exp.Expr], Callable[[_Number, _Number], _Number]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: lambda a, b: _whole(a, b) if isinstance(a, int) and isinstance(b, int) else operator.truediv(a, b),
    exp.Mod: lambda a, b: a - b * _whole(a, b) if isinstance(a, int) and isinstance(b, int) else operator.mod(a, b),
}
_DECODERS: dict[str, Callable[[str], bytes]] = {
    "hex": lambda text: bytes.fromhex(text.removeprefix("0x")),
    "utf8": lambda text: text.encode("utf-8"),
    "ascii": lambda text: text.encode("ascii"),
    "base64": lambda text: base64.b64decode(text, validate=True),
}


def evaluate(expression: exp.Expr, sql_type: SqlType, column: str) -> object:
    """The value of a constant expression as a value of `column`.

    Raises:
        TypeMismatch: the value does not fit the column's type; nothing is converted with loss.
        InvalidQuery: it cannot be computed (a division by zero).
        NotSupported: the expression is not a constant; the message shows it.
    """
    try:
        name = f"column '{column}'"
        if isinstance(expression, exp.Literal) and expression.is_string:
            return assign_text(expression.name, sql_type, name)
        return assign(value_of(expression), sql_type, name)
    except SqlError as error:
        if error.line is not None:
            raise
        line, place = position_of(expression)
        raise type(error)(error.message, line=line, column=place, hint=error.hint) from error


def value_of(node: exp.Expr) -> object:
    """The value of a constant expression, in its own type. Raises as `evaluate` does."""
    evaluator = _EVALUATORS.get(type(node))
    if evaluator is None:
        raise _not_constant(node)
    return evaluator(node)


def _call_value(call: exp.Anonymous) -> object:
    arguments: Sequence[exp.Expr] = call.expressions
    if call.name in ("MAP", "STRUCT") and all(isinstance(item, exp.PropertyEQ) for item in arguments):
        pairs = ((_member_name(item.this), value_of(item.expression)) for item in arguments)
        return {key if isinstance(key, str) else cell(key): value for key, value in pairs}
    if call.name == "TO_BYTES" and len(arguments) == 2:
        text, encoding = (value_of(item) for item in arguments)
        decoder = _DECODERS.get(str(encoding).lower())
        if decoder is None or not isinstance(text, str):
            raise InvalidQuery(f"{sql_of(call)}: the encodings are {', '.join(_DECODERS)}")
        try:
            return decoder(text)
        except ValueError as error:
            raise InvalidQuery(f"'{text}' is not {encoding}") from error
    raise _not_constant(call)


def _member_name(node: exp.Expr) -> object:
    return node.name if isinstance(node, exp.Identifier | exp.Column) else value_of(node)


def _number(text: str) -> _Number:
    if text.isdigit():
        return int(text)
    return float(text) if "e" in text.lower() else Decimal(text)


def _computed(operation: type[exp.Expr], left: object, right: object, node: exp.Expr) -> _Number | None:
    if left is None or right is None:
        return None
    for operand in (left, right):
        if isinstance(operand, bool) or not isinstance(operand, int | float | Decimal):
            raise TypeMismatch(f"{sql_of(node)}: {cell(operand)} is not a number")
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)  # type: ignore[arg-type]
    try:
        with localcontext(prec=MAX_PRECISION):
            result = _ARITHMETIC[operation](left, right)  # type: ignore[arg-type]
    except (ZeroDivisionError, DecimalException, OverflowError) as error:
        raise InvalidQuery(f"{sql_of(node)} has no value: it divides by zero, or is too large") from error
    return result


def _whole(left: int, right: int) -> int:
    """Division of integers, rounded towards zero as in Java (Python rounds down)."""
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _joined(left: object, right: object, node: exp.Expr) -> str | None:
    if left is None or right is None:
        return None
    if not isinstance(left, str) or not isinstance(right, str):
        raise TypeMismatch(f"{sql_of(node)}: || joins texts", hint="CAST(… AS VARCHAR)")
    return left + right


def _not_constant(node: exp.Expr) -> NotSupported:
    return NotSupported(
        f"{sql_of(node)} is not a constant: VALUES takes literals, arithmetic, CAST, ARRAY[…], MAP(…), STRUCT(…)",
        hint="INSERT INTO … SELECT computes from other columns",
    )


_EVALUATORS: dict[type[exp.Expr], Callable[[Any], object]] = {
    exp.Null: lambda _: None,
    exp.Boolean: lambda node: bool(node.this),
    exp.Literal: lambda node: str(node.this) if node.is_string else _number(node.this),
    exp.Paren: lambda node: value_of(node.this),
    exp.Neg: lambda node: _computed(exp.Sub, 0, value_of(node.this), node),
    exp.Cast: lambda node: convert(value_of(node.this), type_of(node.to)),
    exp.Array: lambda node: [value_of(item) for item in node.expressions],
    exp.Anonymous: _call_value,
    exp.DPipe: lambda node: _joined(value_of(node.left), value_of(node.right), node),
    **dict.fromkeys(_ARITHMETIC, lambda node: _computed(type(node), value_of(node.left), value_of(node.right), node)),
}
