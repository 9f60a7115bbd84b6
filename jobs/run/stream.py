"""The one streaming query of a pipeline.

    topics ──> [foreachBatch: append to the event logs, then refresh the views] ──> tables

Both ways of running are this query: `drain` ends when what was there at the start is in, `follow` goes on.

The lake is the only truth about progress: a run starts from the offsets in the event logs' last commits, with an empty
checkpoint. Spark's checkpoint would only be a second opinion, and the one that is wrong after a restore.
"""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.ingest import source
from strandline.jobs.ingest.event_logs import Target, begin_empty
from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ingest.in_driver import small_batches
from strandline.jobs.ingest.in_tasks import ingest as ingest_by_spark
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.ingest.produce import Ticks
from strandline.jobs.ingest.topics import behind, current_ids, lag, open_log
from strandline.jobs.ingest.while_starting import DriverClock
from strandline.jobs.ivm.retention import TrimUpkeep
from strandline.jobs.model.definitions import Definition, Source
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.report import CostFit, MicroBatch, RefreshCosts, report_at
from strandline.jobs.run.end_replacements import end_replacements
from strandline.jobs.run.refresh_views import RefreshTasks, in_tasks, refresh_all, warm_up
from strandline.jobs.run.schedule import (
    Deferrals,
    RefreshUnit,
    foreign_heads,
    maintained,
    read_beside_others,
    tables_of,
    unmade_logs,
    without,
)
from strandline.state_store.commits import ReachedNotes
from strandline.state_store.delta import reader
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import InputReplaced, StrandlineError
from strandline.state_store.storage_verbs import Requests, by_verb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from strandline.jobs.ingest.event_logs import Ingested
    from strandline.jobs.ingest.in_driver import SmallBatches
    from strandline.jobs.ingest.while_starting import Ingest
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.errors import ExpectationBroken
    from strandline.jobs.model.report import TableReport
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.orphans import HeldLock
    from strandline.jobs.run.refresh_views import Refreshed
    from strandline.jobs.run.spark import Session
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Round:
    """One round of a run: a micro-batch that is taken in, if there is one, and the refresh of all views after it.

    Attributes:
        began: seconds since the epoch.
        seconds: wall clock of the round.
        micro_batch: its number in the run, from 1; None of a refresh without one.
        taken: the commits of its events, and of those that could not be decoded.
        ingest_seconds: of `seconds`, until the last of those commits.
    """

    pipeline: str
    began: float
    seconds: float
    refreshed: Refreshed
    micro_batch: int | None = None
    taken: tuple[Ingested, ...] = ()
    ingest_seconds: float = 0.0


def unobserved(_round: Round) -> None:
    """Do nothing."""


# What a run has done so far: the rows that it inserts into and deletes from each table, and its micro-batches.

log = logging.getLogger("strandline")


def logged(batch: MicroBatch) -> None:
    """Log a micro-batch: what a run that nobody watches says of itself."""
    log.info("micro-batch %d: %d events in %.1f s", batch.number, batch.events, batch.seconds)


@dataclass
class TableTally:
    """The rows inserted and deleted in one table so far, and the seconds and the requests to an object store for it."""

    inserted: int = 0
    deleted: int = 0
    seconds: float = 0.0
    costs: CostFit = field(default_factory=CostFit)
    requests: Requests = field(default_factory=Requests)


