"""Stored row as bytes: how often it is there, and the values of its visible columns.

    count (8 bytes) | NULLs (a bit per column) | a slot per column | the bytes of VARCHAR, BYTES and nested columns

A slot holds a BOOLEAN, number, DATE, TIMESTAMP or DECIMAL itself, little-endian, and of every other column the length
of its bytes. So one `struct` reads all slots of a row, and one matrix those of many rows. Nested values are in the
order-preserving form: equal rows have equal bytes, which is how a retraction finds its row.

Keys of stored rows as bytes: the key columns' bytes in order, of bounded length, below one prefix.

LMDB takes keys of 511 bytes at most, DynamoDB 1,024. A longer key keeps its first bytes and a hash of all: it finds its
row, stands in the right place among keys that differ earlier, and in any place among those that do not.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.errors import KeyRefused, ReplicaCorrupt
from strandline.state_store.replicas.value_bytes import (
    DECIMAL_BYTES,
    decimals,
    decoder,
    encoder,
    fixed_binary,
    from_integer,
    is_bytes,
    is_text,
    joined,
    numbers,
    ordered,
    scaled,
    texts,
    width_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray


ROWS: Final = b"r"
"""The first byte of every row's key. A backend keeps what is not a row elsewhere."""
ROWS_END: Final = b"s"

KEPT_BYTES: Final = 384
_HASH_BYTES: Final = 16
LONGEST_BYTES: Final = KEPT_BYTES + _HASH_BYTES
"""Of a key with its prefix; all of our backends take it."""

# Greater than the flag of any value: what begins with a key's first columns sorts before it.
_AFTER: Final = b"\xff"


@dataclass(frozen=True)
class KeyRange:
    """The rows between two keys, or first columns of keys.

    Attributes:
        low: the first key; None: from the beginning.
        high: the last one; None: to the end.
        after_low: leave out the rows whose key begins with `low`.
        with_high: keep the rows whose key begins with `high`; otherwise the range ends before them.
    """

    low: Sequence[Any] | None = None
    high: Sequence[Any] | None = None
    after_low: bool = False
    with_high: bool = False

    @classmethod
    def of_prefix(cls, *values: Any) -> KeyRange:
        """All rows whose key begins with these values."""
        return cls(values, values, with_high=True)


class KeyCodec:
    """Keys of some columns of a schema.

    Args:
        key: the key columns in their order.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._places = [schema.get_field_index(name) for name in key]
        self._names = list(key)
        self._encoders = [encoder(schema.field(name).type) for name in key]

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The key of each row."""
        prefix = pa.repeat(pa.scalar(ROWS, pa.large_binary()), batch.num_rows)
        found = joined([prefix, ordered([batch.column(place) for place in self._places], batch.num_rows)])
        keys: list[bytes] = found.to_pylist()
        if batch.num_rows and pc.max(pc.binary_length(found)).as_py() > LONGEST_BYTES:
            return [_bounded(key) for key in keys]
        return keys

    def of_values(self, values: Sequence[Any]) -> bytes:
        """The key of these values, one for each key column.

        Raises:
            KeyRefused: there are too few or too many, or one is not of its column's type.
        """
        if len(values) != len(self._encoders):
            raise KeyRefused(f"a key has {len(self._encoders)} columns ({', '.join(self._names)}), not {len(values)}")
        return _bounded(self._start(values))

    def bounds(self, wanted: KeyRange) -> tuple[bytes, bytes]:
        """The first key of a range, and the first behind it.

        Raises:
            KeyRefused: a bound has too many values, one of another type, or is longer than keys are ordered by.
        """
        low = ROWS if wanted.low is None else self._bound(wanted.low, after=wanted.after_low)
        high = ROWS_END if wanted.high is None else self._bound(wanted.high, after=wanted.with_high)
        return low, high

    def _start(self, values: Sequence[Any]) -> bytes:
        if len(values) == 1:
            # Most keys have one column; the list below takes twice as long as its encoding.
            return ROWS + self._encoders[0](values[0])
        return ROWS + b"".join([encode(value) for encode, value in zip(self._encoders, values, strict=False)])

    def _bound(self, values: Sequence[Any], *, after: bool) -> bytes:
        if len(values) > len(self._encoders):
            raise KeyRefused(f"a key has {len(self._encoders)} columns ({', '.join(self._names)}), not {len(values)}")
        bound = self._start(values)
        if len(bound) > KEPT_BYTES:
            raise KeyRefused(f"the bound of a range has {len(bound)} bytes; keys are in order by {KEPT_BYTES}")
        return bound + _AFTER if after else bound


def _bounded(key: bytes) -> bytes:
    if len(key) <= LONGEST_BYTES:
        return key
    return key[:KEPT_BYTES] + hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()


# One column of a stored row: the form of its slot, and its values out of slots and bytes.

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


# The function that reads one row back, written for its schema and compiled once.
#
#     def decode(value):                              k BIGINT, name VARCHAR, at TIMESTAMP
#         nulls, s0, s1, s2 = unpack(value)
#         e1 = 33 + s1
#         if e1 != len(value): raise ValueError
#         row = {'k': s0, 'name': c1(value[33:e1]), 'at': c2(s2)}
#         return row if nulls == none else with_nulls(row, nulls)
#
# A loop over the columns does the same in twice the time, which is most of a read from memory.


