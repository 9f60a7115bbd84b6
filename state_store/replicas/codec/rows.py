"""A stored row: how often it is there, and the values of its visible columns.

    count (8 bytes) | NULLs (a bit per column) | a slot per column | the bytes of VARCHAR, BYTES and nested columns

A slot holds a BOOLEAN, number, DATE, TIMESTAMP or DECIMAL itself, little-endian, and of every other column the length
of its bytes. So one `struct` reads all slots of a row, and one matrix those of many rows. Nested values are in the
order-preserving form: equal rows have equal bytes, which is how a retraction finds its row.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.errors import ReplicaCorrupt
from strandline.state_store.replicas.codec.columns import (
    column_of,
    slots_of,
    slots_to_array,
    variable_of,
    variable_to_array,
)
from strandline.state_store.replicas.codec.compiled import compiled
from strandline.state_store.replicas.codec.ordered import fixed_binary, joined

if TYPE_CHECKING:
    from collections.abc import Sequence

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
