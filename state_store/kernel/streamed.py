"""Rows that DuckDB computes while they are taken, in Arrow batches. What goes wrong on the way is an error of DuckDB's,
as it would be at the start: Arrow's reader calls everything an OSError, and whoever writes the rows would blame the
disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Generator

BATCH_ROWS: Final = 122_880
"""Rows that are taken from DuckDB at a time, and become a row group: DuckDB's own size of one."""
_NO_MEMORY: Final = "Out of Memory Error:"
"""How DuckDB begins to say so. Another engine may then try; other errors are about the text or its rows."""


def streamed(connection: duckdb.DuckDBPyConnection, text: str) -> Generator[pa.RecordBatch]:
    """The rows of a SELECT, none of the batches empty. Until the last is taken the connection can do nothing else.

    Raises:
        duckdb.Error: the text fails, as a text or over the rows.
    """
    with connection.sql(text).to_arrow_reader(BATCH_ROWS) as reader:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (OSError, pa.ArrowException) as error:
                raise error_of(str(error)) from error
            if batch.num_rows:
                yield batch


def error_of(said: str) -> duckdb.Error:
    """DuckDB's error of that text."""
    return (duckdb.OutOfMemoryException if said.startswith(_NO_MEMORY) else duckdb.Error)(said)
