"""What a kernel keeps from one epoch to the next: all of it can be read again from the lake."""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from strandline.state_store.delta.data_files import content_of, verify
from strandline.state_store.delta.snapshot import Snapshots
from strandline.state_store.disk_errors import disk_errors

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.state_store.paths import LakePath


# Changes that this process committed a moment ago: whoever reads the table next need not read them back from disk.

_RECENT_BYTES: Final = 64 << 20
"""All that is kept. An epoch of 100,000 changed rows has some 10 MB; a larger one is read back at the speed of disk."""

_MOST_COMMITS: Final = 256
"""The last epochs of a hundred tables; whoever is further behind reads from disk. Each takes a page of memory (64 kB)
beside its rows."""
_COPIED_BYTES: Final = 1 << 20
"""Arrow's buffers may be far larger than the rows in them: DuckDB makes each for 2,048 rows at least, so the changes of
an epoch of twenty rows kept a hundred times their size. Up to here they are copied, which takes 0.1 ms."""

_Name = tuple[str, str]


class RecentChanges:
    """Changes by table and commit, the oldest forgotten first. Safe for several threads."""

    def __init__(self, most_bytes: int = _RECENT_BYTES) -> None:
        self._most = most_bytes
        self._lock = Lock()
        self._kept: OrderedDict[_Name, pa.Table] = OrderedDict()
        self._bytes = 0

    def put(self, table: LakePath, nonce: str, changes: pa.Table) -> None:
        """Keep the changes of a commit: stored columns and `__weight`. One that is too large is not kept."""
        size = changes.nbytes
        if size > self._most // 2:
            return
        if size < _COPIED_BYTES:
            changes = _copied(changes)
        with self._lock:
            self._kept[str(table), nonce] = changes
            self._bytes += changes.nbytes
            while self._bytes > self._most or len(self._kept) > _MOST_COMMITS:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes

    def find(self, table: LakePath, nonce: str) -> pa.Table | None:
        """The changes of that commit, if they are kept."""
        with self._lock:
            return self._kept.get((str(table), nonce))


def _copied(rows: pa.Table) -> pa.Table:
    """The rows in memory of their own, all in one piece."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()


# Data files on this machine's disk, checked: what DuckDB reads.
#
# A file of a lake on a disk is read where it lies. One of an object store is copied, once: a data file never changes.
# The copies are bounded, and the ones not used for longest go first.

_MOST_BYTES: Final = 8 << 30
"""All copies: the files of some ten views of ten million rows. What does not fit is fetched again."""
_IN_USE_SECONDS: Final = 3600.0
"""A copy that was asked for so recently stays, whatever it takes: the text that names it may still be running. Epochs
run for seconds, the computation of a view over all history for minutes."""


_MOST_FOOTERS: Final = 100_000
"""Files whose columns are remembered: some hundred bytes each."""


@dataclass
class _Copy:
    size: int
    used: float


class LocalFiles:
    """The data files of any tables, for one process. Safe for several threads.

    Args:
        folder: for the copies; made with the first of them.
    """

    def __init__(self, folder: Path, most_bytes: int = _MOST_BYTES, in_use_seconds: float = _IN_USE_SECONDS) -> None:
        self._folder = folder
        self._most = most_bytes
        self._in_use = in_use_seconds
        self._lock = Lock()
        self._copies: OrderedDict[str, _Copy] = OrderedDict()
        self._columns: OrderedDict[Path, frozenset[str]] = OrderedDict()

    def path_of(self, table: LakePath, file: LakePath, stated: str | None) -> Path:
        """Where the file can be read, once it is known to be as it was written.

        Args:
            stated: its checksum; without one it is only looked for.

        Raises:
            VersionGone: it is not there.
            CorruptState: it is not as it was written.
            DiskFailed, StorageDenied: there is no place for its copy.
        """
        if isinstance(file, Path):
            verify(table, file, stated)
            return file
        name = f"{xxhash.xxh3_128_hexdigest(f'{file.url} {stated}'.encode())}.parquet"
        copy = self._folder / name
        if not self._known(copy):
            data = content_of(table, file, stated)
            self._write(copy, data)
            self._keep(name, len(data))
        return copy

    def columns_of(self, file: Path) -> frozenset[str]:
        """The names of the columns that a file has, as `path_of` gave it. They never change, so they are read once."""
        found = self._columns.get(file)
        if found is None:
            found = frozenset(pq.read_schema(file).names)
            with self._lock:
                self._columns[file] = found
                while len(self._columns) > _MOST_FOOTERS:
                    self._columns.popitem(last=False)
        return found

    def _write(self, copy: Path, data: bytes) -> None:
        being_written = copy.with_suffix(f".{uuid4().hex}")
        with disk_errors(copy):
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                being_written.write_bytes(data)
                os.replace(being_written, copy)
            except BaseException:
                # A full disk above all: what was written of it would take the place that is missing.
                being_written.unlink(missing_ok=True)
                raise

    def _known(self, copy: Path) -> bool:
        # A machine's clean-up removes what has been in a folder for temporary files for some days.
        there = copy.exists()
        with self._lock:
            found = self._copies.get(copy.name)
            if found is None or not there:
                return False
            found.used = time.monotonic()
            self._copies.move_to_end(copy.name)
            return True

    def _keep(self, name: str, size: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._copies[name] = _Copy(size, now)
            total = sum(each.size for each in self._copies.values())
            while total > self._most and now - next(iter(self._copies.values())).used > self._in_use:
                oldest, gone = self._copies.popitem(last=False)
                (self._folder / oldest).unlink(missing_ok=True)
                total -= gone.size


@dataclass(frozen=True)
class Kept:
    """What a kernel keeps. Safe for several threads.

    Attributes:
        recent: changes that were committed a moment ago.
        snapshots: of the tables, which follow their logs.
        local: their data files on this machine's disk.
    """

    recent: RecentChanges
    snapshots: Snapshots
    local: LocalFiles

    @classmethod
    def nothing(cls, copies: Path) -> Kept:
        """At the start.

        Args:
            copies: the folder for copies of data files, see `LocalFiles`.
        """
        return cls(RecentChanges(), Snapshots(), LocalFiles(copies))
