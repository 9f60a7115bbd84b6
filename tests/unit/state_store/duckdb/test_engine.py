"""DuckDB's memory is bounded, what it puts aside ends with it, and nothing of a killed one stays."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from strandline.state_store.duckdb import engine as duckdb_engines
from strandline.state_store.duckdb.engine import DuckDBEngine, LocalFiles, RecentRows
from strandline.state_store.errors import CorruptState, DiskFailed, VersionGone
from strandline.state_store.paths import LakePath, Location
from strandline.state_store.storage_disk import DiskStorage
from tests.support.lakes import overwrite, s3_folder
from tests.support.s3_server import S3Server


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


# Data files for DuckDB: checked on both kinds of storage, copied from an object store once, and not for ever.


@pytest.fixture
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


def put(table: LakePath, name: str, data: bytes) -> tuple[LakePath, str]:
    """A data file, and its checksum."""
    if isinstance(table, Path):
        table.mkdir(exist_ok=True)
    overwrite(table / name, data)
    return table / name, f"{zlib.crc32(data):08x}"


def test_a_file_is_checked_before_it_is_read(folder: LakePath, copies: Path) -> None:
    table, files = folder / "t", LocalFiles(copies)
    file, stated = put(table, "a.parquet", b"rows")
    assert files.path_of(table, file, stated).read_bytes() == b"rows"
    assert files.path_of(table, file, None).read_bytes() == b"rows"
    with pytest.raises(CorruptState, match="'t' fails its checksum"):
        LocalFiles(copies).path_of(table, file, "00000000")
    with pytest.raises(VersionGone, match="'t'"):
        files.path_of(table, table / "b.parquet", stated)


def test_a_file_of_a_disk_is_read_where_it_lies(tmp_path: Path, copies: Path) -> None:
    file, stated = put(tmp_path / "t", "a.parquet", b"rows")
    assert LocalFiles(copies).path_of(tmp_path / "t", file, stated) == file
    assert list(copies.iterdir()) == []


def test_an_object_is_copied_once_for_all_threads(s3_server: S3Server, copies: Path) -> None:
    table, files = s3_folder(s3_server) / "t", LocalFiles(copies)
    made = [put(table, f"{n}.parquet", b"%d" % n) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda each: files.path_of(table, *each).read_bytes(), made * 5))
    assert found == [b"0", b"1", b"2", b"3"] * 5
    assert len(list(copies.iterdir())) == 4
    table.storage.delete(made[0][0].key)  # type: ignore[union-attr]
    assert files.path_of(table, *made[0]).read_bytes() == b"0"


def test_copies_that_nobody_uses_make_room(s3_server: S3Server, copies: Path) -> None:
    table = s3_folder(s3_server) / "t"
    made = [put(table, f"{n}.parquet", bytes(100)) for n in range(5)]
    for in_use, kept in ((0.0, 2), (60.0, 5)):
        files = LocalFiles(copies, most_bytes=250, in_use_seconds=in_use)
        for each in made:
            assert files.path_of(table, *each).exists()
        assert len(list(copies.iterdir())) == kept


def _stored(tmp_path: Path) -> tuple[LakePath, LakePath, str]:
    """A table with one file that is to be copied, which takes no object store."""
    table = Location(DiskStorage(tmp_path / "lake")) / "t"
    table.make_folder()
    return table, *put(table, "a.parquet", b"rows")


def test_a_copy_that_was_removed_is_fetched_again(tmp_path: Path, copies: Path) -> None:
    """By a machine's clean-up of its folder for temporary files."""
    made, files = _stored(tmp_path), LocalFiles(copies)
    files.path_of(*made).unlink()
    assert files.path_of(*made).read_bytes() == b"rows"
    files.path_of(*made).unlink()
    copies.rmdir()
    assert files.path_of(*made).read_bytes() == b"rows"


def test_a_copy_that_has_no_place_leaves_nothing_and_says_so(
    tmp_path: Path, copies: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, files = _stored(tmp_path), LocalFiles(copies)

    def full(file: Path, data: bytes) -> int:
        with file.open("wb") as opened:
            opened.write(data[:2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(DiskFailed, match="the disk is full"):
            files.path_of(*made)
    assert list(copies.iterdir()) == []
    assert files.path_of(*made).read_bytes() == b"rows"


# Recent changes: found by table and commit, and bounded in what they really hold.

TABLE = Path("/lake/tables/v")


def _changes(rows: int) -> pa.Table:
    return pa.table({"k": list(range(rows)), "t": [f"t{n}" for n in range(rows)], "__weight": [1] * rows})


def test_changes_are_found_by_table_and_commit() -> None:
    changes = RecentRows()
    changes.put(TABLE, "a", _changes(3))
    assert changes.find(TABLE, "a") == _changes(3)
    assert changes.find(TABLE, "b") is None
    assert changes.find(Path("/lake/tables/w"), "a") is None


def test_few_rows_of_a_large_buffer_keep_no_large_buffer() -> None:
    changes = RecentRows()
    before = pa.total_allocated_bytes()
    for number in range(10):
        changes.put(TABLE, str(number), _changes(100_000).slice(number, 20))
    assert pa.total_allocated_bytes() - before < 100_000
    assert changes.find(TABLE, "9") == _changes(100).slice(9, 20)


def test_the_oldest_go_where_there_are_too_many_bytes() -> None:
    changes = RecentRows(most_bytes=10 * _changes(100).nbytes)
    for number in range(12):
        changes.put(TABLE, str(number), _changes(100))
    assert changes.find(TABLE, "0") is None
    assert changes.find(TABLE, "11") == _changes(100)
    changes.put(TABLE, "large", _changes(1_000))
    assert changes.find(TABLE, "large") is None


def test_the_oldest_go_where_there_are_too_many_commits() -> None:
    changes = RecentRows(most_names=3)
    for number in range(5):
        changes.put(TABLE, str(number), _changes(1))
    assert [changes.find(TABLE, str(number)) is None for number in range(5)] == [True, True, False, False, False]
