"""The writer's lock: at most one process writes a pipeline's tables. On a disk it is the kernel's, on an object store a
lease.

Delta's local log store cannot tell two writing processes apart: both may be told that they made version N. So a writer
takes an operating-system lock first. The kernel releases it when the process ends, however it ends: nothing is left to
clean up after a kill.

The kernel locks the file, not its name. So whoever has taken the lock looks whether the name still means that file, and
a holder looks again before it goes on committing (`WriterLock.check`).

The writer's lease: a lock that expires, for storages that cannot tell when a process has died.

One object holds the record. It is taken by `create`, or by compare-and-swap when it is free or has expired, and renewed
by a thread. The holder counts its time from *before* a renewal was sent. A waiter counts from *after* it first saw an
etag, and takes the lease when the etag stays the same for the whole time that the record names. The waiter began later,
so the holder has given up before, whatever either's clock shows: no clock is compared with another's, neither the two
machines' nor the store's (whose Date counts whole seconds and may come from any of its machines).

A holder that was stopped between `check` and a write still writes once: the log's put-if-absent refuses that write when
another came first, and `token` in the commit's record tells which holder made it.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.state_store.errors import CorruptState, LockLost, ObjectMissing, StrandlineError, WriterBusy
from strandline.state_store.files import disk_errors
from strandline.state_store.processes import Process, process

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.state_store.paths import Location


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


# What the object of a lease holds: who has it, which fencing token, and for how long it is good without a renewal.


@dataclass(frozen=True)
class LeaseRecord:
    """One state of a lease.

    Attributes:
        holder: unique to one holding; empty when the lease is free. A free record stays, since it keeps the token.
        owner: the holder's name for people: `run tickets.sql`.
        token: one more for each holder, never less: whoever sees a greater one knows that his own is void.
        renewals: makes each renewal a new content, so that its etag is a new one.
        seconds: how long it is good after a renewal.
        expires: that moment by the holder's clock, for people only: no clock is compared with another's.
    """

    holder: str
    owner: str
    host: str
    pid: int
    token: int
    renewals: int
    seconds: float
    expires: str

    @classmethod
    def of_this_process(cls, owner: str, token: int, seconds: float) -> LeaseRecord:
        """The first record of a new holder."""
        return cls(uuid4().hex, owner, socket.gethostname(), os.getpid(), token, 0, seconds, _in(seconds))

    @property
    def is_free(self) -> bool:
        return not self.holder

    def renewed(self) -> LeaseRecord:
        return replace(self, renewals=self.renewals + 1, expires=_in(self.seconds))

    def freed(self) -> LeaseRecord:
        return replace(self, holder="", expires=_in(0))

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_lease(location: Location) -> tuple[LeaseRecord, str] | None:
    """The record of the lease and its etag; None when nobody ever held it.

    Raises:
        CorruptState: the object is no lease.
    """
    try:
        data, etag = location.read_with_etag()
    except ObjectMissing:
        return None
    try:
        return LeaseRecord(**json.loads(data)), etag
    except (ValueError, TypeError) as error:
        raise CorruptState(
            f"'{location.name}' is not a lease", where=location.url, hint="see that no writer runs, then remove it"
        ) from error


def _in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


LEASE_SECONDS = 30.0
"""Long enough for two failed renewals in a row, each silent for the 10 s that a request may be; a successor of a killed
writer waits that long, about as long as its JVM takes to start."""

# Linux: unlike the monotonic clock it goes on while the machine sleeps, and so does a lease.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# Looks of a waiter in a lease's time: a living holder is noticed soon, and a store that charges is not asked too often.
_LOOKS = 20
# Renewals of a holder in that time, and how often it asks again when the storage has failed.
_RENEWALS = 3
_RETRIES = 10


@contextmanager
def lease(location: Location, owner: str, seconds: float = LEASE_SECONDS) -> Iterator[WriterLease]:
    """Hold the lease at `location` for the duration of the block; it is free again at its end.

    Waits for as long as a dead holder's lease is good; a living one is noticed within a third of that.

    Args:
        location: the lease's object; its folder must be there. It stays behind, to keep the token.
        owner: the holder's name in the message that another writer gets: `run tickets.sql`.
        seconds: how long the lease outlives its last renewal.

    Raises:
        WriterBusy: another process, or another thread of this one, holds it.
        CorruptState: the object is no lease.
        StorageUnavailable: it could not be read or written.
    """
    held = _take(location, owner, seconds)
    thread = Thread(target=held.keep, name=f"lease {location.name}", daemon=True)
    thread.start()
    try:
        yield held
    finally:
        held.release()


class WriterLease:
    """A lease that is held until it is released, or lost.

    Args:
        record: as it was stored, with that `etag`.
        since: the reading of the clock before it was sent.
    """

    def __init__(self, location: Location, record: LeaseRecord, etag: str, since: float) -> None:
        self._location = location
        self._record = record
        self._etag = etag
        self._deadline = since + record.seconds
        self._lost: str | None = None
        self._released = Event()
        # One request at a time: the thread's renewal, or the release.
        self._writing = Lock()

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every holder before."""
        return self._record.token

    def check(self) -> None:
        """Do nothing while the lease is held. Call it before each write; it asks no store.

        Raises:
            LockLost: it was lost, and stays so: another took it, or no renewal came through in time.
        """
        if self._lost is None and _now() >= self._deadline:
            self._lost = "it could not be renewed in time"
        if self._lost is not None or self._released.is_set():
            raise LockLost(
                f"'{self._location.stem}' is no longer held by {self._record.owner}: {self._lost or 'it was released'}",
                where=self._location.url,
                hint="run it again; it continues from the last commit",
            )

    def keep(self) -> None:
        """Renew at every third of the lease's time, until it is released or lost. Runs in a thread of its own."""
        pause = self._record.seconds / _RENEWALS
        while not self._released.wait(pause) and self._lost is None and _now() < self._deadline:
            # The deadline decides: a storage that fails for a moment is asked again, sooner.
            pause = self._record.seconds / _RETRIES
            with suppress(StrandlineError), self._writing:
                if not self._released.is_set():
                    self._renew()
                    pause = self._record.seconds / _RENEWALS

    def release(self) -> None:
        """Free the lease, unless another has it. If the storage does not answer, the lease expires."""
        self._released.set()
        with suppress(StrandlineError), self._writing:
            # Also when it was lost: the etag says whether it is another's by now.
            self._location.update(self._record.freed().to_bytes(), self._etag)

    def _renew(self) -> None:
        since = _now()
        renewed = self._record.renewed()
        etag = self._location.update(renewed.to_bytes(), self._etag)
        if etag is None:
            self._look()
            return
        self._record, self._etag, self._deadline = renewed, etag, since + renewed.seconds

    def _look(self) -> None:
        """See whose the lease is: a renewal whose answer was lost has changed the etag, and is still ours."""
        found = read_lease(self._location)
        if found is None:
            self._lost = "its object was removed"
        elif found[0].holder != self._record.holder:
            self._lost = f"{_who(found[0])} has it"
        else:
            self._record, self._etag = found
            self._renew()


