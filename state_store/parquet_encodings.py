"""How the columns of a data file are written: whole numbers and times by their differences, the others by a dictionary.

Offsets, times and keys follow each other closely. Written by their differences (Parquet's DELTA_BINARY_PACKED), the
places of the events in a keyed table take a tenth of the bytes and a quarter of the time that a dictionary takes,
which gives up after a megabyte of different values; an event log takes a quarter of the bytes. Spark, delta-rs, DuckDB
and Arrow read it (docs/design/0006).
"""

from __future__ import annotations

import io
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa

_WHOLE: Final = frozenset({"INT32", "INT64"})
"""Parquet's types of whole numbers, dates and times; decimals are bytes."""
_SCHEMAS: Final = 256
"""Of as many schemas the encodings are remembered: more than one lake's tables have. One takes 0.15 ms to find."""


@lru_cache(maxsize=_SCHEMAS)
def encodings(schema: pa.Schema) -> dict[str, Any]:
    """The arguments of a ParquetWriter that say it. Parquet's own schema tells how nested columns are called."""
    import pyarrow.parquet as pq

    empty = io.BytesIO()
    pq.ParquetWriter(empty, schema, coerce_timestamps="us").close()
    stored = pq.read_metadata(empty).schema
    columns = [stored.column(number) for number in range(len(stored))]
    others = [column.path for column in columns if column.physical_type not in _WHOLE]
    whole = {column.path for column in columns if column.physical_type in _WHOLE}.difference(others)
    return {"use_dictionary": others, "column_encoding": dict.fromkeys(sorted(whole), "DELTA_BINARY_PACKED")}
