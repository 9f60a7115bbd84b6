"""A replica after a power cut: it stands at some version, with the rows of that version, and follows from there.

Its stores are written by libraries, and are not flushed for each version: what the power takes is read from the table
once more. So a version may go back. It never goes apart from its rows.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from strandline.state_store.errors import CorruptState
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Phase
from tests.support.replica_backends import Backend
from tests.support.replicated import Replicated, rows_at, rows_of

_EPOCHS = 5


def stands(made: Replicated, backend: Backend, name: str) -> int:
    """The version that a cut-off store is at, its rows compared, and the table's newest after it has followed."""
    with closing(made.replica(backend, name)) as replica:
        before = -1  # nothing, or a restore that was not done
        if replica.state.phase in (Phase.VERIFIED, Phase.LIVE):
            before, found = rows_of(replica)
            assert found == rows_at(made.table, before)
        followed(made, replica)
    return before


def followed(made: Replicated, replica: Replica) -> None:
    made.follower(replica).catch_up()
    version, found = rows_of(replica)
    assert version == _EPOCHS
    assert found == rows_at(made.table, version)


@pytest.mark.parametrize("kind", ["keyed", "counted"])
def test_a_log_of_rocksdb_that_ends_anywhere(tmp_path: Path, kind: str) -> None:
    """Its log of writes ends at the last byte that reached the disk: at, before, inside a write."""
    backend, made = Backend("rocksdb"), Replicated(tmp_path, kind)
    made.epochs(1)
    with closing(made.replica(backend)) as replica:
        for number in range(1, _EPOCHS + 1):
            made.follower(replica).catch_up()
            if number < _EPOCHS:
                made.epoch(number)
        # As it is while it is open: closed, it would have flushed.
        shutil.copytree(tmp_path / "replica", tmp_path / "open")
    [log] = [file for file in (tmp_path / "open").glob("*.log") if file.stat().st_size]
    whole = log.stat().st_size
    found = set()
    for size in sorted({*range(0, whole, max(whole // 16, 1)), whole - 1, whole}):
        shutil.copytree(tmp_path / "open", tmp_path / "cut")
        with (tmp_path / "cut" / log.name).open("r+b") as opened:
            opened.truncate(size)
        found.add(stands(made, backend, "cut"))
        shutil.rmtree(tmp_path / "cut")
    assert {-1, 1, _EPOCHS} <= found, "from nothing to all"


@pytest.mark.parametrize("kind", ["keyed", "counted"])
def test_pages_of_lmdb_without_their_root(tmp_path: Path, kind: str) -> None:
    """The pages of a write are on the disk, and the page that makes them count is still the one before."""
    backend, made = Backend("lmdb"), Replicated(tmp_path, kind)
    made.epochs(1)
    states: list[bytes] = []
    for number in range(1, _EPOCHS + 1):
        with closing(made.replica(backend)) as replica:
            made.follower(replica).catch_up()
        states.append((tmp_path / "replica" / "data.mdb").read_bytes())
        if number < _EPOCHS:
            made.epoch(number)
    found = []
    for before, after in pairwise(states):
        (tmp_path / "cut").mkdir()
        roots = 2 * 4096
        (tmp_path / "cut" / "data.mdb").write_bytes(before[:roots] + after[roots:])
        try:
            found.append(stands(made, backend, "cut"))
        except CorruptState:
            found.append(-2)
        shutil.rmtree(tmp_path / "cut")
    assert found == list(range(1, _EPOCHS))
