"""Conversion of Python values to a SQL type: by assignment (widening only) or by CAST (also text and narrowing).

The Python types: BOOLEAN bool, INT and BIGINT int, DOUBLE float, DECIMAL Decimal, VARCHAR str, BYTES bytes,
DATE date, TIMESTAMP aware datetime (UTC), ARRAY list, MAP and STRUCT dict. TIME is a `datetime.time` while it is
computed with, and an int (milliseconds of the day) once assigned to a column.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.serve.results import cell

_LIMITS = {BaseType.INT: 2**31, BaseType.BIGINT: 2**63}
# Twice the 38 digits of a DECIMAL: a value with 38 on either side of the point is still rounded exactly.
_WORKING_DIGITS = 76
_TRUTH = {"true": True, "t": True, "yes": True, "y": True, "false": False, "f": False, "no": False, "n": False}
_HINTS = {
    BaseType.DATE: "write DATE '2024-01-31'",
    BaseType.TIME: "write TIME '13:45:00'",
    BaseType.TIMESTAMP: "write TIMESTAMP '2024-01-31T13:45:00'",
    BaseType.ARRAY: "write ARRAY[1, 2]",
    BaseType.MAP: "write MAP('key' := 1)",
    BaseType.STRUCT: "write STRUCT(field := 1)",
    BaseType.BYTES: "write TO_BYTES('3q0=', 'base64'); also 'hex', 'utf8', 'ascii'",
}


def assign(value: object, sql_type: SqlType, place: str) -> object:
    """Convert a value to `sql_type`, only if nothing can be lost.

    INT widens to BIGINT, DECIMAL and DOUBLE; a DECIMAL without a fraction is a whole number; text is read as DATE, TIME
    or TIMESTAMP. Any other conversion is an error.

    Raises:
        TypeMismatch: it does not fit; the message names `place`.
    """
    if value is None:
        return None
    if isinstance(value, bool) and sql_type.base is not BaseType.BOOLEAN:
        raise _mismatch(value, sql_type, place)
    if isinstance(value, str) and sql_type.base in _READ_FROM_TEXT:
        value = _read(value, sql_type, place)
    if isinstance(value, Decimal) and sql_type.base in _LIMITS and value.is_finite() and value == int(value):
        value = int(value)
    if isinstance(value, _TAKEN[sql_type.base]):
        return _ASSIGN.get(sql_type.base, _as_it_is)(value, sql_type, place)
    raise _mismatch(value, sql_type, place)


def assign_text(text: str, sql_type: SqlType, place: str) -> object:
    """Convert a text literal to `sql_type`: a literal has no type of its own, so it means a value of the column's.

    Raises:
        TypeMismatch: it cannot be read as that type, or only with loss.
    """
    match sql_type.base:
        case BaseType.BOOLEAN | BaseType.INT | BaseType.BIGINT | BaseType.DOUBLE:
            return _read(text, sql_type, place)
        case BaseType.DECIMAL:
            return assign(_decimal(text, sql_type, place), sql_type, place)
        case _:
            return assign(text, sql_type, place)


def convert(value: object, sql_type: SqlType) -> object:
    """Convert a value by CAST: as `assign`, and also from and to text and from wider numbers (fractions are cut).

    Raises:
        TypeMismatch: the value cannot be read as `sql_type`.
    """
    place = "CAST"
    match sql_type.base, value:
        case _, None:
            return None
        case BaseType.VARCHAR, _:
            return value if isinstance(value, str) else cell(value)
        case _, str():
            return _read(value, sql_type, place)
        case ((BaseType.INT | BaseType.BIGINT), float() | Decimal()) if math.isfinite(value):
            return _in_range(int(value), sql_type, place)
        case BaseType.DECIMAL, int() | float() | Decimal() if not isinstance(value, bool):
            return _rounded(Decimal(str(value)), sql_type, place)
        case BaseType.DATE, dt.datetime():
            return value.date()
        case BaseType.TIME, dt.datetime() | dt.time():
            return value.time() if isinstance(value, dt.datetime) else value
        case BaseType.TIMESTAMP, dt.date() if not isinstance(value, dt.datetime):
            return dt.datetime.combine(value, dt.time(), dt.UTC)
        case _:
            return assign(value, sql_type, place)


def _read(text: str, sql_type: SqlType, place: str) -> object:
    reader = _READERS.get(sql_type.base)
    if reader is None:
        raise _mismatch(text, sql_type, place)
    try:
        return reader(text if sql_type.base is BaseType.BYTES else text.strip(), sql_type, place)
    except (ValueError, KeyError, InvalidOperation) as error:
        raise _mismatch(text, sql_type, place) from error


def _decimal(text: str, sql_type: SqlType, place: str) -> Decimal:
    try:
        return Decimal(text.strip())
    except InvalidOperation as error:
        raise _mismatch(text, sql_type, place) from error


def _instant(text: str) -> dt.datetime:
    moment = dt.datetime.fromisoformat(text)
    return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment.astimezone(dt.UTC)


def _in_range(value: int, sql_type: SqlType, place: str) -> int:
    limit = _LIMITS[sql_type.base]
    if not -limit <= value < limit:
        raise TypeMismatch(f"{place}: {value} is out of the range of {sql_type}")
    return value


def _exactly(value: Decimal, sql_type: SqlType, place: str) -> Decimal:
    rounded = _rounded(value, sql_type, place)
    if rounded != value:
        hint = f"to round it: CAST({value} AS {sql_type})"
        raise TypeMismatch(f"{place}: {value} has more digits after the point than {sql_type}", hint=hint)
    return rounded


def _rounded(value: Decimal, sql_type: SqlType, place: str) -> Decimal:
    if not value.is_finite():
        raise _mismatch(value, sql_type, place)
    if value.adjusted() < _WORKING_DIGITS // 2:
        with localcontext(prec=_WORKING_DIGITS):
            rounded = value.quantize(Decimal(1).scaleb(-sql_type.scale), rounding=ROUND_HALF_UP)
        if rounded.is_zero() or rounded.adjusted() < sql_type.precision - sql_type.scale:
            return rounded
    raise TypeMismatch(f"{place}: {value} has more digits before the point than {sql_type}")


def _members(value: dict[object, object], sql_type: SqlType, place: str) -> dict[str, object]:
    given = {str(name): item for name, item in value.items()}
    unknown = given.keys() - {name for name, _ in sql_type.fields}
    if unknown:
        raise TypeMismatch(f"{place}: {sql_type} has no field '{min(unknown)}'")
    return {name: assign(given.get(name), inner, f"{place}->{name}") for name, inner in sql_type.fields}


def _elements(value: list[object], sql_type: SqlType, place: str) -> list[object]:
    return [assign(item, sql_type.args[0], place) for item in value]


def _entries(value: dict[object, object], sql_type: SqlType, place: str) -> dict[object, object]:
    key, item = sql_type.args
    return {assign(k, key, place): assign(v, item, place) for k, v in value.items()}


def _day(value: dt.date, sql_type: SqlType, place: str) -> dt.date:
    if isinstance(value, dt.datetime):
        raise _mismatch(value, sql_type, place)
    return value


def _millis_of_day(time: dt.time, _type: SqlType, _place: str) -> int:
    return ((time.hour * 60 + time.minute) * 60 + time.second) * 1000 + time.microsecond // 1000


def _as_it_is(value: object, _type: SqlType, _place: str) -> object:
    return value


def _mismatch(value: object, sql_type: SqlType, place: str) -> TypeMismatch:
    shown = f"'{value}'" if isinstance(value, str) else cell(value)
    return TypeMismatch(f"{place} takes {sql_type}, not {shown}", hint=_HINTS.get(sql_type.base))


_READ_FROM_TEXT = (BaseType.DATE, BaseType.TIME, BaseType.TIMESTAMP)
_TAKEN: dict[BaseType, tuple[type, ...]] = {
    BaseType.BOOLEAN: (bool,),
    BaseType.INT: (int,),
    BaseType.BIGINT: (int,),
    BaseType.DOUBLE: (int, float, Decimal),
    BaseType.DECIMAL: (int, Decimal),
    BaseType.VARCHAR: (str,),
    BaseType.BYTES: (bytes,),
    BaseType.DATE: (dt.date,),
    BaseType.TIME: (dt.time,),
    BaseType.TIMESTAMP: (dt.datetime,),
    BaseType.ARRAY: (list,),
    BaseType.MAP: (dict,),
    BaseType.STRUCT: (dict,),
}
"""{base type: the Python types of the values that a column of it takes, with those that widen to it}."""
_ASSIGN: dict[BaseType, Callable[[Any, SqlType, str], object]] = {
    BaseType.INT: _in_range,
    BaseType.BIGINT: _in_range,
    BaseType.DOUBLE: lambda value, _type, _place: float(value),
    BaseType.DECIMAL: lambda value, sql_type, place: _exactly(Decimal(value), sql_type, place),
    BaseType.DATE: _day,
    BaseType.TIME: _millis_of_day,
    BaseType.ARRAY: _elements,
    BaseType.MAP: _entries,
    BaseType.STRUCT: _members,
}
_READERS: dict[BaseType, Callable[[str, SqlType, str], object]] = {
    BaseType.BOOLEAN: lambda word, _type, _place: _TRUTH[word.lower()],
    BaseType.INT: lambda word, sql_type, place: _in_range(int(word), sql_type, place),
    BaseType.BIGINT: lambda word, sql_type, place: _in_range(int(word), sql_type, place),
    BaseType.DOUBLE: lambda word, _type, _place: float(word),
    BaseType.DECIMAL: lambda word, sql_type, place: _rounded(Decimal(word), sql_type, place),
    BaseType.BYTES: lambda word, _type, _place: word.encode(),
    BaseType.DATE: lambda word, _type, _place: dt.date.fromisoformat(word),
    BaseType.TIME: lambda word, _type, _place: dt.time.fromisoformat(word),
    BaseType.TIMESTAMP: lambda word, _type, _place: _instant(word),
}
"""{base type: what reads a text as a value of it}."""
