"""A store in LMDB. A write is one transaction, its pages flushed before the page that names them.

That last page is not flushed: a power cut takes rows and state back together, and never breaks the tree.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import lmdb

from strandline.state_store.errors import WriterBusy
from strandline.state_store.replicas.base.store import Store
from strandline.state_store.replicas.lmdb.backup import copy_environment
from strandline.state_store.replicas.lmdb.errors import lmdb_errors
from strandline.state_store.replicas.lmdb.snapshot import STATE, LmdbSnapshot

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Snapshot, Write

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
                    transaction.put(key, value)
            transaction.put(STATE, write.state)

    def clear(self, state: bytes) -> None:
        with lmdb_errors(self.path), self._environment.begin(write=True) as transaction:
            transaction.drop(self._environment.open_db(txn=transaction), delete=False)
            transaction.put(STATE, state)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
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
