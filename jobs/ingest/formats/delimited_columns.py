"""Separated values read by columns: lines without quotes, cut at their delimiters, with no Python object for each.

    bytes    17,Ann,2.5 18,Bo, …              one buffer with all records of a run
    pieces   17 │ Ann │ 2.5 │ 18 │ Bo │       a column each; an empty one is NULL

A line is read so if it holds no quote and no control character, has a value for each column, and each value is written
so that Arrow reads it as `formats.coerce` does. What is not so may be just as good, or broken: that is for the way
record by record to say (see `delimited`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.ingest.formats.columns import Part, are_texts
from strandline.jobs.ingest.formats.json_values import Unreadable, in_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from strandline.jobs.ingest.formats.json_values import Truth
    from strandline.jobs.model.definitions import Column

_QUOTE, _CONTROL = ord('"'), 0x20
_ASCII: Final = 0x80


def read_lines(payloads: Sequence[bytes | None], wanted: Sequence[Column], delimiter: str) -> list[Part]:
    """What is read of a run of records: a part, or none."""
    mark = ord(delimiter)
    if mark >= _ASCII:
        return []
    joined = pa.array(payloads, type=pa.binary())
    _, offsets, buffer = joined.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[: len(payloads) + 1]
    data = np.frombuffer(buffer or b"", dtype=np.uint8)[: bounds[-1]]
    found = np.flatnonzero(data == mark).astype(np.int32)
    first = np.searchsorted(found, bounds)
    rows = np.flatnonzero(_plain(joined, payloads, data, bounds, mark) & (np.diff(first) == len(wanted) - 1))
    if not len(rows):
        return []
    marks = np.empty((len(rows), 2 * len(wanted)), dtype=np.int32)
    marks[:, 0], marks[:, -1] = bounds[:-1][rows], bounds[1:][rows]
    marks[:, 1:-1:2] = found[first[:-1][rows][:, None] + np.arange(len(wanted) - 1)]
    marks[:, 2:-1:2] = marks[:, 1:-1:2] + 1
    pieces = pa.StringArray.from_buffers(marks.size - 1, pa.py_buffer(marks.ravel()), buffer)
    good: Truth = np.ones(len(rows), dtype=bool)
    try:
        arrays = [
            _column(pieces.take(pa.array(np.arange(2 * place, marks.size, 2 * len(wanted)))), column, good)
            for place, column in enumerate(wanted)
        ]
    except Unreadable:
        return []
    if good.all():
        return [Part(rows, arrays)]
    kept = pa.array(good)
    return [Part(rows[good], [array.filter(kept) for array in arrays])]


def _plain(
    joined: pa.Array,
    payloads: Sequence[bytes | None],
    data: NDArray[np.uint8],
    bounds: NDArray[np.int32],
    mark: int,
) -> NDArray[Any]:
    """Which records are texts, of one line without quotes."""
    plain = (bounds[1:] > bounds[:-1]) & are_texts(joined, payloads)
    odd = np.flatnonzero((data == _QUOTE) | ((data < _CONTROL) & (data != mark)))
    if len(odd):
        plain[np.searchsorted(bounds[1:], odd, side="right")] = False
    return plain


def _column(texts: pa.Array, column: Column, good: Truth) -> pa.Array:
    """Raises Unreadable."""
    empty = pc.equal(texts, "")
    texts = pc.if_else(empty, None, texts) if pc.any(empty).as_py() else texts
    example = pc.first(texts).as_py()  # the first one that is not NULL
    if example is None:
        return pa.nulls(len(texts), column.type.arrow())
    read = in_text(example, column.type)(texts, good)
    return read if read.type == column.type.arrow() else read.cast(column.type.arrow())
