"""One feed: the changes of one subscription's query, read and encoded once for all who subscribe to it.

told of a commit ──> changes of the version ──> events ──> the queue of each member, bounded
                     (thread; a process of its own, where the query has expressions)   (event loop)
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass, field
from threading import Event as Signal
from threading import Thread
from typing import TYPE_CHECKING

from strandline.jobs.serve.consistent_snapshot import Notes, age_ms, instant, reflected
from strandline.jobs.serve.errors import ChangesGone
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.server.state.events import (
    IDENTITY_LETTERS,
    Form,
    Place,
    PushedEvent,
    VersionAsked,
    progress,
)
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, StrandlineError
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.jobs.functions.python import Library
    from strandline.jobs.serve.consistent_snapshot import Reflected
    from strandline.jobs.serve.subscription import Subscription
    from strandline.jobs.serve.watch import Topics
    from strandline.jobs.server.state.events import VersionProcesses
    from strandline.state_store.layout import LakeLayout


logger = logging.getLogger("strandline.server")

# What the watch missed is found when it sweeps; this is for a feed whose table could not be read.
_LOOK_SECONDS = 5.0


@dataclass
class Delivered:
    """The events of a version, and its progress, as all members of a feed have them.

    Attributes:
        size: of the events, in bytes.
        holders: members that have not taken them yet.
    """

    events: list[PushedEvent]
    size: int
    holders: int = 0


@dataclass
class Backlog:
    """What subscribers have not taken yet, and the most of it. The event loop alone works with it.

    Attributes:
        events, size: that one may be behind, in events and in bytes.
        total: bytes that all may be behind, each version of a feed counted once.
        held: those that they are.
    """

    events: int
    size: int = 32 << 20
    total: int = 256 << 20
    held: int = 0

    def hold(self, delivered: Delivered) -> None:
        """One member more has them to take."""
        self.held += delivered.size if not delivered.holders else 0
        delivered.holders += 1

    def release(self, delivered: Delivered) -> None:
        """One has taken them, or never will."""
        delivered.holders -= 1
        self.held -= delivered.size if not delivered.holders else 0


@dataclass
class Member:
    """One subscriber's queue. The event loop alone works with it.

    Attributes:
        backlog: how much may wait; with more the member is `dropped`.
        error: the end of the feed for everybody.
    """

    backlog: Backlog
    waiting: deque[Delivered] = field(default_factory=deque)
    events: int = 0
    size: int = 0
    dropped: bool = False
    closed: bool = False
    error: StrandlineError | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, delivered: Delivered) -> None:
        """The events of one more version, and its progress, which does not count."""
        self.waiting.append(delivered)
        self.backlog.hold(delivered)
        self.events += len(delivered.events) - 1
        self.size += delivered.size
        if self.events > self.backlog.events or self.size > self.backlog.size:
            self.drop()
        self.arrived.set()

    def drop(self) -> None:
        """Let go of a member that does not take its events."""
        self.dropped = True
        self.leave()
        self.arrived.set()

    def leave(self) -> None:
        """Nothing waits any more."""
        while self.waiting:
            self.backlog.release(self.waiting.popleft())
        self.events = self.size = 0

    def take(self) -> list[PushedEvent] | None:
        """The next version's events and its progress; None while there are none."""
        if not self.waiting:
            self.arrived.clear()
            return None
        delivered = self.waiting.popleft()
        self.backlog.release(delivered)
        self.events -= len(delivered.events) - 1
        self.size -= delivered.size
        return delivered.events


