"""A server at work: what its routes share, opened once and closed in the end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.jobs.functions.python import Library
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.serve.catalogued import Catalogued
from strandline.jobs.serve.consistent_snapshot import Reflected, pin, reflected
from strandline.jobs.serve.errors import NotYet
from strandline.jobs.serve.watch import CommitWatch, Poller, Topics
from strandline.jobs.server.state.access import EVERYTHING, Token, Tokens
from strandline.jobs.server.state.by_key import KeyedQueries
from strandline.jobs.server.state.events import VersionProcesses
from strandline.jobs.server.state.feed import Backlog
from strandline.jobs.server.state.hub import Hub
from strandline.jobs.server.state.inserts import Inserts
from strandline.jobs.server.state.metrics import Metrics, PartialViewsCollector, Standing
from strandline.jobs.server.state.partials import Partials
from strandline.jobs.server.state.pool import Queries
from strandline.jobs.server.state.replicas import Replicas, reader_of, store_opener
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta.heads import marked, newest_version
from strandline.state_store.errors import StoreError, StrandlineError, TableMissing
from strandline.state_store.layout import LakeLayout
from strandline.state_store.leases import ReaderLease
from strandline.state_store.lock import writer_lock
from strandline.state_store.paths import folders_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.serve.consistent_snapshot import Pinned, Reach
    from strandline.jobs.serve.terms import Least
    from strandline.jobs.serve.watch import Lag
    from strandline.jobs.server.state.access import ServerOptions


# The cuts that a server has pinned for its clients: leases keep their versions until they are given back, or expire.
#
# pin ──> lease of each table at its smallest pinned version ──> given back, or expired ──> at the next version needed

log = logging.getLogger("strandline.server")

_SWEEP_SECONDS: Final = 30.0
"""A lease is moved on so often at the most: each time is a flushed file, and transactions come by the thousand."""
MOST_CUTS: Final = 10_000
"""That are held at once; each names all tables. Beyond that the oldest ones are kept by retention's horizon alone."""


class Cuts(Poller):
    """The pinned cuts of a server. Any thread may ask.

    Args:
        reader_name: of the leases.
    """

    def __init__(self, lake: LakeLayout, catalogued: Catalogued, reader_name: str) -> None:
        self._lake = lake
        self._catalogued = catalogued
        self._reader_name = reader_name
        self._lock = Lock()
        self._held: dict[str, Pinned] = {}
        self._leases: dict[str, tuple[ReaderLease, int]] = {}
        self._swept = time.monotonic()
        super().__init__("pinned cuts")
        self.begin()

    def pin(self, seconds: float, first: Sequence[str] = ()) -> Pinned:
        """Pin the newest consistent cut, and hold it.

        Args:
            first: the tables for whose sake others are left out.

        Raises: as `jobs.serve.consistent_snapshot.pin`; DiskFailed: its versions cannot be leased.
        """
        definitions = self._catalogued.catalog.definitions()
        stored = [
            each.name
            for each in definitions
            if isinstance(each, Source) or (isinstance(each, View) and not each.partial)
        ]
        found = pin(stored, self._lake, seconds, first)
        with self._lock:
            self._held[found.text()] = found
            while len(self._held) > MOST_CUTS:
                del self._held[next(iter(self._held))]
            for table, version in found.versions.items():
                known = self._leases.get(table)
                if known is None or known[1] > version:
                    self._lease(table, version)
        return found

    def release(self, pinned: Pinned) -> None:
        """Hold a cut no more."""
        with self._lock:
            self._held.pop(pinned.text(), None)

    def look(self) -> bool:
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self.sweep()
        return True

    def sweep(self) -> None:
        """Let go of what has expired, and move the leases on."""
        self._swept = time.monotonic()
        with self._lock:
            now = delta_log.now_ms()
            self._held = {text: each for text, each in self._held.items() if each.until > now}
            needed: dict[str, int] = {}
            for each in self._held.values():
                for table, version in each.versions.items():
                    needed[table] = min(version, needed.get(table, version))
            for table, (lease, version) in list(self._leases.items()):
                try:
                    if table not in needed:
                        lease.withdraw()
                        del self._leases[table]
                    elif needed[table] > version:
                        self._lease(table, needed[table])
                except StoreError as error:
                    log.warning("a lease stays where it is", extra={"view": table, "error": error.attrs()})

    def close(self) -> None:
        super().close()
        for lease, _ in self._leases.values():
            with suppress(StoreError):
                lease.withdraw()

    def _lease(self, table: str, version: int) -> None:
        lease, _ = self._leases.get(table) or (ReaderLease(self._lake.table(table), self._reader_name), version)
        with suppress(TableMissing):  # dropped a moment ago: whoever reads it is told
            lease.publish(version)
            self._leases[table] = (lease, version)


