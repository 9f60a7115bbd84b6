"""Errors of LMDB in a read are the store's, however the rows are asked for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from strandline.state_store.errors import CorruptState, ReplicaDiverged, StorageUnavailable
from strandline.state_store.replicas.lmdb import LmdbSnapshot, LmdbStore
from strandline.state_store.replicas.store import Write
from tests.support.replica_backends import Backend
from tests.support.replicated import Replicated, assert_equal


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
    """LMDB has no checksums: what it holds is compared with the digest when a process begins to follow."""
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
        with pytest.raises(ReplicaDiverged, match="not those that were written"):
            replica.check_kept()
        made.follower(replica).catch_up()
        assert_equal(replica, made.table)
