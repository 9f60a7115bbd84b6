"""The writer's lock: at most one process writes a pipeline's tables.

Delta's local log store cannot tell two writing processes apart: both may be told that they made version N. So a writer
takes an operating-system lock first. The kernel releases it when the process ends, however it ends: nothing is left to
clean up after a kill.

The kernel locks the file, not its name. So whoever has taken the lock looks whether the name still means that file, and
a holder looks again before it goes on committing (`WriterLock.check`).
"""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.state_store.errors import LockLost, WriterBusy
from strandline.state_store.files import disk_errors
from strandline.state_store.processes import Process, process

if TYPE_CHECKING:
    from collections.abc import Iterator


_NOTE_BYTES = 4096  # more than any note: owner and host name have at most some hundred bytes


@dataclass(frozen=True)
class WriterLock:
    """A lock that is held.

    Attributes:
        token: names this holder; what it notes of itself elsewhere carries the token.
        taken_over: the token of a holder that died in possession of this very file; None when the last one released it,
            or when the file is new.
    """

    path: Path
    descriptor: int
    token: str
    taken_over: str | None

    def check(self) -> None:
        """Check that the lock is still ours. It costs two calls of the kernel.

        Raises:
            LockLost: its file was removed or replaced, so another process may hold a lock of that name.
        """
        if not _stands(self.path, self.descriptor):
            raise LockLost(
                f"the lock of '{self.path.stem}' was taken away while it was held: its file was removed or replaced",
                where=str(self.path),
                hint="run again; while a pipeline runs, leave the files in 'locks' alone",
            )


@contextmanager
def writer_lock(path: Path, owner: str) -> Iterator[WriterLock]:
    """Hold the lock at `path` (created if absent) for the duration of the block.

    Args:
        path: the lock's file; it stays behind, empty, when the lock is released.
        owner: the holder's name in the message that another writer gets: `run tickets.sql`.

    Raises:
        WriterBusy: another process, or another thread of this one, holds it; the message names its pid and owner.
        DiskFailed, StorageDenied: its file or its note cannot be written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path)
    try:
        before = _note(descriptor)
        lock = WriterLock(path, descriptor, uuid4().hex, before[2] if before else None)
        me = process(os.getpid())
        assert me is not None
        note = json.dumps({"process": me.as_json(), "owner": owner, "token": lock.token}) + "\n"
        # One write of the whole line, then the rest of a longer one is cut off: a reader finds a note, never a part.
        with disk_errors(path):
            os.pwrite(descriptor, note.encode(), 0)
            os.ftruncate(descriptor, len(note.encode()))
        try:
            yield lock
        finally:
            os.ftruncate(descriptor, 0)
            # Closing is not enough: a child between fork and exec would hold it a little longer.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _locked(path: Path) -> int:
    """A descriptor of the file that has the name `path`, locked."""
    while True:
        # flock, not lockf: a record lock would be lost as soon as any other descriptor of the file is closed.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _stands(path, descriptor):
                return descriptor
        except BlockingIOError:
            busy = _busy(path, descriptor)
            os.close(descriptor)
            raise busy from None
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _stands(path: Path, descriptor: int) -> bool:
    """True if the name `path` still means the open file."""
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (named.st_dev, named.st_ino) == (opened.st_dev, opened.st_ino)


def _note(descriptor: int) -> tuple[Process, str, str] | None:
    """The process, owner and token that the lock's file names; None if it names nobody."""
    try:
        line, _, _ = os.pread(descriptor, _NOTE_BYTES, 0).partition(b"\n")
        note = json.loads(line)
        found = Process.from_json(note["process"])
        return (found, str(note["owner"]), str(note["token"])) if found else None
    except (ValueError, KeyError, TypeError):
        return None


def _busy(path: Path, descriptor: int) -> WriterBusy:
    note = _note(descriptor)
    # Between taking the lock and writing its name, a holder's file has no note, or that of a dead one.
    who, hint = "another process", "try again in a moment"
    if note is not None and note[0].is_alive:
        who = f"process {note[0].pid} ({note[1]})"
        hint = f"wait for it to end, or stop it: kill {note[0].pid}"
    elif note is not None and not note[0].is_local:
        who = f"process {note[0].pid} on another host or in another boot, '{note[0].host}' ({note[1]})"
        hint = "wait for it to end, or stop it where it runs: its pid says nothing here"
    return WriterBusy(f"'{path.stem}' is being written by {who}", where=str(path), hint=hint)
