"""Recent changes: found by table and commit, and bounded in what they really hold."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from strandline.state_store.duckdb import engine
from strandline.state_store.duckdb.engine import RecentChanges

TABLE = Path("/lake/tables/v")


def _changes(rows: int) -> pa.Table:
    return pa.table({"k": list(range(rows)), "t": [f"t{n}" for n in range(rows)], "__weight": [1] * rows})


def test_changes_are_found_by_table_and_commit() -> None:
    changes = RecentChanges()
    changes.put(TABLE, "a", _changes(3))
    assert changes.find(TABLE, "a") == _changes(3)
    assert changes.find(TABLE, "b") is None
    assert changes.find(Path("/lake/tables/w"), "a") is None


def test_few_rows_of_a_large_buffer_keep_no_large_buffer() -> None:
    changes = RecentChanges()
    before = pa.total_allocated_bytes()
    for number in range(10):
        changes.put(TABLE, str(number), _changes(100_000).slice(number, 20))
    assert pa.total_allocated_bytes() - before < 100_000
    assert changes.find(TABLE, "9") == _changes(100).slice(9, 20)


def test_the_oldest_go_where_there_are_too_many_bytes() -> None:
    changes = RecentChanges(most_bytes=10 * _changes(100).nbytes)
    for number in range(12):
        changes.put(TABLE, str(number), _changes(100))
    assert changes.find(TABLE, "0") is None
    assert changes.find(TABLE, "11") == _changes(100)
    changes.put(TABLE, "large", _changes(1_000))
    assert changes.find(TABLE, "large") is None


def test_the_oldest_go_where_there_are_too_many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_MOST_COMMITS", 3)
    changes = RecentChanges()
    for number in range(5):
        changes.put(TABLE, str(number), _changes(1))
    assert [changes.find(TABLE, str(number)) is None for number in range(5)] == [True, True, False, False, False]