def _take(location: Location, owner: str, seconds: float) -> WriterLease:
    """Take a lease that nobody holds; wait while it may be a dead holder's."""
    found = read_lease(location)
    if found is not None and not found[0].is_free:
        _outwait(location, *found)
    record = LeaseRecord.of_this_process(owner, found[0].token + 1 if found else 1, seconds)
    since = _now()
    etag = location.update(record.to_bytes(), found[1] if found else None)
    if etag is None:
        faster = read_lease(location)
        raise _leased(location, faster[0] if faster else None)
    return WriterLease(location, record, etag, since)


def _outwait(location: Location, record: LeaseRecord, etag: str) -> None:
    """Wait until the record has been the same for its whole time.

    Raises:
        WriterBusy: it has changed: its holder lives, or another was faster.
    """
    end = _now() + record.seconds
    while (left := end - _now()) > 0:
        time.sleep(min(left, record.seconds / _LOOKS))
        found = read_lease(location)
        if found is None or found[1] != etag:
            raise _leased(location, found[0] if found else None)


def _leased(location: Location, record: LeaseRecord | None) -> WriterBusy:
    held = record is not None and not record.is_free
    who = _who(record) if record is not None and held else "another process"
    hint = f"wait for it to end, or stop it: kill {record.pid}" if record is not None and held else "try again"
    return WriterBusy(f"'{location.stem}' is being written by {who}", where=location.url, hint=hint)


def _who(record: LeaseRecord) -> str:
    return f"process {record.pid} on {record.host} ({record.owner})" if not record.is_free else "another process"


def _now() -> float:
    return time.clock_gettime(_CLOCK)
