"""The writer's lock: at most one process writes a pipeline's tables.

Delta's local log store cannot tell two writing processes apart: both may be told that they made version N. So a writer
takes an operating-system lock first. The kernel releases it when the process ends, however it ends: nothing is left to
clean up after a kill.
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from state_store.errors import WriterBusy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def writer_lock(path: Path, owner: str) -> Iterator[None]:
    """Hold the lock at `path` (created if absent) for the duration of the block.

    Args:
        path: the lock's file; it stays behind, empty, when the lock is released.
        owner: the holder's name in the message that another writer gets: `run tickets.sql`.

    Raises:
        WriterBusy: another process, or another thread of this one, holds it; the message names its pid and owner.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # flock, not lockf: a record lock would be lost as soon as any other descriptor of the file is closed.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _busy(path, os.pread(descriptor, 4096, 0)) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "owner": owner}).encode(), 0)
        try:
            yield
        finally:
            os.ftruncate(descriptor, 0)
            # Closing is not enough: a child between fork and exec would hold it a little longer.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _busy(path: Path, content: bytes) -> WriterBusy:
    try:
        holder = json.loads(content)
        who = f"process {holder['pid']} ({holder['owner']})"
        hint = f"wait for it to end, or stop it: kill {holder['pid']}"
    except (ValueError, KeyError, TypeError):  # between taking the lock and writing its name
        who, hint = "another process", "try again in a moment"
    return WriterBusy(f"'{path.stem}' is being written by {who}", where=str(path), hint=hint)
