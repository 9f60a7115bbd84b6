"""Rows as DataRow messages, thousands at a time: Arrow lays out the bytes of a whole batch, no row is a Python object.

┌ D ┬ length ┬ columns ┬ length ┬ value ┬ length ┬ value ┐
│1 B│  4 B   │   2 B   │  4 B   │       │  4 B   │       │   a length of −1: NULL, without a value
└───┴────────┴─────────┴────────┴───────┴────────┴───────┘
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jobs.server.pg_values.binary_cells import binary_cells, fixed
from jobs.server.pg_values.text_cells import text_cells
from jobs.server.pg_values.wire_types import TEXT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from jobs.server.pg_values.wire_types import WireColumn

BATCH_ROWS: Final = 4096
"""A few hundred kilobytes, made in a few milliseconds: the event loop belongs to all clients."""
_KIND: Final = b"D"
_HEAD_BYTES: Final = 6
"""The length itself and the number of columns, which the length of the message counts."""
_LENGTH_BYTES: Final = 4


def data_rows(
    rows: pa.Table, columns: Sequence[WireColumn], formats: Sequence[int], kind: bytes = _KIND
) -> Iterator[memoryview]:
    """The rows as messages, several thousand in each piece.

    Args:
        formats: of each column, text (0) or binary (1).
        kind: of the messages.
    """
    for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
        if batch.num_rows:
            yield _messages(batch, columns, formats, kind)


def _messages(batch: pa.RecordBatch, columns: Sequence[WireColumn], formats: Sequence[int], kind: bytes) -> memoryview:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    sizes = np.full(batch.num_rows, _HEAD_BYTES, dtype=np.int64)
    for values, column, form in zip(batch.columns, columns, formats, strict=True):
        cells = text_cells(values, column.type) if form == TEXT_FORMAT else binary_cells(values, column.type)
        lengths = pc.fill_null(pc.binary_length(cells), -1).to_numpy(zero_copy_only=False)
        sizes += np.maximum(lengths, 0) + _LENGTH_BYTES
        parts += [fixed(lengths, ">i4"), pc.fill_null(cells, b"")]
    count = len(columns).to_bytes(2, "big")
    head = [pa.scalar(kind), fixed(sizes, ">i4"), pa.scalar(count)]
    joined = pc.binary_join_element_wise(*head, *parts, pa.scalar(b""))
    return memoryview(joined.buffers()[2])[: int(sizes.sum()) + batch.num_rows]
