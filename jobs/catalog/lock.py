"""The lock of a catalog: one at a time for all who change it. Reading takes none, since files appear whole.

On a disk it is a lock of the kernel, on an object store a lease. Either way a later one waits for the one before. A
lease ends with its time, so whoever holds it asks before each write whether it is still held.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from strandline.state_store.errors import WriterBusy
from strandline.state_store.files import Remembered, make_folder
from strandline.state_store.lock import LEASE_SECONDS, WriterLease, lease
from strandline.state_store.paths import LakePath, Location

_PATIENCE_SECONDS: Final = 4 * LEASE_SECONDS
"""A change takes a second or two on an object store, and a killed one leaves its lease for `LEASE_SECONDS`."""
_PAUSE_SECONDS: Final = 0.1
"""Between two tries, while others are faster."""


@contextmanager
def locked(directory: LakePath) -> Iterator[Callable[[], None]]:
    """Hold the lock of the catalog in `directory`, which is made when it is not there.

    Returns:
        what raises LockLost when the lock is no longer held, which only happens on an object store.

    Raises:
        WriterBusy: on an object store, others have held it for minutes.
    """
    if isinstance(directory, Location):
        with _leased(directory / "catalog.lease") as held:
            yield held.check
        return
    _ensure(directory)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield _held


_FLUSHED: Final = Remembered[tuple[int, int]]()
"""The folders that this process has flushed the names of, each with its device and inode."""


def _ensure(directory: Path) -> None:
    """Make the folder unless it is there, and flush its name once: a script changes the catalog with each statement."""
    with suppress(FileNotFoundError):
        about = os.stat(directory)
        if _FLUSHED.find(directory) == (about.st_dev, about.st_ino):
            return
    make_folder(directory)
    about = os.stat(directory)
    _FLUSHED.note(directory, (about.st_dev, about.st_ino))


@contextmanager
def _leased(location: Location) -> Iterator[WriterLease]:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                held = stack.enter_context(lease(location, "a change of the catalog"))
                break
            except WriterBusy:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE_SECONDS)
        yield held


def _held() -> None:
    """A lock of the kernel is held until it is given back."""
