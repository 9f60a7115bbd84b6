"""A store whose failures are remembered: whoever follows a table can tell them from those of the table.

A read or a write that fails says the same at both places: a full disk, a broken file. Only where it happened tells
what helps: a replica is made anew from its table, a table is not.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from strandline.state_store.replicas.base.store import Snapshot, Store

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Write


class Watched(Store):
    """A store that works as another one.

    Attributes:
        failure: the first error that it raised, of any kind; None as long as there was none.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.failure: Exception | None = None

    def write(self, write: Write) -> None:
        with self.watching():
            self._store.write(write)

    def clear(self, state: bytes) -> None:
        with self.watching():
            self._store.clear(state)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with self.watching():
            inner = self._store.snapshot()
            now = inner.__enter__()
        try:
            yield _WatchedSnapshot(now, self)
        finally:
            inner.__exit__(None, None, None)

    def point(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        try:
            return self._store.point(key)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def points(self, keys: Sequence[bytes]) -> tuple[bytes | None, list[bytes | None]]:
        with self.watching():
            return self._store.points(keys)

    def settle(self) -> None:
        with self.watching():
            self._store.settle()

    def copy_to(self, folder: Path) -> None:
        self._store.copy_to(folder)  # what fails may as well be the folder

    def close(self) -> None:
        self._store.close()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Remembers the error that ends the block."""
        try:
            yield
        except Exception as error:
            self.failure = self.failure or error
            raise


class _WatchedSnapshot(Snapshot):
    def __init__(self, snapshot: Snapshot, store: Watched) -> None:
        self._snapshot = snapshot
        self._store = store

    def state(self) -> bytes | None:
        with self._store.watching():
            return self._snapshot.state()

    def get(self, key: bytes) -> bytes | None:
        with self._store.watching():
            return self._snapshot.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        with self._store.watching():
            return self._snapshot.multi_get(keys)

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._store.watching():
            yield from self._snapshot.range(low, high)

    def values(self) -> Iterator[bytes]:
        with self._store.watching():
            yield from self._snapshot.values()
