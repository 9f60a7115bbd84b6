"""Conversions between types: the ones that lose nothing, and CAST.

A CAST of a value that the type cannot hold (`'abc'` as INT, 3e9 as INT) is NULL: ksqlDB does not stop the query either.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType, common_type
from strandline.jobs.query.expressions.casts_nested import members_converted, text_of
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.sql.types_text import data_type

_ASKED = "asked"
_MADE = "made"
"""Marks of conversions: the user wrote TRY_CAST; the front end made it of a CAST."""
_WHOLE = (BaseType.INT, BaseType.BIGINT)
_FRACTIONS = (BaseType.DECIMAL, BaseType.DOUBLE)
# (from, to) -> the function to apply before the CAST, where the engines' own CASTs differ; None where they agree.
_PAIRS: dict[tuple[BaseType, BaseType], str | None] = {
    **{(BaseType.DECIMAL, target): "CUT" for target in _WHOLE},
    **{(BaseType.DOUBLE, target): "CUT_OF_DOUBLE" for target in _WHOLE},
    **{(source, target): None for source in t.NUMERIC for target in t.NUMERIC if source not in _FRACTIONS},
    **{(source, target): None for source in t.NUMERIC for target in _FRACTIONS},
    (BaseType.DOUBLE, BaseType.DECIMAL): "DIGITS",
    **{(source, BaseType.VARCHAR): None for source in (BaseType.BOOLEAN, *_WHOLE, BaseType.DECIMAL, BaseType.DATE)},
    **{(BaseType.VARCHAR, target): None for target in _FRACTIONS},
    **{(BaseType.VARCHAR, target): "WHOLE_TEXT" for target in _WHOLE},
    (BaseType.VARCHAR, BaseType.BOOLEAN): "BOOLEAN_TEXT",
    (BaseType.VARCHAR, BaseType.DATE): "DATE_TEXT",
    (BaseType.VARCHAR, BaseType.TIMESTAMP): "INSTANT_TEXT",
    (BaseType.DATE, BaseType.TIMESTAMP): None,
    (BaseType.TIMESTAMP, BaseType.DATE): None,
}
# Functions that give the target type themselves: no CAST follows.
_DIRECT = {
    (BaseType.DOUBLE, BaseType.VARCHAR): "DOUBLE_TEXT",
    (BaseType.TIMESTAMP, BaseType.VARCHAR): "TIMESTAMP_TEXT",
    (BaseType.TIME, BaseType.VARCHAR): "TIME_TEXT",
    (BaseType.VARCHAR, BaseType.TIME): "TEXT_TIME",
    (BaseType.TIMESTAMP, BaseType.TIME): "TIME_OF_DAY",
}


def widened(value: Typed, sql_type: SqlType) -> Typed:
    """`value` widened to `sql_type`, a type that `common_type` found."""
    if value.type == sql_type:
        return value
    if _has_fields(value.type) or (value.type.is_nested and loses(value.type, sql_type)):
        return members_converted(value, sql_type, widened)
    if loses(value.type, sql_type):
        return Typed(_conversion(value.expression, sql_type), sql_type)
    return Typed(exp.Cast(this=value.expression, to=data_type(sql_type)), sql_type)


def loses(given: SqlType, sql_type: SqlType) -> bool:
    """True if the type has no room for all whole digits or places of a number, or of one inside: 38 digits are the most
    that a DECIMAL has, also one that is the common type of others."""
    if sql_type.base is BaseType.DECIMAL and given.base in (BaseType.INT, BaseType.BIGINT, BaseType.DECIMAL):
        number = t.as_decimal(given)
        return number.precision - number.scale > sql_type.precision - sql_type.scale or number.scale > sql_type.scale
    return given.base is sql_type.base and any(map(loses, given.args, sql_type.args))


def beside(value: Typed, sql_type: SqlType) -> Typed:
    """`value` as an operand of type `sql_type`: like `widened`, but without a CAST where both engines widen alike."""
    if sql_type.base in (BaseType.BIGINT, BaseType.DOUBLE) and value.type.is_numeric:
        return Typed(value.expression, sql_type)
    return widened(value, sql_type)


def converted(value: Typed, sql_type: SqlType) -> Typed:
    """The conversion `CAST(value AS sql_type)`.

    Raises:
        TypeMismatch: there is no such conversion.
    """
    if common_type(value.type, sql_type) == sql_type:
        return widened(value, sql_type)
    pair = (value.type.base, sql_type.base)
    if value.type.is_nested and value.type.base is sql_type.base:
        return members_converted(value, sql_type, converted)
    if value.type.is_nested and sql_type.base is BaseType.VARCHAR:
        return text_of(value, converted)
    if pair in _DIRECT:
        return Typed(exp.Anonymous(this=_DIRECT[pair], expressions=[value.expression]), sql_type)
    if pair not in _PAIRS:
        raise TypeMismatch(f"{value.type} cannot be converted to {sql_type}")
    through = _PAIRS[pair]
    inner = value.expression
    if through is not None and not (isinstance(inner, exp.Anonymous) and inner.name == through):
        inner = exp.Anonymous(this=through, expressions=[inner])
    if sql_type.base is BaseType.VARCHAR:
        return Typed(exp.Cast(this=inner, to=data_type(sql_type)), sql_type)
    return Typed(_conversion(inner, sql_type), sql_type)


def _conversion(value: exp.Expression, sql_type: SqlType) -> exp.TryCast:
    """A conversion that can fail, told from the TRY_CAST of a user, for which NULL is no failure."""
    made = exp.TryCast(this=value, to=data_type(sql_type), safe=True)
    made.meta[_MADE] = True
    return made


def _has_fields(sql_type: SqlType) -> bool:
    """True if the type contains a STRUCT, whose fields one engine's CAST matches by place, the other's by name."""
    return sql_type.base is BaseType.STRUCT or any(_has_fields(inner) for inner in sql_type.args)


def asked(value: Typed) -> Typed:
    """A conversion that the user wrote as TRY_CAST, marked so that a NULL result is not counted as a failure."""
    value.expression.meta[_ASKED] = True
    return value


def is_asked(node: exp.Expr) -> bool:
    """True for a TRY_CAST that a user wrote, also when it is elaborated already."""
    return bool(node.meta.get(_ASKED)) or (isinstance(node, exp.TryCast) and not node.meta.get(_MADE))
