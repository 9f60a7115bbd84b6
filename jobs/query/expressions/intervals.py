"""Sums of dates and times with an INTERVAL.

at + INTERVAL '1 day 2 hours'      ADD_MILLISECONDS(at, 93600000)
at - INTERVAL '3' MONTH            ADD_MONTHS(at, -3)
at + n * INTERVAL '1 second'        ADD_MILLISECONDS(at, n * 1000)
day + INTERVAL '2' DAY             ADD_DAYS(day, 2): a DATE stays one while the length is whole days
day + 2, day - other               ADD_DAYS(day, 2), the days between them
clock + INTERVAL '5' MINUTE        ADD_TO_TIME(clock, 300000), round the clock
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.arithmetic import arithmetic
from strandline.jobs.query.expressions.casts import converted, widened
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.intervals import IntervalNode
from strandline.jobs.sql.trees import call

_DAY = 86_400_000
# From the year 1 to 9999.
_MOST_MONTHS = 9999 * 12


def with_interval(node: exp.Binary, typed: Infer) -> Typed | None:
    """The sum or difference of a date or time and an INTERVAL; None when neither side is one.

    Raises:
        TypeMismatch: the other side is no date or time, or a length is taken from it the wrong way round.
        InvalidQuery: no two dates lie so far apart.
    """
    left, right = (_bare(side) for side in (node.left, node.right))
    times = _times(right) if isinstance(node, exp.Add | exp.Sub) else None
    if times is not None:
        return _moved_often(typed(left), *times, node, typed)
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
    """A DATE and a number of days, or the days between two DATEs, as in PostgreSQL; None for any other operation."""
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


def _times(node: exp.Expr) -> tuple[exp.Expr, IntervalNode] | None:
    """The number and the INTERVAL of a product of both; None for any other value."""
    if not isinstance(node, exp.Mul):
        return None
    left, right = (_bare(side) for side in (node.left, node.right))
    if isinstance(right, IntervalNode) and not isinstance(left, IntervalNode):
        return left, right
    return (right, left) if isinstance(left, IntervalNode) and not isinstance(right, IntervalNode) else None


def _moved_often(value: Typed, number: exp.Expr, interval: IntervalNode, node: exp.Binary, typed: Infer) -> Typed:
    """A TIMESTAMP, and a length some number of times: it is rounded to milliseconds."""
    months, milliseconds = interval.parts
    if value.type.base is not BaseType.TIMESTAMP or months:
        raise _refused(node, ", some number of times only if it is no months and to a TIMESTAMP")
    product = typed(exp.Mul(this=exp.Paren(this=number.copy()), expression=exp.Literal.number(abs(milliseconds))))
    if product.type.base is BaseType.DOUBLE or product.type.base is BaseType.DECIMAL:
        product = typed(call("ROUND", product.expression))
    length: exp.Expr = converted(product, t.BIGINT).expression
    if (milliseconds < 0) != isinstance(node, exp.Sub):
        length = exp.Neg(this=exp.Paren(this=length))
    return Typed(call("ADD_MILLISECONDS", value.expression, length), t.TIMESTAMP)


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
