"""Runs a pipeline: takes the writer's lock, opens the session, drains or follows the stream, tells observers, reports.

Those who observe a run are told of its rounds and of its heartbeats:

    stream ── each round ──────┐
                               ├─> observers: metrics, traces, lineage, as the settings ask for
    heartbeat ── each beat ────┘

An observer never holds up or ends a run: what it raises is logged and no more. Its libraries are loaded only when the
settings ask for it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.topics import lag, open_log
from strandline.jobs.ivm.refresh.late import early_events, late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.errors import JvmLost, PipelineMissing, UnknownName, ViewsStopped
from strandline.jobs.model.report import EarlyEvents, MicroBatch, RunReport
from strandline.jobs.model.settings import SPREAD_ON_A_CLUSTER, SPREAD_ON_ONE_MACHINE, local_cores
from strandline.jobs.run.heartbeat import heartbeat
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.publishing import publishing
from strandline.jobs.run.schedule import stages_of
from strandline.jobs.run.spark import Session
from strandline.state_store.delta.heads import note_all
from strandline.state_store.errors import SettingsError, StoreError, WriterBusy
from strandline.state_store.layout import LakeLayout, check_lake
from strandline.state_store.wording import listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from threading import Event

    from pyspark.sql import SparkSession

    from strandline.jobs.ivm.refresh.context import Spread
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.publish.publisher import Published
    from strandline.jobs.run.heartbeat import Heartbeat, Mode
    from strandline.jobs.run.stream import PipelineStream, Round
    from strandline.state_store.duckdb.engine import DuckDBEngine


class Observer(Protocol):
    """One who observes the runs of a pipeline, from before the lock is held until the run is over."""

    def begun(self, stream: PipelineStream) -> None:
        """The run has its lock, and begins."""

    def round(self, done: Round) -> None:
        """A round is over. In the thread of the run: what takes long is for another one."""

    def beat(self, beat: Heartbeat) -> None:
        """A heartbeat was made. In the thread of the heartbeats."""

    def ended(self, error: BaseException | None) -> None:
        """The run is over, by that error if there is one."""


class Observers:
    """All who observe one run."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @contextmanager
    def of(self, stream: PipelineStream) -> Iterator[None]:
        """Observe the rounds of this stream while the body runs."""
        self._tell(lambda each: each.begun(stream))
        stream.observer = lambda done: self._tell(lambda each: each.round(done))
        error: BaseException | None = None
        try:
            yield
        except BaseException as fault:
            error = fault
            raise
        finally:
            ended_by = error
            self._tell(lambda each: each.ended(ended_by))

    def beat(self, beat: Heartbeat) -> None:
        """A heartbeat was made."""
        self._tell(lambda each: each.beat(beat))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for each in self._observers:
            try:
                tell(each)
            except Exception as fault:  # what is told of a run must never end it
                log.warning("%s could not be told: %s", type(each).__name__, fault)


@contextmanager
def observers(settings: Settings, pipeline: str) -> Iterator[Observers]:
    """The observers that the settings ask for, while the body runs.

    Raises:
        SettingsError: they ask for one whose libraries are not installed.
    """
    found: list[Observer] = []
    with ExitStack() as opened:
        if settings.metrics.port is not None:
            from strandline.jobs.run.metrics import PipelineMetrics, answering

            metrics = PipelineMetrics(pipeline)
            opened.enter_context(answering(settings.metrics, metrics))
            found.append(metrics)
        if settings.tracing.endpoint is not None:
            with _installed("tracing.endpoint", "otel"):
                from strandline.jobs.run.tracing import tracing
            found.append(opened.enter_context(tracing(settings.tracing, pipeline)))
        if settings.openlineage.url is not None:
            with _installed("openlineage.url", "openlineage"):
                from strandline.jobs.run.open_lineage import lineage_events
            found.append(opened.enter_context(lineage_events(settings.openlineage, pipeline)))
        yield Observers(found)


