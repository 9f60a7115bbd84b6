"""Replicas in the memory of this process: the fastest reads, rebuilt from the table at each start."""

from __future__ import annotations

from bisect import bisect_left
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from strandline.state_store.replicas.store import Store, StoreSnapshot, check_backup, dump, load

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.store import Write


# The rows of a store in memory: a dict, and its keys in order when somebody asks for a range.


class SortedRows:
    """Rows by key, and the state."""

    def __init__(self, state: bytes | None = None) -> None:
        self.state = state
        self.by_key: dict[bytes, bytes] = {}
        self._ordered: list[bytes] = []
        self._in_order = True

    def take(self, write: Write) -> None:
        """Change the rows and the state."""
        for key, value in zip(write.keys, write.values, strict=True):
            if value is None:
                self._in_order &= self.by_key.pop(key, None) is None
            else:
                self._in_order &= key in self.by_key
                self.by_key[key] = value
        self.state = write.state

    def ordered(self) -> list[bytes]:
        """The keys in order; sorted again only when keys came or went."""
        if not self._in_order:
            self._ordered = sorted(self.by_key)
            self._in_order = True
        return self._ordered


class MemorySnapshot(StoreSnapshot):
    """The rows as they are; whoever made it keeps writers away."""

    def __init__(self, rows: SortedRows) -> None:
        self._rows = rows

    def state(self) -> bytes | None:
        return self._rows.state

    def get(self, key: bytes) -> bytes | None:
        return self._rows.by_key.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self._rows.by_key.get(key) for key in keys]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys, by_key = self._rows.ordered(), self._rows.by_key
        for key in keys[bisect_left(keys, low) : bisect_left(keys, high)]:
            yield key, by_key[key]


# Backups of a store in memory: a dump.


def copy_rows(snapshot: StoreSnapshot, folder: Path) -> None:
    """Write the rows and the state to files in the folder."""
    dump(snapshot, folder)


def take_back(backup: Path, store: Store, unfinished: bytes) -> None:
    """Put the rows of a backup into a store; errors as of `check_backup` and `load`."""
    check_backup(backup)
    load(backup, store, unfinished)


# A store in memory. It is gone with its process.


class MemoryStore(Store):
    """An empty store. A snapshot keeps the lock, so writers wait for readers: reads here take microseconds."""

    def __init__(self) -> None:
        self._rows = SortedRows()
        self._lock = RLock()

    def write(self, write: Write) -> None:
        with self._lock:
            self._rows.take(write)

    def clear(self, state: bytes) -> None:
        with self._lock:
            self._rows = SortedRows(state)

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        with self._lock:
            yield MemorySnapshot(self._rows)

    def point(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        with self._lock:
            return self._rows.state, self._rows.by_key.get(key)

    def copy_to(self, folder: Path) -> None:
        with self.snapshot() as now:
            copy_rows(now, folder)

    def close(self) -> None:
        with self._lock:
            self._rows = SortedRows()