class Feed:
    """The feed of one query. Made, joined and left in the event loop.

    Args:
        functions: those that users wrote.
        apart: where expressions are computed; without it, in this process.
        topics: by which members are told how far a version is behind.

    Attributes:
        version: the version up to which the members have, or will get, all events; −1: there is no table yet.
        table: the first letters of the table's identity.
    """

    def __init__(
        self,
        lake: LakeLayout,
        made: Subscription,
        form: Form,
        functions: Library,
        apart: VersionProcesses | None,
        topics: Topics | None,
    ) -> None:
        self._lake = lake
        self._topics = topics
        self.made = made
        self.form = form
        self._functions = functions
        self._apart = apart if made.computes else None
        self._loop = asyncio.get_running_loop()
        self.members: list[Member] = []
        newest = log.newest_version(made.path)
        self.version = self._read = -1 if newest is None else newest
        self.table = "" if newest is None else reader.record_at(made.path, newest).table[:IDENTITY_LETTERS]
        self._standing: tuple[int, Notes, Reflected | None] = (-1, Notes(lake), None)
        self._wake, self._stop = Signal(), Signal()
        Thread(target=self._run, name=f"feed {made.relation.name}", daemon=True).start()

    def join(self, backlog: Backlog) -> Member:
        """A member from the present version on."""
        member = Member(backlog)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """The member gets no more."""
        member.leave()
        if member in self.members:
            self.members.remove(member)

    def wake(self) -> None:
        """There may be a new version. Any thread may call it."""
        self._wake.set()

    def close(self) -> None:
        """End the feed: members get no more events, and know it."""
        self._stop.set()
        self._wake.set()
        for member in self.members:
            member.closed = True
            member.arrived.set()

    def events(self, place: Place) -> Iterator[PushedEvent]:
        """The events of the version after a place, or the rest of its own. Blocks; any thread may call it.

        Raises: as `VersionAsked.each`.
        """
        asked = VersionAsked(self.made, self.form, place, self.table)
        if self._apart is not None:
            yield from self._apart.events(asked)
            return
        with QueryEngine(self._functions) as duck:
            yield from asked.each(duck)

    def standing(self, version: int) -> Reflected | None:
        """What a version of the table reflects; None where nobody knows. Reads logs; any thread may call it."""
        known, notes, found = self._standing
        if known != version or not notes.are_the_last:
            notes = Notes(self._lake)
            try:
                found = reflected(self._lake, self.made.relation.name, version, notes)
            except StoreError:
                found = None
            self._standing = (version, notes, found)
        return found

    def progress(self, place: Place) -> PushedEvent:
        """All changes up to a version were sent, and what that version reflects now. Reads logs, as `standing`."""
        standing = self.standing(place.version)
        lag = None if self._topics is None or standing is None else self._topics.lag(standing.offsets)
        return progress(
            place,
            event_time=None if standing is None else instant(standing.event_time),
            freshness_ms=None if standing is None else age_ms(standing.committed),
            staleness_ms=None if lag is None else lag.ms,
            behind_records=None if lag is None else lag.records,
        )

    def _events(self, duck: QueryEngine, place: Place) -> list[PushedEvent]:
        asked = VersionAsked(self.made, self.form, place, self.table)
        return asked.events(duck) if self._apart is None else self._apart.events(asked)

    def _run(self) -> None:
        with QueryEngine(self._functions) as duck:
            while not self._stop.is_set():
                self._wake.clear()
                try:
                    self._advance(duck)
                except StrandlineError as error:
                    logger.warning("a feed ended", extra={"view": self.made.relation.name, "error": error.attrs()})
                    self._call(lambda error=error: self._end(error))  # type: ignore[misc]
                    return
                self._wake.wait(_LOOK_SECONDS)

    def _advance(self, duck: QueryEngine) -> None:
        newest = log.newest_version(self.made.path)
        newest = -1 if newest is None else newest
        if newest < self._read:
            raise ChangesGone(
                sentence("'{}' was dropped, or made anew", Name(self.made.relation.name)), hint="subscribe again"
            )
        while self._read < newest and not self._stop.is_set():
            found = self._events(duck, Place(self._read, table=self.table))
            self._read += 1
            version = self._read
            found.append(self.progress(Place(version, table=self.table)))
            self._call(lambda found=found, version=version: self._deliver(version, found))  # type: ignore[misc]

    def _call(self, what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            self._stop.set()  # the loop has ended

    def _deliver(self, version: int, events: list[PushedEvent]) -> None:
        self.version = version
        # Twice: as they are, and as they are sent.
        delivered = Delivered(events, 2 * sum(len(event.data) for event in events))
        for member in list(self.members):
            member.offer(delivered)
        behind = sorted((each for each in self.members if len(each.waiting) > 1), key=lambda each: each.size)
        while behind and behind[-1].backlog.held > behind[-1].backlog.total:
            behind.pop().drop()
        for member in [each for each in self.members if each.dropped]:
            self.leave(member)

    def _end(self, error: StrandlineError) -> None:
        for member in self.members:
            member.error = error
            member.arrived.set()
        self._stop.set()

    @property
    def at_head(self) -> bool:
        """True when the members have, or will get, all that is committed now."""
        newest = log.newest_version(self.made.path)
        return self.version == (-1 if newest is None else newest)

    @property
    def ended(self) -> bool:
        """True when it gives no more events; whoever comes needs a new one."""
        return self._stop.is_set()