@contextmanager
def _installed(setting: str, extra: str) -> Iterator[None]:
    """Import in the body what an extra brings. Raises SettingsError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"setting '{setting}' needs '{error.name}', which is not installed",
            hint=f"type: pip install 'strandline[{extra}]', or unset it",
        ) from error


log = logging.getLogger("strandline")

Watch = Callable[[MicroBatch], None]

_LOOKS_SECONDS: Final = 0.5
"""How often a standby looks whether the lock is free: one call of the kernel, or one request."""


def drain(
    settings: Settings,
    name: str,
    spark: SparkSession | None = None,
    *,
    stop: Event | None = None,
    watch: Watch | None = None,
    in_driver: bool = False,
) -> RunReport:
    """Bring a pipeline up to what its topics hold now, then stop.

    Args:
        spark: a session to run in; without it one is started and stopped.
        in_driver: this process takes in what the topics hold, by its DuckDB engine; no session is started for that.
        stop: set to end after the present micro-batch.
        watch: told of each micro-batch; without it they are logged.

    Raises:
        PipelineMissing: no definitions belong to that name.
        CorruptState: the file of a definition that it needs is broken.
        WriterBusy: another process runs the pipeline.
        LockLost: the file of its lock was taken from under it.
        ViewsStopped: some views failed, the others are fresh.
        RefreshFailed: with `in_driver`, more waits than the driver may take in (`ingest.driver_rows`).
        StrandlineError: a source failed; what was committed before stays, a rerun goes on from there.
    """
    with (
        observers(settings, name) as watching,
        opened(settings, name, spark, in_driver=in_driver) as (stream, began),
        watching.of(stream),
    ):
        stream.watch = watch or stream.watch
        published = publishing(settings, stream.definitions, _logged, drained=True)
        with published as unpublished, _heartbeat(stream, "drain", began, watching), _typed_errors():
            stream.drain(stop, in_driver=in_driver)
            stream.end(soon=stop is not None and stop.is_set())
        stream.failures |= unpublished
        return _finish(stream, began)


def follow(
    settings: Settings, name: str, stop: Event, *, watch: Watch | None = None, standby: bool = False
) -> RunReport:
    """Keep a pipeline fresh until `stop` is set.

    Args, raises: as of `drain`.
        standby: while another process runs the pipeline, wait, and go on in its place as soon as it is gone.
    """
    with ExitStack() as entered:
        watching = entered.enter_context(observers(settings, name))
        found = _when_free(entered, settings, name, stop) if standby else None
        if standby and found is None:
            return RunReport(name, 0, 0.0, ())
        stream, began = found or entered.enter_context(opened(settings, name, None))
        entered.enter_context(watching.of(stream))
        stream.watch = watch or stream.watch
        published = publishing(settings, stream.definitions, _logged, drained=False)
        with published, _heartbeat(stream, "continuous", began, watching), _typed_errors():
            stream.follow(stop)
            stream.end(soon=True)
        return _finish(stream, began)


def _when_free(entered: ExitStack, settings: Settings, name: str, stop: Event) -> tuple[PipelineStream, float] | None:
    """Open the pipeline as soon as no other process runs it; None when `stop` is set before."""
    _rehearse(settings, name)
    told = ""
    while not stop.is_set():
        try:
            return entered.enter_context(opened(settings, name, None))
        except WriterBusy as busy:
            if busy.message != told:
                told = busy.message
                log.warning("standby: %s; this one goes on in its place", told)
            stop.wait(_LOOKS_SECONDS)
    return None


def _rehearse(settings: Settings, name: str) -> None:
    """Load what a run needs, plan its views and open an engine: what is done now is not done while events wait.

    Measured: from the free lock to the first epoch a run takes 2.7 processor seconds without it, and 0.1 with it.

    Raises:
        PipelineMissing, CorruptState: as `drain`.
    """
    import pandas  # noqa: F401 - pyarrow loads it with the first rows

    import strandline.jobs.ingest.decode
    import strandline.jobs.ivm.refresh.on_duckdb
    import strandline.jobs.run.spark
    import strandline.jobs.run.stream
    import strandline.state_store.row_lanes  # noqa: F401
    from strandline.jobs.ingest.topics import open_log
    from strandline.jobs.run.schedule import maintained

    lake = LakeLayout(settings.lake)
    catalog, definitions = loaded(name, lake)
    maintained(definitions, catalog)
    open_log(settings, lake)
    with duckdb_engine_for(settings) as engine:
        if engine is not None:
            with engine.connection() as connection:
                connection.execute("SELECT 1")


def _logged(done: Published) -> None:
    """Log a publication."""
    log.info("topic '%s': version %d, %d records in %.2f s", done.topic, done.version, done.records, done.seconds)


def _heartbeat(stream: PipelineStream, mode: Mode, began: float, watching: Observers) -> AbstractContextManager[None]:
    return heartbeat(stream, mode, lambda: report_of(stream, began).tables, told=watching.beat)


@contextmanager
def opened(
    settings: Settings, name: str, spark: SparkSession | None, *, in_driver: bool = False
) -> Iterator[tuple[PipelineStream, float]]:
    """The pipeline and its engines under its lock, and the moment of its start (monotonic seconds).

    Args, raises: as `drain`.
    """
    began = time.monotonic()
    lake = LakeLayout(settings.lake)
    loaded(name, lake)  # no lock is made for a pipeline that is not there
    writer = f"{name}/{os.getpid()}-{int(time.time() * 1000):x}"
    with sole_writer(lake, name, writer, settings.storage.lease_seconds) as lock:
        note_all(lake)
        # Read under the lock, which whoever replaces or drops a definition takes too: this is what stands.
        catalog, definitions = loaded(name, lake)
        # Planning needs no session: a definition that cannot run is refused before a JVM starts.
        from strandline.jobs.ivm.compiled import keep_compiled
        from strandline.jobs.run.schedule import maintained

        levels = maintained(definitions, catalog)
        keep_compiled(definitions, catalog)
        with (
            Session(settings, lake, lock, spark) as session,
            duckdb_engine_for(settings, intake=in_driver) as duckdb_engine,
        ):
            from strandline.jobs.functions.python import Library
            from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
            from strandline.jobs.run.stream import PipelineStream

            functions = Library(catalog.functions.values(), settings.functions.modules)
            spread = spread_of(settings, spark)
            context = RunContext(
                SparkSessions(session), lake, writer, functions, duckdb_engine, settings.engine, spread
            )
            stream = PipelineStream(session, context, settings, name, definitions, levels, lock)
            # First of all: no epoch of a former definition comes after the swap that a killed process has planned.
            with _lost_jvm(session):
                stream.take_replacements()
                yield stream, began


def spread_of(settings: Settings, spark: SparkSession | None = None) -> Spread | None:
    """How the run's first refreshes are shared by tasks.

    Args:
        spark: the session that it was given.
    """
    from strandline.jobs.ivm.refresh.context import Spread

    if settings.kernel != "tasks":
        return None
    master = str(spark.sparkContext.master) if spark is not None else settings.spark.master
    standard = SPREAD_ON_A_CLUSTER if local_cores(master) is None else SPREAD_ON_ONE_MACHINE
    fewest = settings.spread_rows or standard
    return Spread(fewest, settings.kernel_memory_mb, settings.arrangements_space)


@contextmanager
def _lost_jvm(session: Session) -> Iterator[None]:
    """An error of the body is that of its JVM, if that has ended: every call fails then, each in words of its own.

    Raises:
        JvmLost: it has.
    """
    try:
        yield
    except Exception as error:
        how = session.ended()
        if how is None:
            raise
        raise JvmLost.of(how) from error


def loaded(pipeline: str, lake: LakeLayout) -> tuple[Catalog, list[Definition]]:
    """The catalog and the pipeline's definitions; drops that were killed are ended first.

    Raises:
        PipelineMissing: no definitions belong to that name.
        ObjectMissing: there is no lake.
        CorruptState: the file of a definition that it needs is broken.
    """
    catalog = Catalog(lake)
    catalog.finish_drops()
    catalog.check_pipeline(pipeline)
    definitions = catalog.pipeline(pipeline)
    if not definitions:
        check_lake(lake)
        missing = UnknownName.among("pipeline", pipeline, catalog.pipelines())
        raise PipelineMissing(missing.message, hint=missing.hint or "register one: strandline apply FILE.sql")
    return catalog, definitions


@contextmanager
def duckdb_engine_for(settings: Settings, *, intake: bool = False) -> Iterator[DuckDBEngine | None]:
    """The DuckDB engine of this process; None when Spark computes everything.

    Args:
        intake: DuckDB takes in micro-batches, whoever computes the views.
    """
    if settings.engine == "spark" and not intake:
        yield None
        return
    from strandline.state_store.arrangements import arrangements_in
    from strandline.state_store.delta.merging import BackgroundMerges
    from strandline.state_store.duckdb.engine import DuckDBEngine

    made = arrangements_in(*settings.arrangements_space)
    with DuckDBEngine(*settings.kernel_size, made, BackgroundMerges()) as duckdb_engine:
        yield duckdb_engine


@contextmanager
def _typed_errors() -> Iterator[None]:
    """An error raised in the query's Python comes back through the JVM as text: give it its type again."""
    from pyspark.errors import StreamingQueryException

    from strandline.jobs.model.errors import revive

    try:
        yield
    except StreamingQueryException as error:
        raise revive(str(error)) from error


