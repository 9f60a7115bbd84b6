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

from strandline.jobs.serve.errors import ChangesGone
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.server.changes.place import IDENTITY_LETTERS, Place
from strandline.jobs.server.changes.versions import VersionAsked
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StrandlineError
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.serve.subscription import Subscription
    from strandline.jobs.server.changes.events import Event, Form
    from strandline.jobs.server.changes.versions import VersionProcess

logger = logging.getLogger("strandline.server")

# What the watch missed is found when it sweeps; this is for a feed whose table could not be read.
_LOOK_SECONDS = 5.0


@dataclass
class Member:
    """One subscriber's queue. The event loop alone works with it.

    Attributes:
        most: events that may wait; with more the member is `dropped`.
        error: the end of the feed for everybody.
    """

    most: int
    waiting: deque[tuple[int, list[Event]]] = field(default_factory=deque)
    events: int = 0
    dropped: bool = False
    closed: bool = False
    error: StrandlineError | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, version: int, events: list[Event]) -> None:
        """The events of one more version."""
        self.events += len(events)
        if self.events > self.most:
            self.dropped = True
            self.waiting.clear()
        else:
            self.waiting.append((version, events))
        self.arrived.set()

    def take(self) -> tuple[int, list[Event]] | None:
        """The next version's events; None while there are none."""
        if not self.waiting:
            self.arrived.clear()
            return None
        version, events = self.waiting.popleft()
        self.events -= len(events)
        return version, events


class Feed:
    """The feed of one query. Made, joined and left in the event loop.

    Args:
        functions: those that users wrote.
        apart: where expressions are computed; without it, in this process.

    Attributes:
        version: the version up to which the members have, or will get, all events; −1: there is no table yet.
        table: the first letters of the table's identity.
    """

    def __init__(self, made: Subscription, form: Form, functions: Library, apart: VersionProcess | None) -> None:
        self.made = made
        self.form = form
        self._functions = functions
        self._apart = apart if made.computes else None
        self._loop = asyncio.get_running_loop()
        self.members: list[Member] = []
        newest = log.newest_version(made.path)
        self.version = self._read = -1 if newest is None else newest
        self.table = "" if newest is None else reader.record_at(made.path, newest).table[:IDENTITY_LETTERS]
        self._wake, self._stop = Signal(), Signal()
        Thread(target=self._run, name=f"feed {made.relation.name}", daemon=True).start()

    def join(self, most: int) -> Member:
        """A member from the present version on."""
        member = Member(most)
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        """The member gets no more."""
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

    def events(self, place: Place) -> list[Event]:
        """The events of the version after a place, or the rest of its own. Blocks; any thread may call it.

        Raises: as `VersionAsked.events`.
        """
        with QueryEngine(self._functions) as duck:
            return self._events(duck, place)

    def _events(self, duck: QueryEngine, place: Place) -> list[Event]:
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
            self._call(lambda found=found, version=version: self._deliver(version, found))  # type: ignore[misc]

    def _call(self, what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            self._stop.set()  # the loop has ended

    def _deliver(self, version: int, events: list[Event]) -> None:
        self.version = version
        for member in list(self.members):
            member.offer(version, events)
            if member.dropped:
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
