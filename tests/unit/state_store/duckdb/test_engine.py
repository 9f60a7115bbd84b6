"""DuckDB's memory is bounded, what it puts aside ends with it, and nothing of a killed one stays."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.state_store.duckdb import engine as duckdb_engines
from strandline.state_store.duckdb.engine import DuckDBEngine


@pytest.fixture
def aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(duckdb_engines, "_ASIDE", tmp_path)
    return tmp_path


def test_what_does_not_fit_is_put_aside_and_ends_with_duckdb(aside: Path) -> None:
    with DuckDBEngine("100MB", 2) as duckdb_engine, duckdb_engine.connection() as connection:
        assert list(aside.iterdir()) == []
        connection.execute("CREATE TEMP TABLE t AS SELECT i, repeat('x', 100) || i AS s FROM range(3_000_000) r(i)")
        assert [folder.name.startswith("strandline-kernel-") for folder in aside.iterdir()] == [True]
        assert connection.execute("SELECT count(DISTINCT i) FROM t").fetchone() == (3_000_000,)
    assert list(aside.iterdir()) == []


@pytest.mark.kill
def test_what_a_killed_duckdb_put_aside_is_removed_by_the_next(aside: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    mine = aside / f"strandline-kernel-{dead.pid}-0a"
    others = aside / "strandline-kernel-1-0a"
    foreign = aside / "strandline-kernel-notes"
    for folder in (mine, others, foreign):
        folder.mkdir()
        (folder / "spilled").touch()
    with DuckDBEngine("100MB", 1):
        assert not mine.exists()
        assert others.exists()
        assert foreign.exists()


def test_relations_of_one_connection_are_not_seen_by_another() -> None:
    with (
        DuckDBEngine("100MB", 1) as duckdb_engine,
        duckdb_engine.connection() as one,
        duckdb_engine.connection() as other,
    ):
        one.execute("CREATE TEMP VIEW v AS SELECT 1 AS n")
        with pytest.raises(duckdb.CatalogException):
            other.execute("SELECT * FROM v")


def test_a_text_finds_no_variable_of_the_process() -> None:
    frame = pa.table({"n": [1]})
    assert frame.num_rows == 1
    with (
        DuckDBEngine("100MB", 1) as duckdb_engine,
        duckdb_engine.connection() as connection,
        pytest.raises(duckdb.CatalogException),
    ):
        connection.execute("SELECT * FROM frame")


def test_every_connection_has_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection does not inherit all of those of the one it was made from."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    names = ("TimeZone", "disabled_optimizers", "preserve_insertion_order")
    wanted = [("UTC", "statistics_propagation", False)]
    listed = ", ".join(f"current_setting('{name}')" for name in names)
    try:
        with (
            DuckDBEngine("100MB", 1) as duckdb_engine,
            duckdb_engine.connection() as one,
            duckdb_engine.connection() as other,
        ):
            for connection in (one, other):
                assert connection.execute(f"SELECT {listed}").fetchall() == wanted
                found = connection.execute("SELECT CAST(TIMESTAMPTZ '2024-01-01 00:00:00+00' AS VARCHAR)").fetchone()
                assert found == ("2024-01-01 00:00:00+00",)
    finally:
        monkeypatch.undo()
        time.tzset()
