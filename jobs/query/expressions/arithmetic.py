"""Arithmetic: the types of number literals and of `+ - * / %`, and sums of times with an INTERVAL.

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
from strandline.jobs.query.expressions.casts import beside, converted, widened
from strandline.jobs.query.expressions.scope import Infer, Typed, binary
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.time_clauses import IntervalNode
from strandline.jobs.sql.trees import call

_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
# Spark gives a quotient at least this many digits after the point.
_QUOTIENT_SCALE = 6


def literal(node: exp.Literal) -> Typed:
    """Type a literal: VARCHAR, or INT, BIGINT or DECIMAL by its digits, DOUBLE with an exponent.

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
    """Elaborate `-value`.

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


def of_bits(node: exp.Expression, *sides: Typed) -> Typed:
    """Elaborate `a & b`, `a | b`, `a # b` and `~a` of whole numbers, by the wider of their types.

    Raises:
        TypeMismatch: an operand is no INT or BIGINT.
    """
    wrong = next((side for side in sides if side.type.base not in (BaseType.INT, BaseType.BIGINT, BaseType.NULL)), None)
    if wrong is not None:
        raise TypeMismatch(f"bits are those of an INT or BIGINT, not of {wrong.type}: {sql_of(node)}")
    sql_type = t.BIGINT if any(side.type.base is BaseType.BIGINT for side in sides) else t.INT
    values = [widened(side, sql_type) for side in sides]
    if isinstance(node, exp.BitwiseNot):
        return Typed(exp.Paren(this=binary(exp.Sub, widened(_minus_one(), sql_type), values[0])), sql_type)
    if not isinstance(node, exp.BitwiseXor):
        return Typed(binary(type(node), *values), sql_type)
    return Typed(call("BITS_APART", *(value.expression for value in values)), sql_type)


def shifted(node: exp.Binary, left: Typed, right: Typed) -> Typed:
    """Elaborate `a << n` and `a >> n`: a times 2 to the n, which fails where that is too much, and a over it.

    Raises:
        TypeMismatch: `a` is no INT or BIGINT, or `n` no constant from 0 to 62.
    """
    size = right.expression
    number = int(size.name) if isinstance(size, exp.Literal) and right.type == t.INT else -1
    if not 0 <= number <= _MOST_BITS:
        raise TypeMismatch(f"bits are moved by a constant from 0 to {_MOST_BITS}: {sql_of(node)}")
    if left.type.base not in (BaseType.INT, BaseType.BIGINT, BaseType.NULL):
        raise TypeMismatch(f"bits are those of an INT or BIGINT, not of {left.type}: {sql_of(node)}")
    value = widened(left, t.BIGINT)
    if isinstance(node, exp.BitwiseRightShift):
        return Typed(call("BITS_DOWN", value.expression, exp.Literal.number(number)), t.BIGINT)
    factor = widened(literal(exp.Literal(this=str(2**number), is_string=False)), t.BIGINT)
    return arithmetic(exp.Mul, Typed(exp.Paren(this=value.expression), t.BIGINT), factor)


def _minus_one() -> Typed:
    return Typed(exp.Neg(this=exp.Literal.number(1)), t.INT)


def arithmetic(operator: type[exp.Binary], left: Typed, right: Typed) -> Typed:
    """Elaborate `left operator right`.

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


# Sums of dates and times with an INTERVAL.
#
# at + INTERVAL '1 day 2 hours'      ADD_MILLISECONDS(at, 93600000)
# at - INTERVAL '3' MONTH            ADD_MONTHS(at, -3)
# at + n * INTERVAL '1 second'        ADD_MILLISECONDS(at, n * 1000)
# day + INTERVAL '2' DAY             ADD_DAYS(day, 2): a DATE stays one while the length is whole days
# day + 2, day - other               ADD_DAYS(day, 2), the days between them
# clock + INTERVAL '5' MINUTE        ADD_TO_TIME(clock, 300000), round the clock

_DAY = 86_400_000
_MOST_BITS = 62
"""2 to the 62 is the greatest power of 2 that is a BIGINT."""
# From the year 1 to 9999.
_MOST_MONTHS = 9999 * 12


def with_interval(node: exp.Binary, typed: Infer) -> Typed | None:
    """Elaborate a sum or difference of a time and an INTERVAL; return None if neither side is one.

    Raises:
        TypeMismatch: the other side is no date or time, or a length is taken from it the wrong way round.
        InvalidQuery: no two dates lie so far apart.
    """
    left, right = (_bare(side) for side in (node.left, node.right))
    times = times_interval(right) if isinstance(node, exp.Add | exp.Sub) else None
    if times is not None:
        return _moved_often(typed(left), *times, node, typed)
    times = times_interval(left) if isinstance(node, exp.Add) else None
    if times is not None and not isinstance(right, IntervalNode):
        return _moved_often(typed(right), *times, node, typed)
    if not isinstance(left, IntervalNode) and not isinstance(right, IntervalNode):
        return None
    if isinstance(left, IntervalNode) and isinstance(node, exp.Add) and not isinstance(right, IntervalNode):
        left, right = right, left
    if isinstance(left, IntervalNode) or not isinstance(right, IntervalNode) or not isinstance(node, exp.Add | exp.Sub):
        raise _refused(node)
    sign = -1 if isinstance(node, exp.Sub) else 1
    months, milliseconds = (sign * part for part in right.parts)
    if abs(months) > _MOST_MONTHS or abs(milliseconds) > _MOST_MONTHS * 31 * _DAY:
        raise InvalidQuery(f"{sql_of(right)} is longer than all years that a DATE knows")
    return _moved(typed(left), months, milliseconds, node)


