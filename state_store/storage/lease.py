"""The writer's lease: a lock that expires, for storages that cannot tell when a process has died.

One object holds the record. It is taken by `create`, or by compare-and-swap when it is free or has expired, and renewed
by a thread. The holder counts its time from *before* a renewal was sent. A waiter counts from *after* it first saw an
etag, and takes the lease when the etag stays the same for the whole time that the record names. The waiter began later,
so the holder has given up before, whatever either's clock shows: no clock is compared with another's, neither the two
machines' nor the store's (whose Date counts whole seconds and may come from any of its machines).

A holder that was stopped between `check` and a write still writes once: the log's put-if-absent refuses that write when
another came first, and `token` in the commit's record tells which holder made it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from threading import Event, Lock, Thread
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.state_store.errors import CorruptState, LockLost, ObjectMissing, StrandlineError, WriterBusy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.state_store.paths import Location


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
        raise _busy(location, faster[0] if faster else None)
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
            raise _busy(location, found[0] if found else None)


def _busy(location: Location, record: LeaseRecord | None) -> WriterBusy:
    held = record is not None and not record.is_free
    who = _who(record) if record is not None and held else "another process"
    hint = f"wait for it to end, or stop it: kill {record.pid}" if record is not None and held else "try again"
    return WriterBusy(f"'{location.stem}' is being written by {who}", where=location.url, hint=hint)


def _who(record: LeaseRecord) -> str:
    return f"process {record.pid} on {record.host} ({record.owner})" if not record.is_free else "another process"


def _now() -> float:
    return time.clock_gettime(_CLOCK)
