"""A store that fails when a test says so: a full disk, broken bytes, a store that somebody closed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from strandline.state_store.errors import CorruptState, DiskFailed, StorageUnavailable, StoreError
from strandline.state_store.replicas.store import Store, StoreSnapshot, Write

FAULTS = ("full", "corrupt", "closed")


class FaultyStore(Store):
    """A store of any backend.

    Attributes:
        fault: one of `FAULTS`; empty: it works.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fault = ""

    def fail(self, fault: str) -> None:
        """Fail from now on."""
        if fault == "closed":
            self._store.close()
        self.fault = fault

    def write(self, write: Write) -> None:
        self._check("full", DiskFailed("no space left on device"))
        self._check("closed", StorageUnavailable("the store is closed"))
        self._store.write(write)

    def clear(self, state: bytes) -> None:
        self._check("full", DiskFailed("no space left on device"))
        self._store.clear(state)

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        self._check("corrupt", CorruptState("block checksum mismatch"))
        self._check("closed", StorageUnavailable("the store is closed"))
        with self._store.snapshot() as now:
            yield now

    def point(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        self._check("corrupt", CorruptState("block checksum mismatch"))
        self._check("closed", StorageUnavailable("the store is closed"))
        return self._store.point(key)

    def points(self, keys: Sequence[bytes]) -> tuple[bytes | None, list[bytes | None]]:
        self._check("corrupt", CorruptState("block checksum mismatch"))
        self._check("closed", StorageUnavailable("the store is closed"))
        return self._store.points(keys)

    def copy_to(self, folder: Path) -> None:
        self._store.copy_to(folder)

    def close(self) -> None:
        if self.fault != "closed":
            self._store.close()

    def _check(self, fault: str, error: StoreError) -> None:
        if self.fault == fault:
            raise error
