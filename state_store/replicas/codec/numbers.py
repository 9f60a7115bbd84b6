"""The whole numbers that stand for single values of BOOLEAN, integers, DATE, TIMESTAMP and DECIMAL, there and back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

import pyarrow as pa

from strandline.state_store.python_values import instant_text

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_NTZ: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (TIMESTAMP_NTZ has no zone)
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
# 38 digits are the most that DECIMAL has; the quotient of a shift never rounds within it.
_EXACT: Final = Context(prec=80, rounding=ROUND_HALF_EVEN)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_integer(arrow_type: pa.DataType) -> Callable[[Any], int]:
    """What makes the whole number that stands for a BOOLEAN, integer, DATE or TIMESTAMP of that type.

    Chosen once for a column: to ask Arrow for the type takes longer than to make the number.
    """
    if pa.types.is_boolean(arrow_type):
        return _of_boolean
    if pa.types.is_date32(arrow_type):
        return lambda value: int(value.toordinal()) - EPOCH_DAY
    if pa.types.is_timestamp(arrow_type):
        start = EPOCH if arrow_type.tz else EPOCH_NTZ
        return lambda value: int((value - start) // _MICROSECOND)
    return _of_whole


def from_integer(arrow_type: pa.DataType) -> Callable[[int], Any] | None:
    """What makes the value of such a whole number; None if it is the value."""
    if pa.types.is_boolean(arrow_type):
        return bool
    if pa.types.is_date32(arrow_type):
        return lambda days: _day(days, arrow_type)
    if pa.types.is_timestamp(arrow_type):
        start = EPOCH if arrow_type.tz else EPOCH_NTZ
        return lambda micros: _instant(start, micros, arrow_type)
    return None


def _day(days: int, arrow_type: pa.DataType) -> date | str:
    try:
        return date.fromordinal(days + EPOCH_DAY)
    except (OverflowError, ValueError):
        return instant_text(days, arrow_type)


def _instant(start: datetime, micros: int, arrow_type: pa.DataType) -> datetime | str:
    try:
        return start + timedelta(0, 0, micros)  # by name it takes half as long again
    except OverflowError:
        return instant_text(micros, arrow_type)


def unscaled(value: Any, scale: int) -> int:
    """The whole number that a DECIMAL is stored as."""
    shifted = _EXACT.scaleb(Decimal(value) if isinstance(value, int) else value, scale)
    whole = int(shifted)
    if whole != shifted:
        raise ValueError
    return whole


def scaled(whole: int, scale: int) -> Decimal:
    """The DECIMAL that is stored as that number."""
    return _EXACT.scaleb(Decimal(whole), -scale)


def width_of(arrow_type: pa.DataType) -> int | None:
    """The bytes of a whole number of that type; None for a type without one."""
    if pa.types.is_boolean(arrow_type):
        return 1
    if pa.types.is_integer(arrow_type) or pa.types.is_date32(arrow_type) or pa.types.is_timestamp(arrow_type):
        return int(arrow_type.bit_width) // 8
    return None


def is_text(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type))


def is_bytes(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type))


def is_array(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type))


def _of_boolean(value: Any) -> int:
    if not isinstance(value, bool):
        raise TypeError
    return int(value)


def _of_whole(value: Any) -> int:
    if type(value) is int:
        return value
    if isinstance(value, (bool, float)):
        raise TypeError
    return int(value.__index__())
