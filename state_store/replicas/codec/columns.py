"""One column of a stored row: the form of its slot, and its values out of slots and bytes."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.state_store.errors import ReplicaCorrupt
from strandline.state_store.replicas.codec.decode import decoder
from strandline.state_store.replicas.codec.numbers import from_integer, is_bytes, is_text, scaled, width_of
from strandline.state_store.replicas.codec.ordered import DECIMAL_BYTES, decimals, numbers, ordered, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

_INTEGER_FORMS: Final = {1: "b", 2: "h", 4: "i", 8: "q"}


@dataclass(frozen=True)
class StoredColumn:
    """One column.

    Attributes:
        slot_name: its name in numpy's record; a column's own name may be any text.
        slot: the arguments of numpy's record: the type, and the shape if it has one.
        form: the same for `struct`.
        variable: True if the slot holds the length of the column's bytes.
        convert: makes the value, of the slot's number or of the bytes.
        converts: False if the slot's number is the value.
    """

    name: str
    arrow_type: pa.DataType
    slot_name: str
    slot: tuple[Any, ...]
    form: str
    variable: bool
    convert: Callable[[Any], Any]
    converts: bool = True


def column_of(field: pa.Field) -> StoredColumn:
    """The stored form of a visible column.

    Raises:
        CorruptState: our tables have no such type.
    """
    found, name = field.type, field.name
    slot_name = f"of {name}"
    if pa.types.is_boolean(found):
        return StoredColumn(name, found, slot_name, ("i1",), "?", False, bool, False)
    width = width_of(found)
    if width is not None:
        convert = from_integer(found)
        slot = (f"<i{width}",)
        form = _INTEGER_FORMS[width]
        return StoredColumn(name, found, slot_name, slot, form, False, convert or int, convert is not None)
    if pa.types.is_floating(found):
        width = found.bit_width // 8
        return StoredColumn(name, found, slot_name, (f"<f{width}",), {4: "f", 8: "d"}[width], False, float, False)
    if pa.types.is_decimal(found):
        form = f"{DECIMAL_BYTES}s"
        return StoredColumn(name, found, slot_name, ("u1", (DECIMAL_BYTES,)), form, False, _decimal(found.scale))
    return StoredColumn(name, found, slot_name, ("<u4",), "I", True, _of_bytes(found))


def slots_of(values: pa.Array) -> NDArray[Any]:
    """The contents of the slots of a column that is not variable; NULLs are 0."""
    found = numbers(values)
    return decimals(values) if found is None else found


def slots_to_array(column: StoredColumn, slots: NDArray[Any], null: NDArray[np.bool_]) -> pa.Array:
    """The column out of its slots."""
    found = column.arrow_type
    if pa.types.is_decimal(found):
        mask = pa.array(~null).buffers()[1]
        return pa.Array.from_buffers(found, len(null), [mask, pa.py_buffer(slots)])
    if pa.types.is_boolean(found):
        return pa.array(slots.astype(bool), found, mask=null)
    if pa.types.is_date32(found) or pa.types.is_timestamp(found):
        return pa.array(slots, pa.int32() if slots.itemsize == 4 else pa.int64(), mask=null).cast(found)
    return pa.array(slots, found, mask=null)


def variable_of(values: pa.Array) -> pa.Array:
    """The bytes of a variable column as LARGE_BINARY; NULLs are empty or the flag of a nested one."""
    found = texts(values)
    return ordered([values], len(values)) if found is None else found


def variable_to_array(
    column: StoredColumn,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    null: NDArray[np.bool_],
) -> pa.Array:
    """The column out of the bytes that begin at `starts` in the data.

    Raises:
        ReplicaCorrupt: they do not fit into the data, or are no values of the column.
    """
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    if len(starts) and (starts + lengths).max() > len(data):
        raise ReplicaCorrupt("a row of a replica does not read back")
    gathered = data[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])]
    found = column.arrow_type
    try:
        if is_text(found) or is_bytes(found):
            buffers = [pa.array(~null).buffers()[1], pa.py_buffer(offsets), pa.py_buffer(gathered)]
            # The cast to text looks whether it is UTF-8.
            return pa.Array.from_buffers(pa.large_binary(), len(null), buffers).cast(found)
        raw = gathered.tobytes()
        values = [column.convert(raw[first:last]) for first, last in pairwise(offsets)]
        return pa.array(values, found)
    except (ValueError, IndexError, pa.ArrowException) as error:
        raise ReplicaCorrupt("a row of a replica does not read back") from error


def _decimal(scale: int) -> Callable[[bytes], Any]:
    return lambda data: scaled(int.from_bytes(data, "little", signed=True), scale)


def _of_bytes(found: pa.DataType) -> Callable[[bytes], Any]:
    if is_text(found):
        return bytes.decode
    if is_bytes(found):
        return bytes
    decode = decoder(found)
    return lambda data: decode(data, 0)[0]
