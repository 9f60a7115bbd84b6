"""Interface of a backend: rows as bytes in the order of their keys, and one state beside them; backups; one in memory.

It knows neither columns nor versions. One process writes, from one thread at a time; any number of threads read.

A backup is the store's files, and a manifest that names them with their checksums.

One whose manifest is not there does not exist: the manifest is written last, and the folder gets its name when all
of it is on disk. So a kill leaves a backup or a hidden folder, which the next one removes.

The backend in the memory of this process has the fastest reads, and is rebuilt from the table at each start.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from abc import ABC, abstractmethod
from bisect import bisect_left
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.delta.data_files import checksum
from strandline.state_store.errors import CorruptState, ObjectMissing
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import disk_errors, make_folder, sync_file, sync_folder, write_new
from strandline.state_store.replicas.row_bytes import ROWS, ROWS_END

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import BinaryIO


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


_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1


def back_up(store: Store, folder: Path, about: dict[str, Any]) -> None:
    """Make a backup in a folder that is not there yet.

    Args:
        about: what the manifest says of the rows, for people.

    Raises:
        DiskFailed: the disk is full or broken; there is no backup.
        CorruptState: the store does not read back.
        FileExistsError: the folder is there.
    """
    if folder.exists():
        raise FileExistsError(folder)
    begun = folder.with_name(f".{folder.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    make_folder(begun)
    store.copy_to(begun)
    failpoint("inside-replica-backup")
    files = sorted(path for path in begun.rglob("*") if path.is_file())
    named = {path.relative_to(begun).as_posix(): checksum(path) for path in files}
    for path in files:
        sync_file(path)
    for inner in {path.parent for path in files} - {begun}:
        sync_folder(inner)
    manifest = {"format": _FORMAT, **about, "files": named}
    write_new(begun / _MANIFEST, json.dumps(manifest, indent=1).encode())
    sync_folder(begun)
    failpoint("before-replica-backup-named")
    with disk_errors(folder):
        os.rename(begun, folder)
    sync_folder(folder.parent)


def check_backup(folder: Path) -> dict[str, Any]:
    """Compare every file of a backup with its checksum; return the manifest.

    Raises:
        ObjectMissing: there is no backup, or it was never finished.
        CorruptState: a file is missing or is not as it was written.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
        files: dict[str, str] = manifest["files"]
        known = manifest["format"] == _FORMAT
    except FileNotFoundError:
        raise ObjectMissing(f"there is no backup '{folder.name}'", where=str(folder), hint="choose another") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState("the manifest of a backup does not read back", where=str(folder)) from error
    if not known:
        raise CorruptState("a backup was written by another version of Strandline", where=str(folder))
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or checksum(path) != expected:
            raise CorruptState(f"a file of a backup is not as it was written: '{name}'", where=str(folder))
    return manifest


def copy_files(backup: Path, target: Path) -> None:
    """Copy the files of a backup, but for the manifest, to a folder that is not there yet.

    Raises:
        DiskFailed: the disk is full or broken.
    """
    with disk_errors(target):
        shutil.copytree(backup, target, ignore=shutil.ignore_patterns(_MANIFEST))


# Dump: the backup of a backend without files of its own, as one file.
#
#     one line of JSON: format, length of the state | the state | for each row: two lengths (4 bytes each), key, value
#
# Checksums are the manifest's, see above.

_NAME: Final = "rows.dump"
_DUMP_FORMAT: Final = 1
_LENGTHS: Final = struct.Struct("<II")
# DynamoDB takes 25 rows a request; the others are fastest at some thousands.
_ROWS_PER_WRITE: Final = 5_000


def dump(snapshot: StoreSnapshot, folder: Path) -> None:
    """Write a snapshot to a file in the folder."""
    state = snapshot.state() or b""
    with disk_errors(folder), (folder / _NAME).open("xb") as file:
        file.write(json.dumps({"format": _DUMP_FORMAT, "state": len(state)}).encode() + b"\n" + state)
        for key, value in snapshot.range(ROWS, ROWS_END):
            file.write(_LENGTHS.pack(len(key), len(value)) + key + value)


def load(folder: Path, store: Store, unfinished: bytes) -> None:
    """Put the rows of a dump into a store in place of its own; its state stands when all rows do.

    Args:
        unfinished: the state until then.

    Raises:
        CorruptState: the file is no dump.
        Others: as of `Store.write`.
    """
    store.clear(unfinished)
    with (folder / _NAME).open("rb") as file:
        try:
            state = file.read(int(json.loads(file.readline())["state"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState("a backup does not read back", where=str(folder)) from error
        while rows := _rows(file, folder):
            store.write(Write(unfinished, [key for key, _ in rows], [value for _, value in rows]))
    store.write(Write(state))


def _rows(file: BinaryIO, folder: Path) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    while len(rows) < _ROWS_PER_WRITE and (head := file.read(_LENGTHS.size)):
        try:
            key, value = _LENGTHS.unpack(head)
        except struct.error as error:
            raise CorruptState("a backup does not read back", where=str(folder)) from error
        rows.append((file.read(key), file.read(value)))
    return rows


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