def compiled(columns: Sequence[StoredColumn], begin: int, null_bytes: int) -> Callable[[bytes], dict[str, Any]]:
    """The function from the bytes of a row to its values.

    It raises ValueError, IndexError or struct.error for bytes that are no row's.

    Args:
        begin: where the bits of NULLs begin.
        null_bytes: how many bytes they have.
    """
    slots = struct.Struct(f"<{begin}x{null_bytes}s" + "".join(column.form for column in columns))
    names = [column.name for column in columns]

    def with_nulls(row: dict[str, Any], bits: bytes) -> dict[str, Any]:
        nulls = int.from_bytes(bits, "little")
        return row | {name: None for number, name in enumerate(names) if nulls >> number & 1}

    known: dict[str, Any] = {"unpack": slots.unpack_from, "none": bytes(null_bytes), "with_nulls": with_nulls}
    known |= {f"c{number}": column.convert for number, column in enumerate(columns)}
    exec(_source(columns, slots.size), known)  # noqa: S102 (of numbers and of names as literals, see `_source`)
    made: Callable[[bytes], dict[str, Any]] = known["decode"]
    return made


def _source(columns: Sequence[StoredColumn], size: int) -> str:
    """The text of the function. Of a schema it holds the names alone, each as a literal."""
    ends, items, end = [], [], str(size)
    for number, column in enumerate(columns):
        value = f"s{number}"
        if column.variable:
            begin, end = end, f"e{number}"
            ends.append(f"    {end} = {begin} + s{number}\n")
            value = f"c{number}(value[{begin}:{end}])"
        elif column.converts:
            value = f"c{number}(s{number})"
        items.append(f"{column.name!r}: {value}")
    taken = "".join(f", s{number}" for number in range(len(columns)))
    return (
        f"def decode(value):\n    nulls{taken}, = unpack(value)\n{''.join(ends)}"
        f"    if {end} != len(value): raise ValueError\n    row = {{{', '.join(items)}}}\n"
        "    return row if nulls == none else with_nulls(row, nulls)\n"
    )


COUNT: Final = struct.Struct("<q")
"""How often the row is there; what follows it is the row's body."""


class RowCodec:
    """Rows of one schema as bytes, and back.

    Args:
        schema: the visible columns.

    Raises:
        CorruptState: a column has a type that our tables do not have.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns = [column_of(field) for field in schema]
        self._null_bytes = (len(self._columns) + 7) // 8
        slots: list[Any] = [(column.slot_name, *column.slot) for column in self._columns]
        self._dtype = np.dtype([("count", "<i8"), ("nulls", "u1", (self._null_bytes,)), *slots])
        self._decode = compiled(self._columns, COUNT.size, self._null_bytes)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The bytes of each row, each there once."""
        fixed = np.zeros(batch.num_rows, self._dtype)
        fixed["count"] = 1
        pieces = []
        for number, (column, values) in enumerate(zip(self._columns, batch.columns, strict=True)):
            if values.null_count:
                fixed["nulls"][:, number // 8] |= np.asarray(values.is_null()).astype(np.uint8) << (number % 8)
            if column.variable:
                data = variable_of(values)
                fixed[column.slot_name] = np.asarray(pc.binary_length(data))
                pieces.append(data)
            else:
                fixed[column.slot_name] = slots_of(values)
        matrix = fixed.view(np.uint8).reshape(batch.num_rows, self._dtype.itemsize)
        encoded: list[bytes] = joined([fixed_binary(matrix), *pieces]).to_pylist()
        return encoded

    def decode(self, value: bytes) -> dict[str, Any]:
        """One row, with the values that Arrow's `to_pylist` gives.

        Raises:
            ReplicaCorrupt: these are no bytes of a row of this schema.
        """
        try:
            return self._decode(value)
        except (struct.error, ValueError, IndexError) as error:
            raise ReplicaCorrupt("a row of a replica does not read back") from error

    def decode_all(self, values: Sequence[bytes]) -> pa.RecordBatch:
        """The rows as columns, each as often as it is there.

        Raises:
            ReplicaCorrupt: these are no bytes of rows of this schema.
        """
        data = np.frombuffer(b"".join(values), np.uint8)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        width = self._dtype.itemsize
        if len(values) and lengths.min() < width:
            raise ReplicaCorrupt("a row of a replica does not read back")
        starts = np.cumsum(lengths) - lengths
        fixed = data[starts[:, None] + np.arange(width)].view(self._dtype).reshape(len(values))
        at = starts + width
        arrays = []
        for number, column in enumerate(self._columns):
            null = (fixed["nulls"][:, number // 8] >> (number % 8) & 1).astype(bool)
            slots = np.ascontiguousarray(fixed[column.slot_name])
            if column.variable:
                arrays.append(variable_to_array(column, data, at, slots.astype(np.int64), null))
                at = at + slots
            else:
                arrays.append(slots_to_array(column, slots, null))
        if not np.array_equal(at, starts + lengths):
            raise ReplicaCorrupt("a row of a replica does not read back")
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        counts = fixed["count"]
        if (counts == 1).all():
            return batch
        return batch.take(pa.array(np.repeat(np.arange(len(values)), counts)))