@dataclass
class Tallies:
    """The tallies of a run, by table."""

    by_table: dict[str, TableTally] = field(default_factory=dict)

    def add(
        self,
        table: str,
        inserted: int,
        deleted: int,
        seconds: float,
        taken: int | None = None,
        requests: Requests | None = None,
    ) -> None:
        """Add what was done to a table.

        Args:
            taken: rows of the changes that a refresh took in; None: it was none, or computed all rows.
            requests: that it made to an object store; None: they are not counted.
        """
        tally = self.by_table.setdefault(table, TableTally())
        tally.inserted += inserted
        tally.deleted += deleted
        tally.seconds += seconds
        if taken is not None:
            tally.costs.add(taken, seconds)
        tally.requests.update(requests or {})

    def report(self, table: str, path: LakePath, late: int | None, stages: Iterable[str]) -> TableReport | None:
        """The table's report; None while it has no commit.

        Args:
            late: the rows that came too late for it, in all of its stages.
            stages: its inner stages.
        """
        head = reader.head(path)
        if head is None:
            return None
        tally = self.by_table.get(table, TableTally())
        seconds = round(tally.seconds, 3)
        of_stages = [self.by_table[each] for each in stages if each in self.by_table and each != table]
        made = report_at(head, table, path, inserted=tally.inserted, deleted=tally.deleted, seconds=seconds, late=late)
        requests = sum((each.requests for each in of_stages), tally.requests)
        costs = RefreshCosts.of(tally.costs, (each.costs for each in of_stages))
        return replace(made, costs=costs, requests=by_verb(requests))


# How long a drain may not notice that it is to stop; one that ends by itself is noticed at once.
_LISTENS_SECONDS = 1
# How often a run that follows looks at its lock, and at the tables of other pipelines.
_LOOKS_SECONDS = 1.0


