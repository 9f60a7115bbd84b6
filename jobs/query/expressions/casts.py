"""Conversions between types: the ones that lose nothing, and CAST.

A CAST that has no value (`'abc'` as INT, 3e9 as INT) is NULL, as in ksqlDB, where it does not stop the query either.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.model import types as t
from jobs.model.errors import TypeMismatch
from jobs.model.types import BaseType, SqlType, common_type
from jobs.query.expressions.casts_nested import members_converted, text_of
from jobs.query.expressions.scope import Typed
from jobs.sql.types_text import data_type

_WHOLE = (BaseType.INT, BaseType.BIGINT)
_FRACTIONS = (BaseType.DECIMAL, BaseType.DOUBLE)
_TEMPORAL = (BaseType.DATE, BaseType.TIME, BaseType.TIMESTAMP)
# (from, to) -> the function that does it, where the engines' own CAST differ. None: their CAST does.
_PAIRS: dict[tuple[BaseType, BaseType], str | None] = {
    **{(source, target): "CUT" for source in _FRACTIONS for target in _WHOLE},
    **{(source, target): None for source in t.NUMERIC for target in t.NUMERIC if source not in _FRACTIONS},
    **{(source, target): None for source in t.NUMERIC for target in _FRACTIONS},
    **{(source, BaseType.VARCHAR): None for source in (BaseType.BOOLEAN, *_WHOLE, BaseType.DECIMAL, BaseType.DATE)},
    **{(BaseType.VARCHAR, target): None for target in _FRACTIONS},
    **{(BaseType.VARCHAR, target): "WHOLE_TEXT" for target in _WHOLE},
    (BaseType.VARCHAR, BaseType.BOOLEAN): "BOOLEAN_TEXT",
    (BaseType.VARCHAR, BaseType.DATE): "DATE_TEXT",
    (BaseType.VARCHAR, BaseType.TIMESTAMP): "INSTANT_TEXT",
    (BaseType.DATE, BaseType.TIMESTAMP): None,
    (BaseType.TIMESTAMP, BaseType.DATE): None,
}
# Functions that convert all the way: no CAST follows.
_WHOLE_WAY = {
    (BaseType.DOUBLE, BaseType.VARCHAR): "DOUBLE_TEXT",
    (BaseType.TIMESTAMP, BaseType.VARCHAR): "TIMESTAMP_TEXT",
    (BaseType.TIME, BaseType.VARCHAR): "TIME_TEXT",
    (BaseType.VARCHAR, BaseType.TIME): "TEXT_TIME",
    (BaseType.TIMESTAMP, BaseType.TIME): "TIME_OF_DAY",
}


def widened(value: Typed, sql_type: SqlType) -> Typed:
    """`value` as the wider type `kind`, which `common_type` found."""
    if value.type == sql_type:
        return value
    if _has_fields(value.type):
        return members_converted(value, sql_type, widened)
    return Typed(exp.Cast(this=value.expression, to=data_type(sql_type)), sql_type)


def beside(value: Typed, sql_type: SqlType) -> Typed:
    """`value` as an operand of type `kind`: as `widened`, without the CAST where both engines widen alike."""
    if sql_type.base in (BaseType.BIGINT, BaseType.DOUBLE) and value.type.is_numeric:
        return Typed(value.expression, sql_type)
    return widened(value, sql_type)


def converted(value: Typed, sql_type: SqlType) -> Typed:
    """`CAST(value AS kind)`.

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
    if pair in _WHOLE_WAY:
        return Typed(exp.Anonymous(this=_WHOLE_WAY[pair], expressions=[value.expression]), sql_type)
    if pair not in _PAIRS:
        raise TypeMismatch(f"{value.type} cannot be converted to {sql_type}")
    through = _PAIRS[pair]
    inner = value.expression
    if through is not None and not (isinstance(inner, exp.Anonymous) and inner.name == through):
        inner = exp.Anonymous(this=through, expressions=[inner])
    if sql_type.base is BaseType.VARCHAR:
        return Typed(exp.Cast(this=inner, to=data_type(sql_type)), sql_type)
    return Typed(exp.TryCast(this=inner, to=data_type(sql_type), safe=True), sql_type)


def _has_fields(sql_type: SqlType) -> bool:
    """Whether a STRUCT is inside: the engines' CASTs match its fields by place, or by name."""
    return sql_type.base is BaseType.STRUCT or any(_has_fields(inner) for inner in sql_type.args)


def asked(value: Typed) -> Typed:
    """A conversion by TRY_CAST: that it may be NULL is what was asked for, and no failure."""
    value.expression.meta["asked"] = True
    return value
