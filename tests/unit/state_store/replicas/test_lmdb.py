"""Errors of LMDB in a read are the store's, however the rows are asked for."""

from __future__ import annotations

import resource
import struct
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from strandline.state_store.errors import CorruptState, ReplicaDiverged, StorageUnavailable
from strandline.state_store.replicas.lmdb import LmdbSnapshot, LmdbStore
from strandline.state_store.replicas.store import Watched, Write
from tests.support.replica_backends import Backend
from tests.support.replicated import Replicated


class Broken:
    """A transaction over pages that do not read."""

    def get(self, key: bytes) -> bytes | None:
        raise lmdb.CorruptedError(f"mdb_get: MDB_CORRUPTED at {key!r}")


def test_a_key_on_a_broken_page_is_corrupt_state(tmp_path: Path) -> None:
    snapshot = LmdbSnapshot(Broken(), tmp_path)  # type: ignore[arg-type]
    for read in (snapshot.state, lambda: snapshot.get(b"ra"), lambda: snapshot.multi_get([b"ra"])):
        with pytest.raises(CorruptState, match="MDB_CORRUPTED"):
            read()


def test_a_store_that_was_closed_does_not_answer(tmp_path: Path) -> None:
    with closing(LmdbStore(tmp_path / "s", map_bytes=1 << 20)) as store:
        store.write(Write(b"1", [b"ra"], [b"a"]))
        assert store.point(b"ra") == (b"1", b"a")
    with pytest.raises(StorageUnavailable):
        store.point(b"ra")


def test_a_row_that_has_rotten_is_noticed_by_the_next_process(tmp_path: Path) -> None:
    """Each row has a checksum, and what holds none is compared with the digest when a process begins to follow."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    backend = Backend("lmdb")
    with closing(made.replica(backend)) as replica:
        made.follower(replica).catch_up()
    file = tmp_path / "replica" / "data.mdb"
    data = file.read_bytes()
    rotten = data.replace(b"b" * 450, b"b" * 449 + b"c")
    assert rotten != data
    file.write_bytes(rotten)
    with closing(made.replica(backend)) as replica:
        with pytest.raises(CorruptState, match="a row is not as it was written"):
            replica.check_kept()
        with pytest.raises(CorruptState, match="a row is not as it was written"):
            made.follower(replica).catch_up()


def test_rows_that_no_key_leads_to_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bit of the tree's inner pages: a scan passes all rows, and a look-up takes another way."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    with closing(made.replica(Backend("lmdb"))) as replica:
        made.follower(replica).catch_up()
        replica.check_kept()
        monkeypatch.setattr(LmdbSnapshot, "multi_get", lambda self, keys: [None, *(b"" for _ in keys[1:])])
        with pytest.raises(ReplicaDiverged, match="1 of the rows of replica 'replica' are not found by their keys"):
            replica.check_kept()


def test_a_store_that_is_watched_has_the_checksums_of_the_store(tmp_path: Path) -> None:
    with closing(LmdbStore(tmp_path / "s", map_bytes=1 << 20)) as store:
        assert not Watched(store).has_checksums


def test_a_store_of_rows_without_checksums_is_restored(tmp_path: Path) -> None:
    with closing(lmdb.open(str(tmp_path / "s"), map_size=1 << 20)) as old, old.begin(write=True) as transaction:
        transaction.put(b"\x00state", b"1")
        transaction.put(b"ra", b"a")
    with closing(LmdbStore(tmp_path / "s", map_bytes=1 << 20)) as store, store.snapshot() as now:
        assert now.state() is None


def test_a_row_that_a_page_has_beyond_the_end_of_the_file_does_not_end_the_process(tmp_path: Path) -> None:
    """One bit of the place of each leaf's first row; where it stands says lmdb's mdb.c, MDB_page."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    with closing(made.replica(Backend("lmdb"))) as replica:
        made.follower(replica).catch_up()
    file = tmp_path / "replica" / "data.mdb"
    data = bytearray(file.read_bytes())
    pages = range(0, len(data), resource.getpagesize())
    leaves = [page for page in pages if struct.unpack_from("<H", data, page + 10)[0] & 0x02]
    assert leaves
    for leaf in leaves:
        data[leaf + 17] |= 0x80
    file.write_bytes(data)
    with pytest.raises(CorruptState, match="a page of its tree is not as it was written"):
        made.replica(Backend("lmdb"))