T = TypeVar("T")

_LARGE_INSERTS: Final = 2
"""At once; of the largest each takes half a gigabyte."""
_LOOK_SECONDS: Final = 1.0
"""Who waits looks that often by himself: on an object store only tables that somebody follows are watched."""
_LOST_SECONDS: Final = 1.0
"""Between two looks for lost tables: two listings of a folder each."""
_LOST_AFAR: Final = 60.0
"""The same on an object store, where a listing costs money and load balancers ask every few seconds."""


class Server:
    """What the routes share. Made in the event loop by `running`."""

    def __init__(self, settings: Settings, options: ServerOptions) -> None:
        self.settings = settings
        self.options = options
        self.lake = LakeLayout(settings.lake)
        self.catalogued = Catalogued(self.lake)
        self.metrics = Metrics()
        replicas = options.folder / "replicas"
        open_store = store_opener(settings.server, reader_of(replicas))
        self.replicas = Replicas(
            self.lake, replicas, self._arrived, open_store, remote=settings.server.replica == "dynamodb"
        )
        self._versions = VersionProcesses(settings, options.limits)
        self.topics = Topics(settings, self.lake)
        self.hub = Hub(self.lake, options.subscribers, Backlog(options.backlog), self._versions, self.topics)
        self.inserts = Inserts(settings, self.lake, options.folder / "inserts")
        self.queries = Queries(settings, options.limits, options.queries, spares=1)
        self.cuts = Cuts(self.lake, self.catalogued, f"{self.replicas.reader_name}-cuts")
        self.by_key = KeyedQueries(self.lake, self.catalogued, self.replicas, self.may_answer, self.metrics)
        self.partials = Partials(self.lake, self.catalogued, self.library, options.limits, self._arrived)
        self.push_queries: dict[str, asyncio.Event] = {}
        """Of ksqlDB's clients, by id; what is set ends."""
        self.body_bytes = 0
        """Of the bodies that are being received."""
        self.large_inserts = asyncio.Semaphore(_LARGE_INSERTS)
        """Their rows take fifty times the bytes of their bodies while they are written."""
        self.metrics.registry.register(Standing(self.replicas, self.hub))
        self.metrics.registry.register(PartialViewsCollector(self.partials))
        self._tokens = Tokens(options.tokens) if options.tokens is not None else None
        self._loop = asyncio.get_running_loop()
        self._moved = asyncio.Event()
        self._waited: Counter[str] = Counter()
        self._answered: dict[str, int] = {}
        self._lock = Lock()
        self._lost: Sequence[str] = ()
        self._look_again = 0.0

    def token_of(self, header: str | None) -> Token:
        """Whose request it is. Raises Unauthenticated."""
        return EVERYTHING if self._tokens is None else self._tokens.find(header)

    def library(self) -> Library:
        """The functions that users wrote."""
        return Library(self.catalogued.catalog.functions.values(), self.settings.functions.modules)

    def told(self, table: str) -> None:
        """A table may have a new version. Called by the watch's thread."""
        self.replicas.told(table)
        self.partials.told(table)
        self.hub.told(table)
        self._arrived(table)

    def followed(self) -> set[str]:
        """The tables that somebody follows or waits for."""
        return {*self.replicas.names(), *self.partials.tables(), *self.hub.tables(), *list(self._waited)}

    def lost(self) -> Sequence[str]:
        """The tables that were made and are not there any more, as of some seconds ago."""
        if time.monotonic() >= self._look_again:
            self._look_again = time.monotonic() + (_LOST_SECONDS if isinstance(self.lake.root, Path) else _LOST_AFAR)
            there = {folder.name for folder in folders_in(self.lake.tables)}
            self._lost = [name for name in marked(self.lake) if self.lake.table(name).name not in there]
        return self._lost

    def may_answer(self, view: str, version: int) -> bool:
        """False if a client may have had a newer version of the view; otherwise this is the newest now."""
        with self._lock:
            if version < self._answered.get(view, -1):
                return False
            self._answered[view] = version
            return True

    def note(self, versions: Mapping[str, int]) -> None:
        """Note the versions of an answer, by what their tables are called: none that is older comes after it."""
        name_map = self.catalogued.catalog.name_map
        for name, version in versions.items():
            with suppress(StrandlineError):  # it was renamed since
                self.may_answer(name_map.stored(name), version)

    def standing(self, relation: Relation) -> Reflected | None:
        """What an answer about the relation would reflect now; None while it has no table."""
        followed = self.replicas.find(relation.name)
        version = followed.version if followed is not None else None
        if followed is not None and version is not None:
            return followed.standing(version)
        newest = newest_version(self.lake, relation.name)
        return None if newest is None else reflected(self.lake, relation.name, newest)

    async def wait(self, relation: Relation, least: Least, seconds: float) -> None:
        """Wait until an answer about the relation reflects at least that.

        Raises:
            NotYet: it does not within the time.
        """

        def look() -> None:
            if not self._meets(relation, least):
                raise NotYet.of(relation.name)

        await self.until((relation.name,), look, seconds)

    async def meet(self, relation: Relation, allowed: float | None, seconds: float) -> Lag | None:
        """How far a relation is behind its topics, once that is as little as allowed; None where nobody knows.

        Args:
            allowed: seconds; None: as far as it is.

        Raises:
            TooStale: it is further behind when the time is over.
        """

        def look() -> Lag | None:
            offsets = self._offsets(relation)
            if allowed is not None:
                self.topics.check(offsets, allowed)
            return self.topics.lag(offsets)

        return await self.until((relation.name,), look, seconds)

    def _offsets(self, relation: Relation) -> Mapping[str, Reach] | None:
        """Of the topics below a relation, that an answer about it would reflect now; None while it has no table."""
        if self.partials.is_partial(relation.name):
            cut = self.partials.of(relation.name).cut
            return None if cut is None else cut.offsets
        standing = self.standing(relation)
        return None if standing is None else standing.offsets

    async def until(self, tables: Iterable[str], attempt: Callable[[], T], seconds: float) -> T:
        """What `attempt` returns, as soon as it raises NotYet no more. It is made in a thread, at once and whenever a
        table has a new version.

        Args:
            tables: those whose versions are waited for.

        Raises:
            NotYet: it still does when the time is over.
        """
        until = time.monotonic() + min(seconds, self.options.wait_seconds)
        waited = Counter(set(tables))
        self._waited += waited
        try:
            while True:
                moved = self._moved
                try:
                    return await asyncio.to_thread(attempt)
                except NotYet:
                    left = until - time.monotonic()
                    if left <= 0:
                        raise
                with suppress(TimeoutError):
                    await asyncio.wait_for(moved.wait(), min(left, _LOOK_SECONDS))
        finally:
            self._waited -= waited

    def _meets(self, relation: Relation, least: Least) -> bool:
        if self.partials.is_partial(relation.name):
            cut = self.partials.of(relation.name).cut
            return cut is not None and cut.reaches(least.topic, least.offsets)
        return least.met_by(self.standing(relation))

    def _arrived(self, _table: str) -> None:
        try:
            self._loop.call_soon_threadsafe(self._pulse)
        except RuntimeError:
            return  # the loop has ended, and nobody waits

    def _pulse(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    def end_subscriptions(self) -> None:
        """Let all subscribers go. Any thread, or a signal's handler, may call it."""
        self._loop.call_soon_threadsafe(self.hub.close)

    def close(self) -> None:
        """End what runs beside the loop."""
        self.hub.close()
        self._versions.close()
        self.queries.close()
        self.replicas.close()
        self.partials.close()
        self.cuts.close()
        self.topics.close()


@asynccontextmanager
async def running(settings: Settings, options: ServerOptions) -> AsyncIterator[Server]:
    """A server for the duration of the block.

    Raises:
        SettingsError: the file of tokens is not there.
        WriterBusy: another server works in the folder.
    """
    with writer_lock(options.folder / "server.lock", "strandline serve"):
        server = Server(settings, options)
        try:
            with CommitWatch(server.lake, server.told, server.followed):
                yield server
        finally:
            await asyncio.to_thread(server.close)
