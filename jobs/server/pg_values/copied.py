"""Rows as the data of COPY … TO STDOUT: text, CSV or binary, a message for each row, thousands at a time.

Lines and values are joined by Arrow, as DataRow messages are. A binary row has the bytes of a DataRow.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.server.pg_values.rows import BATCH_ROWS, data_rows, fixed, text_cells
from strandline.jobs.server.pg_values.wire_types import BINARY_FORMAT, TEXT_FORMAT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.server.pg_values.wire_types import WireColumn

TEXT: Final = "text"
CSV: Final = "csv"
BINARY: Final = "binary"

_DATA: Final = b"d"
_BEGIN: Final = b"H"
_DONE: Final = b"c"
_LENGTH_BYTES: Final = 4
_BINARY_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_END: Final = struct.pack("!h", -1)
_ESCAPED: Final = (
    ("\\", "\\\\"),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
    ("\b", "\\b"),
    ("\f", "\\f"),
    ("\v", "\\v"),
)
"""What text has a backslash for, and how; the backslash first."""


@dataclass(frozen=True)
class CopyForm:
    """How rows are written.

    Attributes:
        kind: TEXT, CSV or BINARY.
        null: what stands for NULL.
        header: the names of the columns come first.
        quote, escape: of CSV; without an escape a quote is doubled.
    """

    kind: str
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = ""


def copied_rows(rows: pa.Table, columns: Sequence[WireColumn], form: CopyForm) -> Iterator[bytes | memoryview]:
    """The messages of a COPY, from its beginning to its end."""
    code = BINARY_FORMAT if form.kind == BINARY else TEXT_FORMAT
    yield _message(_BEGIN, struct.pack(f"!bh{len(columns)}h", code, len(columns), *[code] * len(columns)))
    if form.kind == BINARY:
        yield from _binary(rows, columns)
    else:
        if form.header:
            yield _message(_DATA, _line([column.name for column in columns], form))
        for batch in rows.to_batches(max_chunksize=BATCH_ROWS):
            if batch.num_rows:
                yield _lines(batch, columns, form)
    yield _message(_DONE)


def _binary(rows: pa.Table, columns: Sequence[WireColumn]) -> Iterator[bytes | memoryview]:
    """As PostgreSQL cuts it: what comes before all rows is in the message of the first one."""
    formats = [BINARY_FORMAT] * len(columns)
    if not rows.num_rows:
        yield _message(_DATA, _BINARY_HEAD + _BINARY_END)
        return
    (first,) = data_rows(rows.slice(0, 1), columns, formats)
    yield _message(_DATA, _BINARY_HEAD + bytes(first[1 + _LENGTH_BYTES :]))
    yield from data_rows(rows.slice(1), columns, formats, _DATA)
    yield _message(_DATA, _BINARY_END)


def _lines(batch: pa.RecordBatch, columns: Sequence[WireColumn], form: CopyForm) -> memoryview:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = [_cells(values, column, form) for values, column in zip(batch.columns, columns, strict=True)]
    lines = pc.binary_join_element_wise(*cells, pa.scalar(form.delimiter.encode())) if len(cells) > 1 else cells[0]
    sizes = pc.binary_length(lines).to_numpy(zero_copy_only=False).astype(np.int64) + _LENGTH_BYTES + 1
    parts = [pa.scalar(_DATA), fixed(sizes, ">i4"), lines, pa.scalar(b"\n")]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b""))
    return memoryview(joined.buffers()[2])[: int(sizes.sum()) + batch.num_rows]


def _cells(values: pa.Array, column: WireColumn, form: CopyForm) -> pa.Array:
    """The values as they stand in a line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written = _written(text_cells(values, column.type), form)
    return pc.fill_null(written, pa.scalar(form.null.encode(), pa.binary()))


def _line(names: Sequence[str], form: CopyForm) -> bytes:
    import pyarrow as pa

    cells = _written(pa.array([name.encode() for name in names], pa.binary()), form)
    return form.delimiter.encode().join(cells.to_pylist()) + b"\n"


def _written(cells: pa.Array, form: CopyForm) -> pa.Array:
    """Texts with what would be read as a delimiter, a line's end or NULL marked; null stays."""
    import pyarrow.compute as pc

    def replaced(found: Any, old: str, new: str) -> Any:
        return pc.replace_substring(found, old.encode(), new.encode())

    if form.kind == TEXT:
        for character, mark in _ESCAPED:
            cells = replaced(cells, character, mark)
        return cells if form.delimiter == "\t" else replaced(cells, form.delimiter, f"\\{form.delimiter}")
    escape = form.escape or form.quote
    doubled = cells if escape == form.quote else replaced(cells, escape, escape * 2)
    doubled = replaced(doubled, form.quote, escape + form.quote)
    marked = pc.equal(cells, form.null.encode())
    for character in (form.delimiter, form.quote, "\n", "\r", "\\."):
        marked = pc.or_(marked, pc.match_substring(cells, character.encode()))
    quoted = pc.binary_join_element_wise(form.quote.encode(), doubled, form.quote.encode(), b"")
    return pc.if_else(marked, quoted, cells)


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + _LENGTH_BYTES) + body
