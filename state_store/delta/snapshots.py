"""Snapshots that follow the log: who asks for one version after the other pays for the commits in between, not for all.

    at(t, 7)   checkpoint and commits are read                                   as `read_snapshot` does
    at(t, 8)   is the entry of 7 the same still? one stat; then entry 8 is taken in
    at(t, 8)   is the entry of 8 the same still? one stat
    at(t, 3)   read anew: it is before everything that is kept

A snapshot is kept with the entry it stands on. An entry has a nonce, so as long as it is there as it was, everything
before it is too. A table that was restored, rolled back or made anew has another one, or none, and is read anew.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from strandline.state_store.delta import log
from strandline.state_store.delta.entry import decode
from strandline.state_store.delta.snapshot import moved_on, read_snapshot
from strandline.state_store.errors import CorruptState
from strandline.state_store.location import Location
from strandline.state_store.tablespec import CHECKPOINT_INTERVAL
from strandline.state_store.unchanged import place_of

if TYPE_CHECKING:
    from strandline.state_store.delta.entry import Action
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath
    from strandline.state_store.unchanged import Place

# A refresh reads an input as it was and as it is, and its own table before and after its commit.
_VERSIONS = 2


@dataclass(frozen=True)
class _Mark:
    """What tells an entry from another one under its name.

    Attributes:
        place: of the file. As long as it is the same the bytes are not looked at.
        content: a hash of the bytes.
    """

    place: Place
    content: bytes


@dataclass(frozen=True)
class _Kept:
    """A snapshot, and the entry of its version as it was read."""

    snapshot: Snapshot
    mark: _Mark


class Snapshots:
    """The newest snapshots of some tables, for a process that refreshes them again and again. Threads may share it.

    Measured with 10,000 live files (timeit, best of many on 2 busy cores): `read_snapshot` 800 ms, from a checkpoint
    25 commits back; `at` for the next version 0.3 ms, of which 0.1 ms is a copy of the list of files; for the same
    version again 9 µs. Memory: the list of files once for each kept version, their bodies once.

    Args:
        tables: how many tables to keep; the one that was asked for longest ago goes first.
    """

    def __init__(self, tables: int = 100) -> None:
        self._tables = tables
        self._kept: OrderedDict[LakePath, tuple[_Kept, ...]] = OrderedDict()
        self._lock = Lock()

    def at(self, path: LakePath, version: int) -> Snapshot:
        """The table at `version`, as `read_snapshot` gives it, and with its errors.

        On an object store it is read anew: to ask whether an entry is the same costs as much as to read it.
        """
        if isinstance(path, Location):
            return read_snapshot(path, version)
        for kept in sorted(self._of(path), key=_version, reverse=True):
            behind = version - kept.snapshot.version
            # Further back a checkpoint is cheaper than the commits since.
            if 0 <= behind <= CHECKPOINT_INTERVAL and _stands(path, kept):
                found = self._moved_on(path, kept, version)
                if found is not None:
                    return found
        return self._read(path, version)

    def forget(self, path: LakePath) -> None:
        """Keep nothing of a table any more."""
        with self._lock:
            self._kept.pop(path, None)

    def _moved_on(self, path: Path, kept: _Kept, version: int) -> Snapshot | None:
        """The snapshot of `version`, made from an earlier one; None where the log does not lead from it to there."""
        if kept.snapshot.version == version:
            return kept.snapshot
        commits: list[list[Action]] = []
        mark = kept.mark
        for number in range(kept.snapshot.version + 1, version + 1):
            file = _entry_file(path, number)
            try:
                mark, data = _read_entry(file)
                actions, record = decode(data, file)
            except (FileNotFoundError, CorruptState):
                return None  # a checkpoint may lead past it
            if record is not None and record.table not in ("", kept.snapshot.table_id):
                return None
            commits.append(actions)
        try:
            found = moved_on(path, kept.snapshot, commits)
        except CorruptState:
            return None  # the log read from its beginning says what is wrong with it
        # Once more: the table may have been replaced while its entries were read.
        if not _stands(path, kept):
            return None
        self._keep(path, _Kept(found, mark))
        return found

    def _read(self, path: Path, version: int) -> Snapshot:
        try:
            mark = _read_entry(_entry_file(path, version))[0]
        except FileNotFoundError:
            return read_snapshot(path, version)
        kept = _Kept(read_snapshot(path, version), mark)
        if _stands(path, kept):
            self._keep(path, kept)
        return kept.snapshot

    def _of(self, path: Path) -> tuple[_Kept, ...]:
        with self._lock:
            if path in self._kept:
                self._kept.move_to_end(path)
            return self._kept.get(path, ())

    def _keep(self, path: Path, kept: _Kept) -> None:
        with self._lock:
            others = (each for each in self._kept.get(path, ()) if _version(each) != _version(kept))
            self._kept[path] = (kept, *others)[:_VERSIONS]
            self._kept.move_to_end(path)
            while len(self._kept) > self._tables:
                self._kept.popitem(last=False)


def _version(kept: _Kept) -> int:
    return kept.snapshot.version


def _stands(path: Path, kept: _Kept) -> bool:
    """True if the entry of the snapshot's version is there as it was read."""
    file = _entry_file(path, kept.snapshot.version)
    try:
        return place_of(file.stat()) == kept.mark.place or _read_entry(file)[0].content == kept.mark.content
    except FileNotFoundError:
        return False


def _entry_file(path: Path, version: int) -> Path:
    file = log.commit_file(path, version)
    assert isinstance(file, Path), "on a disk"
    return file


def _read_entry(file: Path) -> tuple[_Mark, bytes]:
    """The bytes of an entry, and their mark. Raises FileNotFoundError."""
    with file.open("rb") as opened:
        place = place_of(os.fstat(opened.fileno()))
        data = opened.read()
    return _Mark(place, hashlib.blake2b(data, digest_size=16).digest()), data