def _finish(stream: PipelineStream, began: float) -> RunReport:
    report = _with_early(report_of(stream, began), stream)
    if stream.failures:
        raise ViewsStopped(stream.failures, report)
    return report


def _with_early(report: RunReport, stream: PipelineStream) -> RunReport:
    """The report with the events that looked up a table before it had a row: counted once, when the run ends."""
    made = []
    for table in report.tables:
        early: tuple[EarlyEvents, ...] = ()
        with suppress(StoreError):  # what is broken is among the failures
            early = early_events(stream.lake, stages_of(table.name, stream.levels))
        made.append(replace(table, early=early))
    return replace(report, tables=tuple(made))


def report_of(stream: PipelineStream, began: float) -> RunReport:
    """The report of a run that began at that moment (monotonic seconds)."""
    made = []
    for table in _reported(stream.definitions):
        # A table that is itself broken is among the failures.
        with suppress(StoreError):
            stages = [stage.table for stage in stages_of(table, stream.levels)]
            report = stream.tallies.report(table, stream.lake.table(table), late_in(stream.lake, stages), stages)
            made += [report] if report is not None else []
    seconds = round(time.monotonic() - began, 3)
    held = {table: str(error) for table, error in stream.held.items()}
    return RunReport(stream.pipeline, stream.micro_batches, seconds, tuple(made), held)


