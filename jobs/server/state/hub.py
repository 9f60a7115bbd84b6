"""The subscriptions of a server: a feed for each query that somebody has, and each subscriber's events."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.errors import Busy, ChangesGone, RequestRefused, SlowReader, TooStale
from strandline.jobs.serve.subscription import subscription
from strandline.jobs.server.state.events import (
    Form,
    Place,
    PushedEvent,
    Replays,
    failed,
)
from strandline.jobs.server.state.feed import Backlog, Feed, Member
from strandline.state_store.delta import log
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import StrandlineError
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from sqlglot import exp

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python import Library
    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.serve.subscription import Subscription
    from strandline.jobs.serve.watch import Topics
    from strandline.jobs.server.state.events import VersionProcesses
    from strandline.jobs.sql.syntax import Emit, Select
    from strandline.state_store.layout import LakeLayout


_KEEP_ALIVE_SECONDS: Final = 15.0
"""Proxies close a connection on which nothing happens for half a minute or a minute."""
KEEP_ALIVE: Final = b": keep-alive\n\n"
_ALLOWED_SECONDS: Final = 1.0
"""A subscriber whose token was revoked, or has expired, gets events for so long; one to whom nothing is sent is let go
at the next sign of life."""
_REMEMBERED: Final = 256
"""Queries whose reading is kept: clients of one page ask the same few."""


@dataclass(frozen=True)
class SubscriptionRequest:
    """What a subscriber wants.

    Attributes:
        statement: filters and projects one relation.
        place: where it goes on; None: from the present version.
        snapshot: with the rows of the present version first; without meaning where `place` is given.
        up_to: the last version; None: without end.
        limit: the most events but for progress marks.
        max_staleness: the seconds that the table may be behind its topics; once it is more, the subscription ends.
        allowed: raises Unauthenticated or Forbidden once the subscriber may not read any more.
    """

    statement: Select
    form: Form = "upserts"
    place: Place | None = None
    snapshot: bool = True
    up_to: int | None = None
    limit: int | None = None
    max_staleness: float | None = None
    allowed: Callable[[], object] = lambda: None


class Hub:
    """All subscriptions of a server. The event loop works with it, but for `told`.

    Args:
        most: subscribers at once.
        backlog: how far one may be behind.
        apart: where the expressions of queries are computed; without it, in this process.
        topics: by which subscribers are told how far they are behind; without it they are not.
    """

    def __init__(
        self,
        lake: LakeLayout,
        most: int,
        backlog: Backlog,
        apart: VersionProcesses | None = None,
        topics: Topics | None = None,
    ) -> None:
        self._lake = lake
        self._topics = topics
        self._apart = apart
        self._most = most
        self._backlog = backlog
        self._replays = Replays()
        self._feeds: dict[tuple[str, str, str], Feed] = {}
        self._read_with: Catalog | None = None
        self._read: dict[tuple[exp.Query, Emit | None, Unnamed], Subscription] = {}
        self.subscribers = 0
        self.dropped = 0

    def told(self, table: str) -> None:
        """A table may have a new version. Any thread may call it."""
        for feed in self.feeds():
            if feed.made.relation.name == table:
                feed.wake()

    def tables(self) -> set[str]:
        """The tables that somebody subscribes to."""
        return {feed.made.relation.name for feed in self.feeds()}

    def feeds(self) -> list[Feed]:
        """Those that somebody subscribes to."""
        return list(self._feeds.values())

    async def prepare(self, wish: SubscriptionRequest, catalog: Catalog) -> None:
        """Read a subscriber's query beside the event loop: a long one takes seconds. Errors as of `follow`."""
        asked = self._asked(wish, catalog)
        if asked not in self._read:
            made = await asyncio.to_thread(subscription, wish.statement, catalog, self._lake, asked[2])
            if catalog is self._read_with:
                self._read[asked] = made

    def subscribe(self, wish: SubscriptionRequest, catalog: Catalog, functions: Library) -> AsyncIterator[bytes]:
        """The events of a subscriber, as server-sent ones; arguments and errors as of `follow`."""
        return _sent(self.follow(wish, catalog, functions)[1])

    def follow(
        self, wish: SubscriptionRequest, catalog: Catalog, functions: Library
    ) -> tuple[Subscription, AsyncGenerator[PushedEvent | None]]:
        """What a subscriber's query shows, and its events; None where nothing has come for a while.

        Raises:
            SqlError: the query is refused, or does more than filter and project.
            RequestRefused: rows may go that the form cannot name.
            ChangesGone: the place is no longer among the changes that are kept, or its rows had another key.
            TableLost, CommitsLost: its table, or its newest commits, are not there any more.
            Busy: there are as many subscribers as there may be.
        """
        if self.subscribers >= self._most:
            raise Busy(f"there are {self._most} subscribers already")
        # A client that is gone before its first event has joined no feed, and left none.
        self._forget_unused()
        made = self._subscription(wish, catalog)
        newest_version(self._lake, made.relation.name)
        if wish.form == "arrays" and not made.shows_deletions:
            raise RequestRefused(
                sentence("an array of columns cannot say which row of '{}' is gone", Name(made.relation.name)),
                hint="select its whole key and a column more, or ask /query, whose rows say so",
            )
        feed = self._feed(made, wish.form, functions)
        place = wish.place or Place(feed.version, 0 if wish.snapshot and feed.version >= 0 else None, wish.snapshot)
        try:
            _check(place, feed)
        except ChangesGone:
            self._forget_unused()
            raise
        return made, self._events(wish, made, functions, place)

    def close(self) -> None:
        """End all feeds and subscriptions."""
        self._replays.close()
        for feed in self._feeds.values():
            feed.close()

    def _subscription(self, wish: SubscriptionRequest, catalog: Catalog) -> Subscription:
        """What a query subscribes to, read once for all who ask it: a thousand clients that come back at once would
        hold up the event loop for seconds."""
        asked = self._asked(wish, catalog)
        if asked not in self._read:
            self._read[asked] = subscription(wish.statement, catalog, self._lake, asked[2])
        return self._read[asked]

    def _asked(self, wish: SubscriptionRequest, catalog: Catalog) -> tuple[exp.Query, Emit | None, Unnamed]:
        """By what the reading of a query is kept. Those of another catalog, and too many, are forgotten."""
        if catalog is not self._read_with or len(self._read) >= _REMEMBERED:
            self._read_with, self._read = catalog, {}
        unnamed: Unnamed = "ksql" if wish.form in ("columns", "arrays") else "postgres"
        return wish.statement.query, wish.statement.emit, unnamed

    def _feed(self, made: Subscription, form: Form, functions: Library) -> Feed:
        name = (made.relation.name, made.text, form)
        feed = self._feeds.get(name)
        if feed is None or feed.ended:
            feed = self._feeds[name] = Feed(self._lake, made, form, functions, self._apart, self._topics)
        return feed

    async def _events(
        self, wish: SubscriptionRequest, made: Subscription, functions: Library, place: Place
    ) -> AsyncGenerator[PushedEvent | None]:
        if wish.limit == 0:
            self._forget_unused()
            return
        # Looked for again: the last member of the feed that the place was checked with may have left since.
        feed = self._feed(made, wish.form, functions)
        member = feed.join(self._backlog)
        self.subscribers += 1
        left, checked = wish.limit, time.monotonic()
        try:
            tick = _KEEP_ALIVE_SECONDS if wish.max_staleness is None else min(wish.max_staleness, _KEEP_ALIVE_SECONDS)
            async for event in _followed(feed, self._replays, member, place, tick):
                if time.monotonic() - checked > _ALLOWED_SECONDS:
                    checked, refused = time.monotonic(), _refused(wish) or await self._stale(wish, feed)
                    if refused is not None:
                        yield failed(place, refused)
                        return
                yield event
                if event is None:
                    continue
                place = event.place
                if event.kind in ("row", "change") and left is not None:
                    left -= 1
                done = wish.up_to is not None and event.kind == "progress" and event.place.version >= wish.up_to
                if left == 0 or done:
                    return
        finally:
            self.dropped += member.dropped
            self.subscribers -= 1
            feed.leave(member)
            self._forget_unused()

    async def _stale(self, wish: SubscriptionRequest, feed: Feed) -> StrandlineError | None:
        """Why the table is too far behind for a subscriber; None while it is not.

        What the subscriber has had so far does not count: whoever comes back after a day catches up first.
        """
        topics, allowed = self._topics, wish.max_staleness
        if topics is None or allowed is None:
            return None

        def look() -> None:
            standing = feed.standing(feed.version)
            topics.check(None if standing is None else standing.offsets, allowed)

        try:
            await asyncio.to_thread(look)
        except TooStale as error:
            return error
        return None

    def _forget_unused(self) -> None:
        """End the feeds without members. Whoever joins one later makes it again."""
        for feed in self.feeds():
            if not feed.members:
                feed.close()
        self._feeds = {name: feed for name, feed in self._feeds.items() if feed.members}


