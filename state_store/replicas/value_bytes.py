"""Order-preserving bytes of values: of whole columns, of single values, and back.

Restores encode columns; point reads encode one key and decode one row."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.errors import CorruptState, KeyRefused
from strandline.state_store.python_values import instant_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


# Whole columns: compared as bytes, the values stand in the order of SQL, NULL first.
#
# | type | bytes |
# | --- | --- |
# | any | `00` for NULL, else `01` and: |
# | BOOLEAN, integers, DATE, TIMESTAMP | big-endian, the sign bit flipped |
# | FLOAT, DOUBLE | big-endian; all bits flipped if negative, else the sign bit. −0.0 is 0.0; NaN is one, the greatest |
# | DECIMAL | the unscaled integer in 16 bytes, big-endian, the sign bit flipped |
# | VARCHAR (UTF-8), BYTES | its bytes, `00` as `00 ff`, then `00 00` |
# | STRUCT | its fields one after the other |
# | ARRAY | each element after a `01`, then `00` |
# | MAP | as the array of its entries, sorted by their bytes: equal maps have equal bytes; they have no order in SQL |
#
# A NULL of a type with a fixed width has as many zeros: so a column is one matrix. `encoder` does the same value by
# value.

NULL: Final = b"\x00"
PRESENT: Final = b"\x01"
TERMINATOR: Final = b"\x00\x00"
ESCAPED: Final = b"\x00\xff"
DECIMAL_BYTES: Final = 16


def ordered(columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """The bytes of each row of these columns, one after the other, as LARGE_BINARY; of no columns, empty ones.

    Raises:
        CorruptState: a column has a type that our tables do not have.
    """
    if not columns:
        return pa.array([b""] * rows, pa.large_binary())
    return joined([_pieces(column) for column in columns])


def joined(pieces: Sequence[pa.Array]) -> pa.Array:
    """The binary columns concatenated row by row."""
    if len(pieces) == 1:
        return pieces[0]
    return pc.binary_join_element_wise(*pieces, pa.scalar(b"", pa.large_binary()))


def fixed_binary(matrix: NDArray[Any]) -> pa.Array:
    """The rows of a matrix of bytes as LARGE_BINARY."""
    rows, width = matrix.shape
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(matrix))]
    return pa.Array.from_buffers(pa.large_binary(), rows, buffers)


def numbers(column: pa.Array) -> NDArray[Any] | None:
    """The values of a BOOLEAN, number, DATE or TIMESTAMP column as numpy has them, NULLs as 0; None for another type.

    −0.0 is 0.0, and NaN one value: what is equal in SQL is equal in bytes.
    """
    found = column.type
    if pa.types.is_boolean(found):
        return np.asarray(pc.fill_null(column, False).cast(pa.int8()))
    if pa.types.is_integer(found) or pa.types.is_floating(found):
        values = np.array(pc.fill_null(column, pa.scalar(0, found)))
        if values.dtype.kind == "f":
            values += 0.0  # −0.0 + 0.0 is 0.0
            values[np.isnan(values)] = np.nan
        return values
    if pa.types.is_date32(found) or pa.types.is_timestamp(found):
        whole = column.cast(pa.int32() if pa.types.is_date32(found) else pa.int64())
        return np.asarray(pc.fill_null(whole, 0))
    return None


def decimals(column: pa.Array) -> NDArray[np.uint8]:
    """The unscaled integers of a DECIMAL column, 16 bytes each, little-endian, NULLs as 0."""
    zero = pa.scalar(Decimal(0), column.type)
    filled = pc.fill_null(column, zero)
    data = np.frombuffer(filled.buffers()[1], np.uint8)
    start = filled.offset * DECIMAL_BYTES
    return data[start : start + len(filled) * DECIMAL_BYTES].reshape(len(filled), DECIMAL_BYTES)


def texts(column: pa.Array) -> pa.Array | None:
    """A VARCHAR or BYTES column as LARGE_BINARY, NULLs as empty; None for another type."""
    found = column.type
    text = pa.types.is_string(found) or pa.types.is_large_string(found)
    if not text and not pa.types.is_binary(found) and not pa.types.is_large_binary(found):
        return None
    return pc.fill_null(column.cast(pa.large_string()).cast(pa.large_binary()) if text else _large(column), b"")


def _large(column: pa.Array) -> pa.Array:
    return column.cast(pa.large_binary())


def _pieces(column: pa.Array) -> pa.Array:
    values = numbers(column)
    if values is not None:
        return _flagged(column, _big_endian(values))
    if pa.types.is_decimal(column.type):
        matrix = decimals(column)[:, ::-1].copy()
        matrix[:, 0] ^= 0x80
        return _flagged(column, matrix)
    text = texts(column)
    if text is not None:
        return _or_null(column, [pc.replace_substring(text, NULL, ESCAPED), _constant(TERMINATOR)])
    if pa.types.is_struct(column.type):
        return _or_null(column, [_pieces(child) for child in column.flatten()])
    if pa.types.is_map(column.type):
        return _or_null(column, [_map_entries(column), _constant(NULL)])
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        elements = _elements(column)
        return _or_null(column, [_runs(column, joined([_marks(elements), _pieces(elements)])), _constant(NULL)])
    raise CorruptState(f"a column of type {column.type} has no place in a replica")


def _big_endian(values: NDArray[Any]) -> NDArray[np.uint8]:
    """The bytes of numbers in their order."""
    width = values.dtype.itemsize
    unsigned: Any = np.dtype(f"u{width}")
    bits: NDArray[Any] = np.ascontiguousarray(values).view(unsigned)
    sign = unsigned.type(1 << (8 * width - 1))
    turned = np.where(bits & sign, ~bits, bits | sign) if values.dtype.kind == "f" else bits ^ sign
    return turned.astype(unsigned.newbyteorder(">")).view(np.uint8).reshape(len(values), width)


def _flagged(column: pa.Array, matrix: NDArray[np.uint8]) -> pa.Array:
    """A flag before each row of a matrix; NULLs are zeros."""
    valid = np.asarray(column.is_valid())
    flagged = np.empty((len(column), matrix.shape[1] + 1), np.uint8)
    flagged[:, 0] = valid
    flagged[:, 1:] = matrix
    flagged[~valid] = 0
    return fixed_binary(flagged)


def _or_null(column: pa.Array, pieces: Sequence[pa.Array | pa.Scalar]) -> pa.Array:
    """The flag and the pieces, joined; for a NULL the flag alone."""
    present = joined([_marks(column), *pieces])
    return present if not column.null_count else pc.if_else(column.is_valid(), present, _constant(NULL))


def _marks(column: pa.Array) -> pa.Array:
    return pa.repeat(_constant(PRESENT), len(column))


def _constant(data: bytes) -> pa.Scalar:
    return pa.scalar(data, pa.large_binary())


def _offsets(column: pa.Array) -> NDArray[np.int64]:
    """Where each row's elements begin among the elements of all rows, of which the first is at 0."""
    found: NDArray[np.int64] = np.asarray(column.offsets).astype(np.int64)
    begin: NDArray[np.int64] = found - found[0]
    return begin


