"""A column's values in the binary format: what the `*send` functions of PostgreSQL's source write."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.server.pg_values.text_cells import text_cells
from strandline.jobs.server.pg_values.wire_types import element_of, oid_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

EPOCH_DAYS: Final = 10_957
"""From 1970-01-01 to 2000-01-01, where PostgreSQL's calendar begins."""
EPOCH_MICROSECONDS: Final = EPOCH_DAYS * 86_400_000_000
NUMERIC_BASE_DIGITS: Final = 4
"""Decimal digits of each digit of a numeric, which counts in ten thousands."""
_NEGATIVE: Final = 0x4000


@dataclass(frozen=True)
class _Layout:
    """A number of fixed size: the integer that Arrow casts the value to, what is done to that, its form in bytes."""

    arrow: str
    form: str
    minus: int = 0
    times: int = 1


_LAYOUTS: Final = {
    BaseType.BOOLEAN: _Layout("uint8", "u1"),
    BaseType.INT: _Layout("int32", ">i4"),
    BaseType.BIGINT: _Layout("int64", ">i8"),
    BaseType.DOUBLE: _Layout("float64", ">f8"),
    BaseType.DATE: _Layout("int32", ">i4", minus=EPOCH_DAYS),
    BaseType.TIME: _Layout("int64", ">i8", times=1000),
    BaseType.TIMESTAMP: _Layout("int64", ">i8", minus=EPOCH_MICROSECONDS),
}


def fixed(values: Any, form: str) -> pa.Array:
    """Numbers as a binary array, each of the same size.

    Args:
        values: a NumPy array.
        form: of each in bytes, as NumPy writes it: `>i4`.
    """
    import pyarrow as pa

    packed = values.astype(form)
    size = packed.dtype.itemsize
    found = pa.Array.from_buffers(pa.binary(size), len(packed), [None, pa.py_buffer(packed.tobytes())])
    return found.cast(pa.binary())


def binary_cells(values: pa.Array, sql_type: SqlType) -> pa.Array:
    """The values as a binary array; null for NULL."""
    import pyarrow as pa

    layout = _LAYOUTS.get(sql_type.base)
    if layout is not None:
        return _numbers(values, layout)
    match sql_type.base:
        case BaseType.BYTES:
            return values.cast(pa.binary())
        case BaseType.DECIMAL:
            return pa.array((None if each is None else numeric(each) for each in values.to_pylist()), pa.binary())
        case BaseType.ARRAY if (element := element_of(sql_type)) is not None:
            return pa.array(_arrays(values, element), pa.binary())
        case _:
            return text_cells(values, sql_type)


def _numbers(values: pa.Array, layout: _Layout) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.fill_null(values.cast(layout.arrow), 0).to_numpy(zero_copy_only=False)
    if (layout.minus, layout.times) != (0, 1):
        numbers = numbers * layout.times - layout.minus
    found = fixed(numbers, layout.form)
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.binary())) if values.null_count else found


def numeric(value: Decimal) -> bytes:
    """A numeric: the number of its digits, the weight of the first, sign and scale, then the digits."""
    sign, _, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    whole, _, fraction = f"{value.copy_abs():f}".partition(".")
    whole = whole.zfill(-(-len(whole) // NUMERIC_BASE_DIGITS) * NUMERIC_BASE_DIGITS)
    fraction = fraction.ljust(-(-len(fraction) // NUMERIC_BASE_DIGITS) * NUMERIC_BASE_DIGITS, "0")
    text = whole + fraction
    digits = [int(text[place : place + NUMERIC_BASE_DIGITS]) for place in range(0, len(text), NUMERIC_BASE_DIGITS)]
    weight = len(whole) // NUMERIC_BASE_DIGITS - 1
    while digits and digits[0] == 0:
        digits, weight = digits[1:], weight - 1
    while digits and digits[-1] == 0:
        digits.pop()
    mark = _NEGATIVE if sign and digits else 0
    return struct.pack(f"!hhHh{len(digits)}h", len(digits), weight if digits else 0, mark, scale, *digits)


def _arrays(values: pa.Array, element: SqlType) -> Iterable[bytes | None]:
    """Arrays of one dimension: whether there are NULLs, the elements' oid, how many, the first index, the elements."""
    cells = iter(binary_cells(values.flatten(), element).to_pylist())
    for size in values.value_lengths().to_pylist():
        if size is None:
            yield None
            continue
        taken = [next(cells) for _ in range(size)]
        head = struct.pack("!iiI", 1 if size else 0, int(None in taken), oid_of(element))
        bounds = struct.pack("!ii", size, 1) if size else b""
        yield (
            head
            + bounds
            + b"".join(struct.pack("!i", -1) if each is None else struct.pack("!i", len(each)) + each for each in taken)
        )
