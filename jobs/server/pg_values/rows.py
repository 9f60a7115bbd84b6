"""Rows as DataRow messages, thousands at a time: Arrow lays out the bytes of a whole batch, no row is a Python object.

┌ D ┬ length ┬ columns ┬ length ┬ value ┬ length ┬ value ┐
│1 B│  4 B   │   2 B   │  4 B   │       │  4 B   │       │   a length of −1: NULL, without a value
└───┴────────┴─────────┴────────┴───────┴────────┴───────┘
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.types import BaseType
from strandline.jobs.server.pg_values.binary_cells import binary_cells, fixed
from strandline.jobs.server.pg_values.text_cells import text_cells
from strandline.jobs.server.pg_values.wire_types import BINARY_FORMAT, TEXT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.model.types import SqlType
    from strandline.jobs.server.pg_values.wire_types import WireColumn

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


def few_rows(
    rows: Sequence[Sequence[Any]], columns: Sequence[WireColumn], formats: Sequence[int], kind: bytes = _KIND
) -> bytes:
    """The same of a few rows of Python values, as Arrow's `to_pylist` gives them: for one row Arrow takes longer."""
    found: list[bytes] = []
    count = _TWO_BYTES.pack(len(columns))
    writers = [_writer(column.type, form) for column, form in zip(columns, formats, strict=True)]
    for row in rows:
        cells = [count]
        size = _HEAD_BYTES
        for value, write in zip(row, writers, strict=True):
            if value is None:
                cells.append(_NULL)
                size += _LENGTH_BYTES
            else:
                cell = write(value)
                cells += (_FOUR_BYTES.pack(len(cell)), cell)
                size += _LENGTH_BYTES + len(cell)
        found += (kind, _FOUR_BYTES.pack(size), *cells)
    return b"".join(found)


def _writer(sql_type: SqlType, form: int) -> Callable[[Any], bytes]:
    """What writes a value that is not NULL as a cell."""
    plain = _PLAIN.get((sql_type.base, form))
    if plain is not None:
        return plain
    cells = text_cells if form == TEXT_FORMAT else binary_cells

    def write(value: Any) -> bytes:
        import pyarrow as pa

        found: bytes = cells(pa.array([value], sql_type.arrow()), sql_type)[0].as_py()
        return found

    return write


def _double(value: float) -> bytes:
    """As Arrow writes it, which spells exponents in another way than Python."""
    import pyarrow as pa

    if not math.isfinite(value):
        return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    text: str = pa.scalar(value, pa.float64()).cast(pa.string()).as_py()
    return text.encode()


_TWO_BYTES: Final = struct.Struct("!h")
_FOUR_BYTES: Final = struct.Struct("!i")
_EIGHT_BYTES: Final = struct.Struct("!q")
_NULL: Final = _FOUR_BYTES.pack(-1)
_PLAIN: Final[dict[tuple[BaseType, int], Callable[[Any], bytes]]] = {
    (BaseType.VARCHAR, TEXT_FORMAT): str.encode,
    (BaseType.VARCHAR, BINARY_FORMAT): str.encode,
    (BaseType.INT, TEXT_FORMAT): lambda value: b"%d" % value,
    (BaseType.INT, BINARY_FORMAT): _FOUR_BYTES.pack,
    (BaseType.BIGINT, TEXT_FORMAT): lambda value: b"%d" % value,
    (BaseType.BIGINT, BINARY_FORMAT): _EIGHT_BYTES.pack,
    (BaseType.DOUBLE, TEXT_FORMAT): _double,
    (BaseType.DOUBLE, BINARY_FORMAT): struct.Struct("!d").pack,
    (BaseType.BOOLEAN, TEXT_FORMAT): lambda value: b"t" if value else b"f",
    (BaseType.BOOLEAN, BINARY_FORMAT): lambda value: b"\x01" if value else b"\x00",
}
"""{type and format: what writes it}, of the types that keys and counts have; Arrow writes the others."""


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
