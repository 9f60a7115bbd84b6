"""A store in memory. It is gone with its process."""

from __future__ import annotations

from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from strandline.state_store.replicas.base.store import Store
from strandline.state_store.replicas.memory.backup import copy_rows
from strandline.state_store.replicas.memory.snapshot import MemorySnapshot, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Snapshot, Write


class MemoryStore(Store):
    """An empty store. A snapshot keeps the lock, so writers wait for readers: reads here take microseconds."""

    def __init__(self) -> None:
        self._rows = Rows()
        self._lock = RLock()

    def write(self, write: Write) -> None:
        with self._lock:
            self._rows.take(write)

    def clear(self, state: bytes) -> None:
        with self._lock:
            self._rows = Rows(state)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
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
            self._rows = Rows()
