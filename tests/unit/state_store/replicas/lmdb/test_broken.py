"""Errors of LMDB in a read are the store's, however the rows are asked for."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from state_store.errors import CorruptState, StorageUnavailable
from state_store.replicas.base.store import Write
from state_store.replicas.lmdb.snapshot import LmdbSnapshot
from state_store.replicas.lmdb.store import LmdbStore


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
