"""Interface of a backend: rows as bytes in the order of their keys, and one state beside them.

It knows neither columns nor versions. One process writes, from one thread at a time; any number of threads read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from strandline.state_store.replicas.row_bytes import ROWS, ROWS_END

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path


@dataclass(frozen=True)
class Write:
    """What one write changes, all of it or nothing.

    Attributes:
        state: the state from then on.
        keys: begin with `codec.keys.ROWS`; none stands twice.
        values: one for each key; None: the row goes.
    """

    state: bytes
    keys: Sequence[bytes] = ()
    values: Sequence[bytes | None] = ()

    def ordered(self) -> list[tuple[bytes, bytes | None]]:
        """Keys and values in the order of the keys: trees take them in half the time."""
        return sorted(zip(self.keys, self.values, strict=True), key=itemgetter(0))


class StoreSnapshot(ABC):
    """The rows and the state at one moment: no write shows in it.

    All methods may raise CorruptState (bytes of the store are broken) and StorageUnavailable (it does not answer).
    """

    @abstractmethod
    def state(self) -> bytes | None:
        """The state; None before the first write."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None when it is not there."""

    @abstractmethod
    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, in the keys' order."""

    @abstractmethod
    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        """The keys from `low` on and before `high`, in order, with their values.

        A range that cannot go on raises: it never ends early. Of one snapshot, read one range at a time.
        """

    def values(self) -> Iterator[bytes]:
        """The values of all rows in order, as fast as the backend can.

        At a broken block it may end early: whoever asks knows how many there must be.
        """
        for _, value in self.range(ROWS, ROWS_END):
            yield value


class Store(ABC):
    """One backend's store of one replica.

    Making one opens it, and may raise WriterBusy (another process has it) and CorruptState (it does not open).

    Attributes:
        has_checksums: it notices by itself when a row, or what leads to it, is not as it was written.
    """

    has_checksums: bool = True

    @abstractmethod
    def write(self, write: Write) -> None:
        """Do a write, atomic and kept when this process is killed.

        After a power cut the store may be at an earlier write: its rows went back together with its state.

        Raises:
            CommitConflict: another process has written to the store.
            DiskFailed: the disk is full or broken; nothing of it was written.
            StorageUnavailable: the storage does not answer; it may have been written nevertheless.
        """

    @abstractmethod
    def clear(self, state: bytes) -> None:
        """Set the state, then remove all rows. A kill between leaves the state with some rows: call it again.

        Raises: as of `write`.
        """

    @abstractmethod
    def snapshot(self) -> AbstractContextManager[StoreSnapshot]:
        """The store as it is now, for the duration of the block."""

    def point(self, key: bytes) -> tuple[bytes | None, bytes | None]:
        """The state and the value of a key, both of one moment; None: there is none. Errors as of `StoreSnapshot`.

        For reads of one key, where a snapshot may take longer than the read.
        """
        with self.snapshot() as now:
            return now.state(), now.get(key)

    def points(self, keys: Sequence[bytes]) -> tuple[bytes | None, list[bytes | None]]:
        """The state and the values of many keys, in the keys' order, of one moment. Errors as of `StoreSnapshot`."""
        with self.snapshot() as now:
            return now.state(), now.multi_get(keys)

    def settle(self) -> None:  # noqa: B027 (most backends have nothing to do)
        """Bring what was loaded into the form in which it is read fastest; readers go on meanwhile.

        Raises: as of `write`.
        """

    @abstractmethod
    def copy_to(self, folder: Path) -> None:
        """Write the rows and the state, of one moment, to files in a folder that is there and empty.

        Raises:
            DiskFailed: the disk is full or broken.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it; nothing of it may be used any more."""


# Store that remembers its failures: who follows a table can tell them from those of the table.
#
# A read or a write that fails says the same at both places: a full disk, a broken file. Only where it happened tells
# what helps: a replica is made anew from its table, a table is not.


class Watched(Store):
    """A store that works as another one.

    Attributes:
        failure: the first error that it raised, of any kind; None as long as there was none.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.has_checksums = store.has_checksums
        self.failure: Exception | None = None

    def write(self, write: Write) -> None:
        with self.watching():
            self._store.write(write)

    def clear(self, state: bytes) -> None:
        with self.watching():
            self._store.clear(state)

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
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


class _WatchedSnapshot(StoreSnapshot):
    def __init__(self, snapshot: StoreSnapshot, store: Watched) -> None:
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
