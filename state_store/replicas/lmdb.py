"""Replicas in LMDB: a memory-mapped tree that other processes may read while one writes."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from zlib import crc32

import lmdb

from strandline.state_store.errors import CorruptState, DiskFailed, StorageUnavailable, WriterBusy
from strandline.state_store.replicas.store import Store, StoreSnapshot, check_backup, copy_files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from strandline.state_store.replicas.store import Write


# LMDB's errors as ours.

_BROKEN = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError, lmdb.InvalidError, lmdb.VersionMismatchError)
_FULL = (lmdb.MapFullError, lmdb.DiskError)
_RESTORED: Final = "remove its folder; it is restored from the table"


@contextmanager
def lmdb_errors(path: Path) -> Iterator[None]:
    """Turn an error of LMDB inside the block into one of ours."""
    try:
        yield
    except _BROKEN as error:
        raise CorruptState(
            f"the replica '{path.name}': {error}",
            where=str(path),
            hint=_RESTORED,
        ) from error
    except (*_FULL, OSError) as error:
        raise DiskFailed(
            f"the replica '{path.name}': {error}", where=str(path), hint="see that there is space"
        ) from error
    except lmdb.Error as error:
        raise StorageUnavailable(
            f"the replica '{path.name}': {error}", where=str(path), hint="open it again"
        ) from error


# Reads of LMDB: a read transaction sees one state for as long as it lasts, and blocks nobody.
#
# LMDB has no checksums. Each value, the state among them, ends with the CRC-32 of its key and itself; pages of the tree
# have none: `_check_pages` goes through them before they are used, and `Replica.check_kept` asks for each key once.

STATE: Final = b"\x00state, with checksums"
"""Sorts before every row. A store of rows without checksums has another one: it is restored."""
_CRC: Final = struct.Struct("<I")


def sealed(key: bytes, value: bytes) -> bytes:
    """A value with its checksum."""
    return value + _CRC.pack(crc32(value, crc32(key)))


def unsealed(key: bytes, stored: bytes | memoryview, path: Path) -> bytes:
    """A value without its checksum.

    Args:
        path: of the store, for the message.

    Raises:
        CorruptState: it is not as it was written.
    """
    value = bytes(stored[: -_CRC.size])
    if len(stored) < _CRC.size or _CRC.unpack_from(stored, len(value))[0] != crc32(value, crc32(key)):
        raise CorruptState(
            f"the replica '{path.name}': a row is not as it was written", where=str(path), hint=_RESTORED
        )
    return value


class LmdbSnapshot(StoreSnapshot):
    """The store as a transaction sees it."""

    def __init__(self, transaction: lmdb.Transaction[bytes], path: Path) -> None:
        self._transaction = transaction
        self._path = path

    def state(self) -> bytes | None:
        return self.get(STATE)

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._transaction.get
        with lmdb_errors(self._path):
            found = [get(key) for key in keys]
        pairs = zip(keys, found, strict=True)
        return [None if value is None else unsealed(key, value, self._path) for key, value in pairs]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        with lmdb_errors(self._path), self._transaction.cursor() as cursor:
            if not cursor.set_range(low):
                return
            for key, value in cursor.iternext():
                if key >= high:
                    return
                yield key, unsealed(key, value, self._path)


# Backups of LMDB: a copy of the tree without its free pages.


def copy_environment(environment: lmdb.Environment, folder: Path) -> None:
    """Write a copy to the folder; writers are not held up."""
    environment.copy(str(folder), compact=True)


def take_back(backup: Path, path: Path) -> None:
    """Copy a backup to where a store is to be opened; errors as of `check_backup` and `copy_files`."""
    check_backup(backup)
    copy_files(backup, path)


# A store in LMDB. A write is one transaction, its pages flushed before the page that names them.
#
# That last page is not flushed: a power cut takes rows and state back together, and never breaks the tree.

MAP_BYTES: Final = 256 << 30
"""The most that a store may grow to. It is address space, of which a process has 128 TB; the file is as long as its
rows need."""
# Each thread that reads takes one place, and each process its own.
_READERS: Final = 512
_LOCK: Final = "writer.lock"


class LmdbStore(Store):
    """The store in a folder, made if it is not there.

    Raises:
        WriterBusy: another process writes to it.
        CorruptState: it does not open.
        DiskFailed: the disk is full or broken.
    """

    has_checksums = False

    def __init__(self, path: Path, map_bytes: int = MAP_BYTES) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(path)
        try:
            _check_pages(path)
            with lmdb_errors(path):
                self._environment = lmdb.open(
                    str(path), map_size=map_bytes, metasync=False, max_readers=_READERS, readahead=False
                )
        except BaseException:
            os.close(self._lock)
            raise

    def write(self, write: Write) -> None:
        with lmdb_errors(self.path), self._environment.begin(write=True) as transaction:
            for key, value in write.ordered():
                if value is None:
                    transaction.delete(key)
                else:
                    transaction.put(key, sealed(key, value))
            transaction.put(STATE, sealed(STATE, write.state))

    def clear(self, state: bytes) -> None:
        with lmdb_errors(self.path), self._environment.begin(write=True) as transaction:
            transaction.drop(self._environment.open_db(txn=transaction), delete=False)
            transaction.put(STATE, sealed(STATE, state))

    @contextmanager
    def snapshot(self) -> Iterator[StoreSnapshot]:
        with lmdb_errors(self.path):
            transaction = self._environment.begin()
        try:
            yield LmdbSnapshot(transaction, self.path)
        finally:
            transaction.abort()

    def copy_to(self, folder: Path) -> None:
        with lmdb_errors(self.path):
            copy_environment(self._environment, folder)

    def close(self) -> None:
        self._environment.close()
        os.close(self._lock)


# The place of a row in a page is followed without a look at it, beyond the end of the file too, of which the process
# dies. So a child goes through the tree first, and begins a write, which reads the list of free pages.
_GO_THROUGH: Final = """
import sys, lmdb
environment = lmdb.open(sys.argv[1], map_size=int(sys.argv[2]), lock=False, readahead=False)
with environment.begin() as transaction:
    for _ in transaction.cursor():
        pass
with environment.begin(write=True) as transaction:
    transaction.put(b"new", b"row")
    transaction.abort()
"""


def _check_pages(path: Path) -> None:
    """Go through the pages of a store that nobody has open, if there is one; an error that LMDB raises is left to who
    opens it.

    Raises:
        CorruptState: LMDB does not survive it.
    """
    if not (path / "data.mdb").exists():
        return
    # A child of its own, of 0.1 s: after a fork, the threads of this process could hold a lock for ever.
    command = [sys.executable, "-c", _GO_THROUGH, str(path), str(MAP_BYTES)]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode
    if code < 0:
        raise CorruptState(
            f"the replica '{path.name}': a page of its tree is not as it was written", where=str(path), hint=_RESTORED
        )


def _locked(path: Path) -> int:
    """The lock of the one writer: LMDB itself lets many processes write in turn."""
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise WriterBusy(
            f"the replica '{path.name}' is open in another process",
            where=str(path),
            hint="one process writes a replica; stop the other one",
        ) from None
    return descriptor