def _elements(column: pa.Array) -> pa.Array:
    first, last = column.offsets[0].as_py(), column.offsets[-1].as_py()
    return column.values.slice(first, last - first)


def _runs(column: pa.Array, pieces: pa.Array) -> pa.Array:
    """The pieces of each row's elements, joined."""
    runs = pa.LargeListArray.from_arrays(pa.array(_offsets(column)), pieces)
    return pc.binary_join(runs, _constant(b""))


def _map_entries(column: pa.Array) -> pa.Array:
    entries = _elements(column)
    keys, items = entries.flatten()
    pieces = joined([_marks(entries), _pieces(keys), _pieces(items)])
    offsets = _offsets(column)
    rows = np.repeat(np.arange(len(column)), np.diff(offsets))
    order = pc.sort_indices(
        pa.table({"row": rows, "piece": pieces}), sort_keys=[("row", "ascending"), ("piece", "ascending")]
    )
    return _runs(column, pieces.take(order))


EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_NTZ: Final = datetime(1970, 1, 1)  # noqa: DTZ001 (TIMESTAMP_NTZ has no zone)
EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
# 38 digits are the most that DECIMAL has; the quotient of a shift never rounds within it.
_EXACT: Final = Context(prec=80, rounding=ROUND_HALF_EVEN)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_integer(arrow_type: pa.DataType) -> Callable[[Any], int]:
    """Find the function that makes the whole number of a BOOLEAN, integer, DATE or TIMESTAMP.

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
    """Find the function that makes the value of such a whole number; None if the number is the value."""
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


# Single values: the same bytes as those that `ordered` makes of columns.
#
# A point read has one key, and Arrow takes some 300 µs to make columns of it; this takes two.

Encoder = Callable[[Any], bytes]

_REFUSED: Final = (TypeError, ValueError, AttributeError, OverflowError, InvalidOperation, struct.error, KeyError)


def encoder(arrow_type: pa.DataType) -> Encoder:
    """The function that makes the bytes of one value, or of None. It raises KeyRefused for a value of another type.

    Raises:
        CorruptState: our tables have no such type.
    """
    body, width = _encoder_of(arrow_type)
    null = NULL + bytes(width)

    def encode(value: Any) -> bytes:
        if value is None:
            return null
        try:
            return PRESENT + body(value)
        except _REFUSED as error:
            raise KeyRefused(f"{value!r} is no value of type {arrow_type}") from error

    return encode


def _encoder_of(found: pa.DataType) -> tuple[Encoder, int]:
    """The encoder of a value that is not NULL, and the width if it is fixed, else 0."""
    width = width_of(found)
    if width is not None:
        return _offset_integer(found, width), width
    if pa.types.is_floating(found):
        return _float_encoder(found), found.bit_width // 8
    if pa.types.is_decimal(found):
        top = 1 << (8 * DECIMAL_BYTES - 1)
        return lambda value: (unscaled(value, found.scale) + top).to_bytes(DECIMAL_BYTES, "big"), DECIMAL_BYTES
    if is_text(found):
        return lambda value: _escaped(str.encode(value)), 0
    if is_bytes(found):
        return lambda value: _escaped(bytes(memoryview(value))), 0
    if pa.types.is_struct(found):
        fields = [(field.name, encoder(field.type)) for field in found]
        return lambda value: b"".join(encode(value[name]) for name, encode in fields), 0
    if pa.types.is_map(found):
        key, item = encoder(found.key_type), encoder(found.item_type)
        return lambda value: b"".join(sorted(PRESENT + key(k) + item(v) for k, v in _entries(value))) + NULL, 0
    if is_array(found):
        element = encoder(found.value_type)
        return lambda value: b"".join(PRESENT + element(each) for each in value) + NULL, 0
    raise CorruptState(f"a column of type {found} has no place in a replica")


def _offset_integer(found: pa.DataType, width: int) -> Encoder:
    top = 1 << (8 * width - 1)
    number = to_integer(found)
    return lambda value: (number(value) + top).to_bytes(width, "big")


def _float_encoder(found: pa.DataType) -> Encoder:
    width = found.bit_width // 8
    form, top = {4: ">f", 8: ">d"}[width], 1 << (8 * width - 1)

    def encode(value: Any) -> bytes:
        if isinstance(value, bool):
            raise TypeError
        plain = float("nan") if value != value else value + 0.0
        bits = int.from_bytes(struct.pack(form, plain), "big")
        turned: int = bits ^ (2 * top - 1) if bits & top else bits | top
        return turned.to_bytes(width, "big")

    return encode


def _escaped(data: bytes) -> bytes:
    return data.replace(NULL, ESCAPED) + TERMINATOR


def _entries(value: Any) -> Any:
    return value.items() if isinstance(value, dict) else value


# Single values out of their bytes, as Arrow's `to_pylist` gives them.

Decoder = Callable[[bytes, int], tuple[Any, int]]
"""Takes bytes and a position; gives the value there and the position behind it."""


def decoder(arrow_type: pa.DataType) -> Decoder:
    """The function that reads one value back, as Arrow's `to_pylist` gives it.

    Raises:
        CorruptState: our tables have no such type.
    """
    body, width = _decoder_of(arrow_type)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        if data[at] == 0:
            return None, at + 1 + width
        return body(data, at + 1)

    return decode


def _decoder_of(found: pa.DataType) -> tuple[Decoder, int]:
    width = width_of(found)
    if width is not None:
        return _integer_decoder(found, width), width
    if pa.types.is_floating(found):
        return _float_decoder(found.bit_width // 8), found.bit_width // 8
    if pa.types.is_decimal(found):
        return _decimal_decoder(found.scale), DECIMAL_BYTES
    if is_text(found):
        return _text, 0
    if is_bytes(found):
        return _unescaped, 0
    if pa.types.is_struct(found):
        return _struct_decoder(found), 0
    if pa.types.is_map(found):
        return _run_decoder(_pair_decoder(found)), 0
    if is_array(found):
        return _run_decoder(decoder(found.value_type)), 0
    raise CorruptState(f"a column of type {found} has no place in a replica")


def _integer_decoder(found: pa.DataType, width: int) -> Decoder:
    top = 1 << (8 * width - 1)
    convert = from_integer(found) or int
    return lambda data, at: (convert(int.from_bytes(data[at : at + width], "big") - top), at + width)


def _decimal_decoder(scale: int) -> Decoder:
    top = 1 << (8 * DECIMAL_BYTES - 1)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        end = at + DECIMAL_BYTES
        return scaled(int.from_bytes(data[at:end], "big") - top, scale), end

    return decode


def _float_decoder(width: int) -> Decoder:
    form, top = {4: ">f", 8: ">d"}[width], 1 << (8 * width - 1)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        turned = int.from_bytes(data[at : at + width], "big")
        bits = turned ^ top if turned & top else turned ^ (2 * top - 1)
        return struct.unpack(form, bits.to_bytes(width, "big"))[0], at + width

    return decode


def _text(data: bytes, at: int) -> tuple[str, int]:
    raw, end = _unescaped(data, at)
    return raw.decode(), end


def _unescaped(data: bytes, at: int) -> tuple[bytes, int]:
    end = at
    while True:
        end = data.index(NULL, end)
        if data[end + 1] == 0:
            return data[at:end].replace(ESCAPED, NULL), end + 2
        end += 2


def _struct_decoder(found: pa.DataType) -> Decoder:
    fields = [(field.name, decoder(field.type)) for field in found]

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        value = {}
        for name, each in fields:
            value[name], at = each(data, at)
        return value, at

    return decode


def _pair_decoder(found: pa.DataType) -> Decoder:
    key, item = decoder(found.key_type), decoder(found.item_type)

    def decode(data: bytes, at: int) -> tuple[Any, int]:
        first, at = key(data, at)
        second, at = item(data, at)
        return (first, second), at

    return decode


def _run_decoder(element: Decoder) -> Decoder:
    def decode(data: bytes, at: int) -> tuple[Any, int]:
        values = []
        while data[at] != 0:
            value, at = element(data, at + 1)
            values.append(value)
        return values, at + 1

    return decode