def _reported(definitions: Sequence[Definition]) -> list[str]:
    """The tables that a run reports on, in the order in which they are made: inner stages, and rows on which an
    expression of a view fails, are not among them."""
    names: list[str] = []
    for definition in definitions:
        names += (definition.name,) if isinstance(definition, View) else tables.own_tables(definition)
    return names


@dataclass(frozen=True)
class Outlook:
    """The work of a run, by what its definitions are called.

    Attributes:
        waiting: {source: events of its topic that the lake does not hold}.
        views: the views and queries that are kept fresh, in their order.
    """

    pipeline: str
    waiting: dict[str, int]
    views: tuple[str, ...]

    @property
    def events(self) -> int:
        """The events that wait, of all sources."""
        return sum(self.waiting.values())

    def __str__(self) -> str:
        sources = listed([f"{name} ({count:,})" for name, count in self.waiting.items()])
        events = f"{self.events:,} event{'' if self.events == 1 else 's'}"
        lines = [f"pipeline '{self.pipeline}': {events} to take in"]
        lines += [f"  sources: {sources}"] if sources else []
        lines += [f"  views: {listed(self.views)}"] if self.views else []
        return "\n".join(lines)


def outlook(settings: Settings, pipeline: str) -> Outlook:
    """The work that a run of the pipeline would find now.

    Raises:
        PipelineMissing, CorruptState: as `loaded`.
        SourceUnavailable: the brokers do not answer.
        TopicsElsewhere: the settings do not lead to the lake's topics.
    """
    lake = LakeLayout(settings.lake)
    catalog, definitions = loaded(pipeline, lake)
    called = catalog.name_map.of
    sources = [each for each in definitions if isinstance(each, Source)]
    log = open_log(settings, lake)
    return Outlook(
        pipeline,
        {called(source.name): lag(source, lake, log) for source in sources},
        tuple(
            f"into {called(each.target)}" if isinstance(each, InsertQuery) else called(each.name)
            for each in definitions
            if not isinstance(each, Source)
        ),
    )