def _refused(wish: SubscriptionRequest) -> StrandlineError | None:
    """Why the subscriber may not read any more; None while it may."""
    try:
        wish.allowed()
    except StrandlineError as error:
        return error
    return None


async def _sent(events: AsyncGenerator[PushedEvent | None]) -> AsyncIterator[bytes]:
    """The events as they are sent. When the subscriber goes, they are ended at once."""
    async with aclosing(events):
        async for event in events:
            yield KEEP_ALIVE if event is None else event.text


def _check(place: Place, feed: Feed) -> None:
    """Refuse a place that cannot be gone on from, while the answer can still have a status."""
    name = feed.made.relation.name
    if place.version > feed.version or (place.table and feed.table and place.table != feed.table):
        raise ChangesGone(
            sentence("'{}' was made anew since", Name(name)), hint="subscribe again: a snapshot comes first"
        )
    if place.version < feed.version:
        try:
            if not place.snapshot:
                log.read_commit(feed.made.path, place.version + (place.sent is None))
            if feed.form != "weights":
                feed.made.check_key(max(place.version, 0))
        except ChangesGone:
            raise
        except StrandlineError as error:
            raise ChangesGone(
                sentence("the changes of '{}' after version {} are not kept any more", Name(name), place.version),
                hint="subscribe again: a snapshot comes first",
            ) from error