@dataclass
class PipelineStream:
    """A pipeline at work in one Spark session. Not safe for two threads; one writer process per pipeline.

    Attributes:
        rebuilding: tables that a rebuild is about to compute: it is no news that their inputs were begun anew.
    """

    session: Session
    context: RunContext
    settings: Settings
    pipeline: str
    definitions: Sequence[Definition]
    levels: Sequence[Sequence[RefreshUnit]]
    lock: HeldLock
    tallies: Tallies = field(default_factory=Tallies)
    failures: dict[str, StrandlineError] = field(default_factory=dict)
    held: dict[str, ExpectationBroken] = field(default_factory=dict)
    """{table: what is wrong with its newest rows}, from which nothing is computed, as of the last refresh."""
    rebuilding: frozenset[str] = frozenset()
    micro_batches: int = 0
    refreshed: tuple[int, int] | None = None
    """When the last refresh of all views began, and when it ended, in milliseconds since the epoch."""
    busy_since: int | None = None
    """When the micro-batch at work began; None when none is."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """{topic: its id} from the start of the query on: what its commits name."""
    watch: Callable[[MicroBatch], None] = logged
    """Told of each micro-batch when it is committed and its views are fresh."""
    observer: Callable[[Round], None] = unobserved
    """Told of each round, also of one without a micro-batch. It must not raise."""
    _tasks: RefreshTasks | None = None
    """Of the present definitions; None until their first refresh in tasks."""
    _by_driver: bool = False
    """Until Spark's query is at work; its first tasks would take seconds."""
    _unmade: dict[str, Source] | None = None
    """{event log: its source} of the sources without a record at the last refresh; None: not looked at yet."""
    _outdated: bool = False
    """A source was given columns that the query at work does not read."""
    _trims: TrimUpkeep = field(default_factory=TrimUpkeep)
    _ticks: Ticks = field(default_factory=Ticks)
    _deferrals: Deferrals | None = None
    """What waits; None until the first refresh of the present definitions."""
    _notes: ReachedNotes | None = None
    """Of the present definitions; None until their first refresh."""
    _one_at_a_time: Lock = field(default_factory=Lock)
    """Micro-batches come on the query's thread, wake-ups by other pipelines on the caller's."""

    @property
    def lake(self) -> LakeLayout:
        return self.context.lake

    @property
    def sources(self) -> list[Source]:
        return [d for d in self.definitions if isinstance(d, Source)]

    @property
    def waiting(self) -> dict[str, tuple[int, int]]:
        """{what waits by its FRESHNESS: when its last refresh began and ended}, in milliseconds since the epoch."""
        return {} if self._deferrals is None else dict(self._deferrals.looked)

    def drain(self, stop: Event | None = None, *, in_driver: bool = False) -> None:
        """Take in what the topics hold now and refresh every view; `stop` ends it earlier, after a micro-batch.

        What may wait by its FRESHNESS is refreshed at the end, once for all micro-batches. What is small the driver
        takes in: a session, which takes ten seconds to start, is there for what is not.

        Args:
            in_driver: start no session, whatever waits.

        Raises:
            RefreshFailed: with `in_driver`, more waits than the driver may take in.
        """
        stop = stop or Event()
        self._ticks.tick(self.sources, self.settings, self.lake)
        before = self.micro_batches
        try:
            more = behind(self.sources, self.lake, open_log(self.settings, self.lake))
            if more and (in_driver or not self.session.started):
                more = not self._drain_by_driver(stop, alone=in_driver)
        except StrandlineError:
            if self.micro_batches == before:
                self.refresh()  # what the lake has does not wait for what it cannot have
            raise
        if self.micro_batches == before:  # each refreshes all views
            self.refresh()
        if more and in_driver:
            raise RefreshFailed("more events wait than the driver takes in", hint="set ingest.driver_rows higher")
        while more and not stop.is_set():
            query = self._start(available_now=True)
            while not query.awaitTermination(_LISTENS_SECONDS):
                if self._is_outdated() or stop.is_set():
                    query.stop()
            more = self._outdated
        if self.waiting:
            self.refresh()

    def _drain_by_driver(self, stop: Event, *, alone: bool) -> bool:
        """Take in by the driver what the topics hold now: at once if that is small, else part by part, until a session
        is there; False when something is left.

        Args:
            alone: start no session, and take in nothing that is not small.
        """
        while not stop.is_set():
            self._outdated = False
            checkpoint = self.session.checkpoint(self.pipeline)
            small = small_batches(self._reading(), checkpoint, self.context.duckdb_engine, available_now=True)
            if small is None:
                return False
            with closing(DriverClock(small, self._micro_batch, 0, stop)) as clock:
                done = clock.run_out(lambda: self._outdated)
                if not (done or alone or self._outdated):
                    return self._drain_while_starting(clock)
            if not self._outdated:
                return done
        return True

    def _drain_while_starting(self, clock: DriverClock) -> bool:
        self._by_driver = True
        try:
            return clock.run_out_until(self._warm_session, lambda: self._outdated)
        finally:
            self._by_driver = False

    def _warm_session(self) -> None:
        warm_up(self.session(), self.context, self.settings, self.levels)

    def read_again(self, sources: Sequence[Source]) -> None:
        """Take in all that the topics of some sources hold, and no others: of those the event logs may be broken.

        A session is started for it only if that is more than the driver may take in.
        """
        everything, self.definitions = self.definitions, tuple(sources)
        try:
            self.drain()
        finally:
            self.definitions = everything

    def follow(self, stop: Event) -> None:
        """Go on until `stop` is set. Inputs of other pipelines wake the views by their new versions."""
        # Before the refresh: what is committed while it runs is news.
        foreign = foreign_heads(self.levels, self.sources, self.lake)
        self._ticks.tick(self.sources, self.settings, self.lake)
        self.refresh()
        query = self._followed(stop) if self.sources else None
        try:
            while not stop.wait(_LOOKS_SECONDS):
                if query is not None and not query.isActive:
                    query.awaitTermination()
                    return
                if query is not None and self._is_outdated():
                    query.stop()
                    query = self._start(available_now=False)
                self.lock.check()
                self._ticks.tick(self.sources, self.settings, self.lake)
                if self._trims.due():
                    with self._one_at_a_time:
                        self._trims.trim(self.sources, self.settings)
                heads = foreign_heads(self.levels, self.sources, self.lake)
                if heads != foreign or intents.begun_replacements_in(self.pipeline, self.lake) or self._is_due():
                    foreign = heads
                    with self._one_at_a_time:
                        self.refresh(everything=False)
        finally:
            if query is not None:
                query.stop()

    def end(self, *, soon: bool = False) -> None:
        """Commit the merges that are written beside the epochs: no further epoch will. Raises LockLost.

        Args:
            soon: wait for no merge that is not begun.
        """
        engine = self.context.duckdb_engine
        if engine is not None and engine.kept.merges is not None:
            self.lock.check()
            engine.kept.merges.finish(begun=soon)

    def _is_due(self) -> bool:
        return self._deferrals is not None and self._deferrals.are_due(time.monotonic())

    def refresh(self, *, everything: bool = True) -> None:
        """One refresh of the views from their recorded vectors to the present heads. Raises LockLost.

        A definition that is to take a view's place takes it first.

        Args:
            everything: also what may wait by its FRESHNESS.
        """
        at, began = time.time(), time.monotonic()
        done = self._refreshed(began, everything=everything)
        self.observer(Round(self.pipeline, at, time.monotonic() - began, done))

    def _refreshed(self, arrived: float, *, everything: bool = False) -> Refreshed:
        """Args: `arrived`: when what is to be reflected came, by the monotonic clock."""
        self.lock.check()
        began = now_ms()
        self.take_replacements()
        self._begin_unfilled()
        deferrals = self._deferrals = self._deferrals or Deferrals(self.levels)
        waiting = deferrals.choose(self.lake, None if everything else arrived)
        stopped = frozenset(self.failures)
        # Without a session the DuckDB engine of this process is faster than a JVM starts.
        by_tasks = in_tasks(self.settings) and self.session.started and not self._by_driver
        if by_tasks:
            done = self._in_tasks().refresh(stopped, waiting)
        else:
            done = refresh_all(self.context, without(self.levels, waiting), stopped)
        for result in done.stages:
            taken = result.taken if result.version is not None else None
            self.tallies.add(result.table, result.inserted, result.deleted, result.seconds, taken, result.requests)
        for view, error in done.failures.items():
            if not (view in self.rebuilding and isinstance(error, InputReplaced)):
                log.error("view '%s' stopped: %s", view, error)
            self.failures[view] = error
        for table in done.held.keys() - self.held.keys():
            log.error("%s", done.held[table])
        self.held = done.held
        self._notes = self._notes or ReachedNotes(self.lake, self.pipeline, tables_of(self.levels))
        self._notes.note({result.table for result in done.stages}, done.reached)
        self.refreshed = (began, now_ms())
        deferrals.done(self.lake, arrived, waiting, self.refreshed)
        return done

    def _begin_unfilled(self) -> None:
        """Begin the event logs of sources without any record, where a view reads them beside others: as empty tables.

        What waits in a topic comes first: an event that looks up a table must not find it empty before its rows are in.
        """
        self._unmade = unmade_logs(self.sources if self._unmade is None else self._unmade.values(), self.lake)
        if not self._unmade:
            return
        topics = open_log(self.settings, self.lake)
        for each in read_beside_others(self.levels, self._unmade, self.lake):
            try:
                waits = behind([each], self.lake, topics)
            except StrandlineError as error:  # the intake says so, and stops or tries again
                log.debug("it is not known whether the topic '%s' holds records: %s", each.topic, error)
                continue
            if not waits:
                begin_empty(each, self.lake, self.context.writer)

    def _in_tasks(self) -> RefreshTasks:
        if self._tasks is None:
            self._tasks = RefreshTasks(self.session(), self.context, self.settings, self.levels)
        return self._tasks

    def take_replacements(self) -> None:
        """Put the next definitions of views and sources that are ready in their places, and go on with those."""
        began = time.monotonic()
        done = end_replacements(self.context, self.pipeline)
        if not done:
            return
        for each in done:
            self.tallies.add(each.name, each.inserted, each.deleted, time.monotonic() - began)
            self.failures = {n: e for n, e in self.failures.items() if n not in (each.name, *each.gone)}
        catalog = Catalog(self.lake)
        self.definitions = catalog.pipeline(self.pipeline)
        self.levels = maintained(self.definitions, catalog)
        self._unmade = None
        self._deferrals = None
        self._notes = None
        functions = Library(catalog.functions.values(), self.settings.functions.modules)
        self.context = replace(self.context, functions=functions)
        self._tasks = None
        self._outdated |= any(isinstance(catalog.find(each.name), Source) for each in done)

    def _is_outdated(self) -> bool:
        """True if the query reads a source without its newest columns, and is not at work on a micro-batch."""
        return self._outdated and self.busy_since is None

    def _micro_batch(self, ingest: Ingest) -> None:
        """Args: `ingest` appends the records of the micro-batch to the event logs."""
        with self._one_at_a_time:
            if self._outdated:
                return  # nothing of it is taken in: the next query reads it again
            self.busy_since = now_ms()
            try:
                self._take_in(ingest)
            finally:
                self.busy_since = None

    def _take_in(self, ingest: Ingest) -> None:
        self.lock.check()
        at, began = time.time(), time.monotonic()
        taken = ingest(Target.of_all(self.sources, self.lake, self.context.writer, self.topic_ids))
        if not taken:
            return  # Spark hands over an empty micro-batch when a run starts with nothing new
        seconds = time.monotonic() - began
        for commit in taken:
            self.tallies.add(commit.table, commit.rows, 0, seconds)
        done = self._refreshed(began)
        self.micro_batches += 1
        whole = time.monotonic() - began
        self.observer(Round(self.pipeline, at, whole, done, self.micro_batches, tuple(taken), seconds))
        stopped = len(self.failures.keys() | self.held.keys())
        left = self._left if any(origin_of(each.topic) is not None for each in self.sources) else None
        self.watch(MicroBatch(self.micro_batches, sum(c.rows for c in taken), whole, stopped, left))

    def _left(self) -> int | None:
        """The events that wait now; None if that is not known."""
        topics = open_log(self.settings, self.lake)
        try:
            return sum(lag(each, self.lake, topics) for each in self.sources)
        except StrandlineError as error:  # the next micro-batch says so
            log.debug("it is not known what waits: %s", error)
            return None

    def _followed(self, stop: Event) -> StreamingQuery | None:
        """The query that goes on, None after a stop; until it is at work the driver takes in what comes, if small."""
        self._outdated = False
        small = small_batches(self._reading(), self.session.checkpoint(self.pipeline), self.context.duckdb_engine)
        if small is None or self.session.started:
            return self._start(available_now=False)
        self._by_driver, sources = True, self.sources

        def by_driver(ingest: Ingest) -> None:
            # What `small` decodes lacks the columns that a source was given since: the query takes it in.
            if self.sources == sources:
                self._micro_batch(ingest)

        with closing(DriverClock(small, by_driver, self.settings.ingest.trigger_seconds, stop)) as clock:
            query = clock.run_until(self._warmed_up, self._at_work)
        self._by_driver = False
        return query

    def _warmed_up(self) -> StreamingQuery:
        self._warm_session()
        return self._start(available_now=False)

    def _at_work(self, query: StreamingQuery) -> bool:
        """True from the query's first micro-batch on, which is empty when nothing is new; or when it failed."""
        return not self._by_driver or not query.isActive or query.lastProgress is not None

    def _start(self, *, available_now: bool) -> StreamingQuery:
        self._outdated = False
        session, checkpoint, reading = self.session(), self.session.checkpoint(self.pipeline), self._reading()
        query = reading.frame(session).writeStream.queryName(self.pipeline)
        query = query.foreachBatch(
            partial(self._spark_batch, small_batches(reading, checkpoint, self.context.duckdb_engine))
        )
        query = query.option("checkpointLocation", str(checkpoint))
        every = f"{self.settings.ingest.trigger_seconds} seconds"
        return (query.trigger(availableNow=True) if available_now else query.trigger(processingTime=every)).start()

    def _spark_batch(self, small: SmallBatches | None, rows: DataFrame, number: int) -> None:
        self._by_driver = False
        self._micro_batch(partial(ingest_by_spark, rows, number, small))

    def _reading(self) -> source.IntakeRange:
        committed = {each.name: committed_offsets(each, self.lake) for each in self.sources}
        self.topic_ids = current_ids(self.sources, self.lake, open_log(self.settings, self.lake))
        return source.IntakeRange.after(committed, self.settings, self.lake, self.sources, self.topic_ids)
