"""Arithmetic: the types of number literals and of `+ - * / %`.

Integers divide towards zero. DECIMAL follows Spark's rules for digits, with an explicit CAST, and the operator carries
the types of its operands: by them DuckDB, whose own rules differ, is told how to compute it
(`jobs.functions.scalars.decimals`). What has no value, by zero or out of range, is NULL here; what that means,
`jobs.functions.failing` says.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.functions.scalars.contract import TOTAL
from strandline.jobs.functions.scalars.decimals import OPERANDS, is_wide
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType, as_decimal, common_type
from strandline.jobs.query.expressions.casts import beside, widened
from strandline.jobs.query.expressions.scope import Typed, binary
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import call
from strandline.jobs.sql.types_text import data_type

_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
# Spark gives a quotient at least this many digits after the point.
_QUOTIENT_SCALE = 6


def literal(node: exp.Literal) -> Typed:
    """A literal with its type: VARCHAR, or INT, BIGINT or DECIMAL by its digits, DOUBLE when it has an exponent.

    Raises:
        InvalidQuery: it has more digits than a DECIMAL.
    """
    text = node.name
    made = exp.Literal(this=text, is_string=node.is_string)
    if node.is_string:
        return Typed(made, t.VARCHAR)
    if "e" in text.lower():
        return Typed(made, t.DOUBLE)
    whole, _, fraction = text.partition(".")
    digits = len(whole.lstrip("0"))
    if digits + len(fraction) > t.MAX_PRECISION:
        raise InvalidQuery(f"{text} has more than {t.MAX_PRECISION} digits", hint="1e40 is a DOUBLE")
    if "." in text:
        return Typed(made, t.decimal(max(digits + len(fraction), 1), len(fraction)))
    if int(text) < 2**31:
        return Typed(made, t.INT)
    return Typed(made, t.BIGINT if int(text) < 2**63 else t.decimal(digits, 0))


def negated(value: Typed) -> Typed:
    """`-value`.

    Raises:
        TypeMismatch: the value is not a number.
    """
    if not value.type.is_numeric:
        raise TypeMismatch(f"- takes a number, not {value.type}: {sql_of(value.expression)}")
    if is_wide(value.type):
        return Typed(exp.Cast(this=call("OPPOSITE", value.expression), to=data_type(value.type)), value.type)
    made = exp.Neg(this=value.expression)
    if value.type.base in (BaseType.DECIMAL, BaseType.DOUBLE):
        made.meta[TOTAL] = True
    return Typed(made, value.type)


def of_bits(node: exp.Binary, left: Typed, right: Typed) -> Typed:
    """`a & b` and `a | b` of whole numbers, by the wider of their types.

    Raises:
        TypeMismatch: an operand is no INT or BIGINT.
    """
    sides = (left, right)
    wrong = next((side for side in sides if side.type.base not in (BaseType.INT, BaseType.BIGINT, BaseType.NULL)), None)
    if wrong is not None:
        raise TypeMismatch(f"& and | take INT or BIGINT, not {wrong.type}: {sql_of(node)}")
    sql_type = t.BIGINT if any(side.type.base is BaseType.BIGINT for side in sides) else t.INT
    return Typed(binary(type(node), *(widened(side, sql_type) for side in sides)), sql_type)


def arithmetic(operator: type[exp.Binary], left: Typed, right: Typed) -> Typed:
    """The expression `left operator right`, with the type of its result.

    Raises:
        TypeMismatch: the operands are not two numbers (`+` also joins two texts).
    """
    sql_type = common_type(left.type, right.type)
    if operator is exp.Add and sql_type == t.VARCHAR:
        return Typed(exp.DPipe(this=left.expression, expression=right.expression, safe=True), t.VARCHAR)
    if sql_type is None or not (sql_type.is_numeric or sql_type.base is BaseType.NULL):
        raise TypeMismatch(
            f"{_SIGNS[operator]} takes numbers, not {left.type} and {right.type}:"
            f" {sql_of(operator(this=left.expression.copy(), expression=right.expression.copy()))}",
            hint="convert with CAST(… AS …)",
        )
    if sql_type.base is BaseType.DECIMAL:
        return _decimals(operator, left, right)
    sql_type = t.INT if sql_type.base is BaseType.NULL else sql_type
    left, right = beside(left, sql_type), beside(right, sql_type)
    if operator is exp.Div and sql_type.base is not BaseType.DOUBLE:
        quotient = exp.Anonymous(this="DIV", expressions=[left.expression, right.expression])
        return Typed(exp.Cast(this=quotient, to=data_type(sql_type)), sql_type)
    return Typed(binary(operator, left, right), sql_type)


def _decimals(operator: type[exp.Binary], left: Typed, right: Typed) -> Typed:
    sides = [widened(side, t.BIGINT if side.type.base is BaseType.NULL else side.type) for side in (left, right)]
    left, right = (widened(side, as_decimal(side.type)) for side in sides)
    made = binary(operator, left, right)
    sql_type = _decimal_type(operator, left.type, right.type)
    operands = (left.type.precision, left.type.scale, right.type.precision, right.type.scale)
    made.meta[OPERANDS] = (*operands, sql_type.precision, sql_type.scale)
    return Typed(exp.Cast(this=made, to=data_type(sql_type)), sql_type)


def _decimal_type(operator: type[exp.Binary], left: SqlType, right: SqlType) -> SqlType:
    """The result type by Spark's rules (its class DecimalPrecision)."""
    p1, s1, p2, s2 = left.precision, left.scale, right.precision, right.scale
    scale = max(s1, s2)
    if operator is exp.Mul:
        return t.decimal(p1 + p2 + 1, s1 + s2)
    if operator is exp.Div:
        scale = max(_QUOTIENT_SCALE, s1 + p2 + 1)
        return t.decimal(p1 - s1 + s2 + scale, scale)
    if operator is exp.Mod:
        return t.decimal(min(p1 - s1, p2 - s2) + scale, scale)
    return t.decimal(max(p1 - s1, p2 - s2) + scale + 1, scale)
