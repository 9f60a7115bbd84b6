"""Lengths of time: differences of times, beside an INTERVAL or counted in a unit.

EXTRACT(EPOCH FROM b - a)            (UNIX_MICROS(b) - UNIX_MICROS(a)) / 1e6
b - a < INTERVAL '1' HOUR            UNIX_MICROS(b) - UNIX_MICROS(a) < 3600000000
DATE_DIFF('hour', a, b)              how many full hours of the clock lie between: 10:59 and 11:01 differ by 1
TIMESTAMPDIFF(HOUR, a, b)            how many hours have passed: 0

A length is no value of a column: it is microseconds wherever it is read. The year, the month and what is made of them
have no length, so of a difference nobody can ask for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.arithmetic import arithmetic, literal, times_interval
from strandline.jobs.query.expressions.casts import converted
from strandline.jobs.query.expressions.coercion import called
from strandline.jobs.query.expressions.scope import Infer, Typed, binary
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.time_clauses import IntervalNode

MICROS: Mapping[str, int] = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
"""Units of a fixed length, in microseconds."""
_MONTHS: Mapping[str, int] = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_SHORT: Mapping[str, str] = {
    **{"US": "MICROSECOND", "MS": "MILLISECOND", "S": "SECOND", "SS": "SECOND", "MI": "MINUTE", "HH": "HOUR"},
    **{"DD": "DAY", "D": "DAY", "WK": "WEEK", "WW": "WEEK", "MM": "MONTH", "MON": "MONTH", "QQ": "QUARTER"},
    **{"YY": "YEAR", "YYYY": "YEAR", "FRAC_SECOND": "MICROSECOND", "SQL_TSI_SECOND": "SECOND"},
    **{"SQL_TSI_MINUTE": "MINUTE", "SQL_TSI_HOUR": "HOUR", "SQL_TSI_DAY": "DAY", "SQL_TSI_MONTH": "MONTH"},
}
# The parts of a length that the next larger one does not hold, as PostgreSQL shows them: '3 days 04:05:06'.
_PARTS: Mapping[str, int] = {"DAY": 0, "HOUR": 24, "MINUTE": 60, "SECOND": 60}


def unit_of(node: exp.Expr, text: str | None = None) -> str | None:
    """The unit of time that a bare word or a text names, in the singular and in capitals; None when it names none.

    Args:
        text: the constant that the node is, where it is one.
    """
    if text is None:
        if not isinstance(node, exp.Column | exp.Var | exp.Identifier) or (isinstance(node, exp.Column) and node.table):
            return None
        text = node.name
    name = text.upper()
    name = _SHORT.get(name, name)
    for found in (name, name.removesuffix("S")):
        if found in MICROS or found in _MONTHS:
            return found
    return None


def length(node: exp.Expr, typed: Infer) -> Typed | None:
    """A length of time in microseconds, a BIGINT; None when the node is none.

    Raises:
        TypeMismatch: it is an INTERVAL of months, or of several times one.
    """
    bare = _bare(node)
    if isinstance(bare, exp.Neg):
        inner = length(bare.this, typed)
        return None if inner is None else Typed(exp.Neg(this=exp.Paren(this=inner.expression)), t.BIGINT)
    if isinstance(bare, IntervalNode):
        return converted(_whole(_micros(bare)), t.BIGINT)
    product = times_interval(bare)
    if product is not None:
        number, interval = product
        made = typed(exp.Mul(this=exp.Paren(this=number.copy()), expression=exp.Literal.number(_micros(interval))))
        rounded = called("ROUND", made) if made.type.base not in _WHOLE else made
        return converted(rounded, t.BIGINT)
    # A time less a length is a time.
    if isinstance(bare, exp.Sub) and not (is_length(bare.this) or is_length(bare.expression)):
        return _difference(bare, typed)
    return None


_WHOLE = (BaseType.INT, BaseType.BIGINT)


def is_length(node: exp.Expr) -> bool:
    """True for an INTERVAL, and a number of times one."""
    bare = _bare(node)
    while isinstance(bare, exp.Neg):
        bare = _bare(bare.this)
    return isinstance(bare, IntervalNode) or times_interval(bare) is not None


def compared(node: exp.Binary, typed: Infer) -> exp.Expression | None:
    """The comparison of a difference of times with an INTERVAL, over numbers; None for any other comparison."""
    if not (is_length(node.left) or is_length(node.right)):
        return None
    sides = [length(each, typed) for each in (node.left, node.right)]
    if any(side is None for side in sides):
        raise _no_length(node)
    left, right = (side for side in sides if side is not None)
    return binary(type(node), left, right)


def between(node: exp.Between, typed: Infer) -> exp.Expression | None:
    """The same of BETWEEN."""
    parts = (node.this, node.args["low"], node.args["high"])
    if not any(is_length(each) for each in parts[1:]):
        return None
    found = [length(each, typed) for each in parts]
    if any(each is None for each in found):
        raise _no_length(node)
    this, low, high = (each.expression for each in found if each is not None)
    return exp.Between(this=this, low=low, high=high)


def extracted_of_length(part: str, node: exp.Expr, typed: Infer) -> Typed | None:
    """EXTRACT(part FROM b - a): EPOCH is seconds, a DOUBLE; DAY, HOUR, MINUTE, SECOND are whole numbers that together
    are the length. None: the node is no difference of times.

    Raises:
        InvalidQuery: there is no such part of a length.
    """
    bare = _bare(node)
    found = length(bare, typed) if isinstance(bare, exp.Sub) or is_length(bare) else None
    if found is None:
        return None
    if part == "EPOCH":
        micros = converted(found, t.DOUBLE)
        return arithmetic(exp.Div, micros, literal(exp.Literal(this="1e6", is_string=False)))
    if part not in _PARTS:
        hint = "EXTRACT(EPOCH FROM b - a) is its seconds, DATE_DIFF('month', a, b) the months between"
        raise InvalidQuery(f"a length of time has no {part}", hint=hint)
    whole = arithmetic(exp.Div, _inside(found), _whole(MICROS[part]))
    most = _PARTS[part]
    return arithmetic(exp.Mod, _inside(whole), _whole(most)) if most else whole


def no_value(node: exp.Expr) -> TypeMismatch:
    """The error for a difference of two times that stands for a value."""
    return TypeMismatch(
        f"the difference of two times is no value of a column: {sql_of(node)}",
        hint="EXTRACT(EPOCH FROM b - a) is its seconds, DATE_DIFF('day', a, b) the days; b - a < INTERVAL '1' DAY",
    )


def _difference(node: exp.Sub, typed: Infer) -> Typed | None:
    sides = [typed(each) for each in (node.left, node.right)]
    if not {side.type.base for side in sides} <= {BaseType.TIMESTAMP, BaseType.DATE}:
        return None
    left, right = (_micros_of(side) for side in sides)
    return arithmetic(exp.Sub, left, right)


def _micros_of(value: Typed) -> Typed:
    return called("UNIX_MICROS", converted(value, t.TIMESTAMP))


# DATE_DIFF counts the ends of units that lie between two times, TIMESTAMPDIFF the units that have passed.
#
#     DATE_DIFF('day', a, b)   DATEDIFF(day, a, b)      DuckDB, Snowflake, SQL Server, Redshift
#     DATE_DIFF(b, a, DAY)     TIMESTAMP_DIFF(b, a, …)  BigQuery: the later time first
#     DATEDIFF(b, a)                                    Spark, MySQL: days
#     TIMESTAMPDIFF(DAY, a, b)                          the standard's escape: MySQL, Calcite, Flink, Spark


def date_diff(node: exp.Anonymous, typed: Infer) -> Typed:
    """Elaborate DATE_DIFF and DATEDIFF in any of these forms; the value is a BIGINT.

    Raises:
        InvalidQuery: it names no unit of time.
        TypeMismatch: a value is no DATE or TIMESTAMP.
    """
    if len(node.expressions) == 2:
        later, earlier = (_time(each, node, typed) for each in node.expressions)
        return _ends_between("DAY", earlier, later)
    unit, earlier, later = _unit_and_times(node, typed)
    return _ends_between(unit, earlier, later)


def passed(node: exp.Anonymous, typed: Infer) -> Typed:
    """Elaborate TIMESTAMPDIFF(unit, a, b), a BIGINT. Raises as `date_diff`."""
    unit, earlier, later = _unit_and_times(node, typed)
    if unit in MICROS:
        between_them = arithmetic(exp.Sub, _micros_of(later), _micros_of(earlier))
        return arithmetic(exp.Div, _inside(between_them), _whole(MICROS[unit]))
    between_them = _ends_between("MONTH", earlier, later)
    months = between_them.expression
    first, second = (_into_month(each).expression for each in (earlier, later))
    zero, one = exp.Literal.number(0), exp.Literal.number(1)
    forwards = exp.And(
        this=exp.GT(this=months.copy(), expression=zero), expression=exp.LT(this=second, expression=first)
    )
    backwards = exp.And(
        this=exp.LT(this=months.copy(), expression=zero.copy()),
        expression=exp.GT(this=second.copy(), expression=first.copy()),
    )
    not_full = exp.Case(
        ifs=[exp.If(this=forwards, true=one), exp.If(this=backwards, true=exp.Neg(this=one.copy()))],
        default=zero.copy(),
    )
    full = arithmetic(exp.Sub, _inside(between_them), Typed(not_full, t.INT))
    return arithmetic(exp.Div, _inside(full), _whole(_MONTHS[unit]))


def _into_month(value: Typed) -> Typed:
    """Microseconds since the month began."""
    began = called("BEGIN_OF_UNIT", _text_value("MONTH"), value)
    return arithmetic(exp.Sub, _micros_of(value), _micros_of(began))


def _ends_between(unit: str, earlier: Typed, later: Typed) -> Typed:
    numbers = [_number_of(unit, each) for each in (later, earlier)]
    return converted(arithmetic(exp.Sub, *map(_inside, numbers)), t.BIGINT)


def _number_of(unit: str, value: Typed) -> Typed:
    """The number of the unit that a time lies in."""
    if unit in _MONTHS:
        year, part = (
            converted(called("PART_OF_DATE", _text_value(each), value), t.BIGINT)
            for each in ("YEAR", "MONTH" if unit == "MONTH" else "QUARTER")
        )
        if unit == "YEAR":
            return year
        return arithmetic(exp.Add, arithmetic(exp.Mul, year, _whole(12 // _MONTHS[unit])), part)
    if unit == "MICROSECOND":
        return _micros_of(value)
    if unit == "MILLISECOND":
        return called("UNIX_TIMESTAMP", value)
    began = called("BEGIN_OF_UNIT", _text_value(unit), value)
    # 1970 began within a week: from one Monday to the next there are whole weeks, whichever is counted from.
    shift = _whole(MICROS["DAY"] * 3 if unit == "WEEK" else 0)
    return arithmetic(exp.Div, _inside(arithmetic(exp.Add, _micros_of(began), shift)), _whole(MICROS[unit]))


# Where a column has the name of a unit, the name of the function says whose form is meant.
_UNIT_LAST = ("DATE_DIFF", "TIMESTAMP_DIFF", "DATETIME_DIFF")


def _unit_and_times(node: exp.Anonymous, typed: Infer) -> tuple[str, Typed, Typed]:
    """The unit, the earlier and the later time of DATE_DIFF(unit, a, b) or DATE_DIFF(b, a, unit)."""
    given = node.expressions
    if len(given) == 3:
        first, last = (unit_of(each, _text(each)) for each in (given[0], given[2]))
        if first is not None and _text(given[0]) is not None:
            last = None  # a column may be called as a unit, or d
        if last is not None and (first is None or node.name in _UNIT_LAST):
            return last, _time(given[1], node, typed), _time(given[0], node, typed)
        if first is not None:
            return first, _time(given[1], node, typed), _time(given[2], node, typed)
    raise InvalidQuery(
        f"{node.name} takes a unit and two times: {sql_of(node)}",
        hint=f"{node.name}(DAY, a, b); a unit is one of {', '.join((*MICROS, *_MONTHS))}",
    )


def _text(node: exp.Expr) -> str | None:
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def _text_value(text: str) -> Typed:
    return literal(exp.Literal.string(text))


def _time(node: exp.Expr, around: exp.Anonymous, typed: Infer) -> Typed:
    value = typed(node)
    if value.type.base in (BaseType.DATE, BaseType.VARCHAR, BaseType.NULL):
        value = converted(value, t.TIMESTAMP)
    if value.type.base is not BaseType.TIMESTAMP:
        raise TypeMismatch(f"{around.name} takes a DATE or TIMESTAMP, not {value.type}: {sql_of(node)}")
    return value


def _micros(interval: IntervalNode) -> int:
    months, milliseconds = interval.parts
    if months:
        raise TypeMismatch(f"{sql_of(interval)} has no fixed length: months differ", hint="write it in days")
    return milliseconds * 1_000


def _no_length(node: exp.Expr) -> TypeMismatch:
    return TypeMismatch(
        f"an INTERVAL is compared with a difference of times: {sql_of(node)}",
        hint="b - a < INTERVAL '1' DAY, or b < a + INTERVAL '1' DAY",
    )


def _whole(number: int) -> Typed:
    made = literal(exp.Literal(this=str(abs(number)), is_string=False))
    return Typed(exp.Neg(this=made.expression), made.type) if number < 0 else made


def _inside(value: Typed) -> Typed:
    return Typed(exp.Paren(this=value.expression), value.type)


def _bare(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


DIFFERENCES: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    **dict.fromkeys(("DATE_DIFF", "DATEDIFF", "DATETIME_DIFF", "TIMESTAMP_DIFF"), date_diff),
    "TIMESTAMPDIFF": passed,
}
"""The rewrite of each function, by name."""