def of_days(node: exp.Binary, left: Typed, right: Typed) -> Typed | None:
    """Elaborate a DATE and a number of days, or the days between two DATEs; return None for any other operation."""
    days = (BaseType.INT, BaseType.BIGINT)
    if isinstance(node, exp.Add) and right.type.base is BaseType.DATE and left.type.base in days:
        left, right = right, left
    if left.type.base is not BaseType.DATE or not isinstance(node, exp.Add | exp.Sub):
        return None
    if right.type.base in days:
        number: exp.Expr = converted(right, t.INT).expression
        number = exp.Neg(this=exp.Paren(this=number.copy())) if isinstance(node, exp.Sub) else number
        return Typed(call("ADD_DAYS", left.expression, number), t.DATE)
    if right.type.base is BaseType.DATE and isinstance(node, exp.Sub):
        first, second = (call("UNIX_DATE", each.expression) for each in (left, right))
        return arithmetic(exp.Sub, Typed(first, t.INT), Typed(second, t.INT))
    return None


def times_interval(node: exp.Expr) -> tuple[exp.Expr, IntervalNode] | None:
    """The number and the INTERVAL of a product of both; None for any other value."""
    if not isinstance(node, exp.Mul):
        return None
    left, right = (_bare(side) for side in (node.left, node.right))
    if isinstance(right, IntervalNode) and not isinstance(left, IntervalNode):
        return left, right
    return (right, left) if isinstance(left, IntervalNode) and not isinstance(right, IntervalNode) else None


def _moved_often(value: Typed, number: exp.Expr, interval: IntervalNode, node: exp.Binary, typed: Infer) -> Typed:
    """A DATE or TIMESTAMP, and a length some number of times: what is no months is rounded to milliseconds."""
    months, milliseconds = interval.parts
    if value.type.base not in (BaseType.DATE, BaseType.TIMESTAMP) or (months and milliseconds):
        raise _refused(node, ", some number of times only if it is months or has none, and to a DATE or TIMESTAMP")
    days = value.type.base is BaseType.DATE and not months and milliseconds % _DAY == 0
    size = months or (milliseconds // _DAY if days else milliseconds)
    product = typed(exp.Mul(this=exp.Paren(this=number.copy()), expression=exp.Literal.number(abs(size))))
    whole = product.type.base in (BaseType.INT, BaseType.BIGINT)
    if not whole and (months or days):
        raise _refused(node, f"; months and days of a DATE a whole number of times, not {product.type}")
    if not whole:
        product = typed(call("ROUND", product.expression))
    length: exp.Expr = converted(product, t.INT if months or days else t.BIGINT).expression
    if (size < 0) != isinstance(node, exp.Sub):
        length = exp.Neg(this=exp.Paren(this=length))
    if days:
        return Typed(call("ADD_DAYS", value.expression, length), t.DATE)
    moved = call("ADD_MONTHS" if months else "ADD_MILLISECONDS", converted(value, t.TIMESTAMP).expression, length)
    of_date = months and value.type.base is BaseType.DATE
    return converted(Typed(moved, t.TIMESTAMP), t.DATE) if of_date else Typed(moved, t.TIMESTAMP)


def _moved(value: Typed, months: int, milliseconds: int, node: exp.Expr) -> Typed:
    if value.type.base is BaseType.TIME and not months:
        return Typed(call("ADD_TO_TIME", value.expression, _length(milliseconds)), t.TIME)
    if value.type.base is BaseType.DATE:
        if milliseconds % _DAY:
            return _moved(converted(value, t.TIMESTAMP), months, milliseconds, node)
        if months:
            moved = _moved(converted(value, t.TIMESTAMP), months, 0, node)
            value = converted(moved, t.DATE)
        days = milliseconds // _DAY
        return Typed(call("ADD_DAYS", value.expression, _number(days)), t.DATE) if days else value
    if value.type.base is not BaseType.TIMESTAMP:
        raise _refused(node, f", not {value.type}")
    made = value.expression
    if months:
        made = call("ADD_MONTHS", made, _number(months))
    if milliseconds or not months:
        made = call("ADD_MILLISECONDS", made, _length(milliseconds))
    return Typed(made, t.TIMESTAMP)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _number(value: int) -> exp.Expression:
    size = exp.Literal.number(abs(value))
    return exp.Neg(this=size) if value < 0 else size


def _length(milliseconds: int) -> exp.Expression:
    """A number of milliseconds as the functions take it: a BIGINT."""
    return widened(Typed(_number(milliseconds), t.INT), t.BIGINT).expression


def _refused(node: exp.Expr, instead: str = "") -> TypeMismatch:
    return TypeMismatch(
        f"an INTERVAL is added to, or taken from, a DATE, TIME or TIMESTAMP{instead}: {sql_of(node)}",
        hint="FROM_UNIXTIME(rowtime) is the time of an event as a TIMESTAMP",
    )
