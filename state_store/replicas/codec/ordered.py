"""Order-preserving bytes of whole columns: compared as bytes, they stand in the order of SQL, NULL first.

| type | bytes |
| --- | --- |
| any | `00` for NULL, else `01` and: |
| BOOLEAN, integers, DATE, TIMESTAMP | big-endian, the sign bit flipped |
| FLOAT, DOUBLE | big-endian; all bits flipped if negative, else the sign bit. −0.0 is 0.0; NaN is one, the greatest |
| DECIMAL | the unscaled integer in 16 bytes, big-endian, the sign bit flipped |
| VARCHAR (UTF-8), BYTES | its bytes, `00` as `00 ff`, then `00 00` |
| STRUCT | its fields one after the other |
| ARRAY | each element after a `01`, then `00` |
| MAP | as the array of its entries, sorted by their bytes: equal maps have equal bytes; they have no order in SQL |

A NULL of a type with a fixed width has as many zeros: so a column is one matrix. `encode` does the same value by value.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

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