async def _followed(
    feed: Feed, replays: Replays, member: Member, place: Place, tick: float
) -> AsyncIterator[PushedEvent | None]:
    """What was there when the subscriber came, then what comes; progress again, or None, when nothing does for
    `tick` seconds."""
    upto = feed.version
    try:
        while place.version < upto or place.sent is not None:
            first = Place(place.version + (place.sent is None), 0, place.snapshot, feed.table)
            name = (feed, first.version, first.snapshot)
            async with replays.opened(name, first, partial(feed.events, first)) as replay:
                while piece := await asyncio.to_thread(replay.piece, place.sent or 0):
                    for event in piece:
                        place = event.place
                        yield event
            place = Place(place.version + (place.sent is None), table=feed.table)
            yield await asyncio.to_thread(feed.progress, place)
        async for arrived in _arriving(feed, member, tick):
            if arrived is not None:
                place = arrived.place
                yield arrived
            elif place.version >= 0 and place.sent is None:
                yield await asyncio.to_thread(feed.progress, place)
            else:
                yield None
    except StrandlineError as error:
        yield failed(place, error)


async def _arriving(feed: Feed, member: Member, tick: float) -> AsyncIterator[PushedEvent | None]:
    """The member's events as they come, until the feed is closed; None when nothing comes for `tick` seconds.

    Raises:
        SlowReader: it did not take them in time.
        StrandlineError: the feed ended.
    """
    while not member.closed:
        found = member.take()
        if found is not None:
            for event in found:
                yield event
        elif member.dropped:
            raise SlowReader("the subscriber did not take its events in time", hint="go on with Last-Event-ID")
        elif member.error is not None:
            raise member.error
        else:
            try:
                await asyncio.wait_for(member.arrived.wait(), tick)
            except TimeoutError:
                yield None
