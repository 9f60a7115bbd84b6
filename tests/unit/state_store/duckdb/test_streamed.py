"""Rows that DuckDB computes while they are taken: all of them come, and an error on the way says what it is."""

from __future__ import annotations

import duckdb
import pytest

from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import BATCH_ROWS, error_of, streamed

_LATE = 2 * BATCH_ROWS
"""A row that the first batch is taken long before."""


def test_every_row_comes_and_no_batch_is_empty(duckdb_engine: DuckDBEngine) -> None:
    with duckdb_engine.connection() as connection:
        sizes = [batch.num_rows for batch in streamed(connection, f"SELECT * FROM range({_LATE + 7})")]
        none = list(streamed(connection, "SELECT * FROM range(9) AS r(i) WHERE i > 9"))
    assert (sum(sizes), min(sizes) > 0, max(sizes) <= BATCH_ROWS, none) == (_LATE + 7, True, True, [])


def test_a_row_that_fails_after_others_were_taken_is_an_error_of_duckdb(duckdb_engine: DuckDBEngine) -> None:
    text = f"SELECT CAST(CASE WHEN i < {_LATE} THEN '1' ELSE 'one' END AS INT) FROM range({_LATE + 1}) AS r(i)"
    with duckdb_engine.connection() as connection:
        rows = streamed(connection, text)
        assert next(rows).num_rows > 0
        with pytest.raises(duckdb.Error, match=r"Conversion Error: .*'one'"):
            list(rows)


def test_rows_that_are_left_leave_the_connection_free(duckdb_engine: DuckDBEngine) -> None:
    with duckdb_engine.connection() as connection:
        rows = streamed(connection, f"SELECT * FROM range({_LATE})")
        next(rows)
        rows.close()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_too_little_memory_can_be_told_from_other_errors() -> None:
    """The caller lets Spark do what DuckDB has no memory for."""
    assert isinstance(error_of("Out of Memory Error: failed to pin block"), duckdb.OutOfMemoryException)
    assert not isinstance(error_of("Conversion Error: Out of Memory Error:"), duckdb.OutOfMemoryException)
