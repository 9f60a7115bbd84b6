"""The lock of a catalog: one at a time for all who change it. Reading takes none, since files appear whole."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from state_store.files import make_folder


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of the catalog in `directory`, which is made when it is not there."""
    make_folder(directory)
    with (directory / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
