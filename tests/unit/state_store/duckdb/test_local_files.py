"""Data files for DuckDB: checked on both kinds of storage, copied from an object store once, and not for ever."""

from __future__ import annotations

import errno
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.state_store.duckdb.engine import LocalFiles
from strandline.state_store.errors import CorruptState, DiskFailed, VersionGone
from strandline.state_store.paths import LakePath, Location
from strandline.state_store.storage.disk import DiskStorage
from tests.support.lakes import overwrite, s3_folder
from tests.support.s3_server import S3Server


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
