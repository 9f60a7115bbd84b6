"""What a pipeline measures, for Prometheus, and the port on which it answers: `/metrics`, `/health` and `/ready`.

Each run has a registry of its own, as each server has. Counters count from the start of the run; gauges are as of the
last heartbeat, so that a scrape asks neither brokers nor the lake. Names of tables are those that they are stored
under, which a rename does not change.
"""

from __future__ import annotations

import errno
import logging
import time
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from strandline.jobs.ingest.topics import MOST_PARTITIONS, open_log, waiting_since
from strandline.jobs.model import tables
from strandline.jobs.model.errors import SourceError
from strandline.jobs.model.report import LEAST_RUN_SECONDS
from strandline.jobs.run.heartbeat import SILENT_SECONDS
from strandline.state_store.delta import reader
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StoreError
from strandline.state_store.storage_verbs import REQUESTS, Requests, by_verb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.core import Metric

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.settings import MetricsSettings
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.jobs.run.stream import PipelineStream, Round

log = logging.getLogger("strandline")

# From an epoch of a few events by DuckDB to the first computation of a view over a long history.
_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class PipelineMetrics:
    """Observes the runs of one pipeline, and collects what `/metrics` shows of them."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._lock = Lock()
        self._stream: PipelineStream | None = None
        self._topics: Log | None = None
        self._beat: Heartbeat | None = None
        self._beat_at: float | None = None
        self._waiting_since: dict[str, int | None] = {}
        self._stages: dict[str, tuple[int, int]] = {}
        self._by_workers = Requests()
        self._micro_batches = self._histogram("micro_batch", "From the first record read to the last view committed")
        self._steps = self._histogram(
            "step",
            "Time of one step: `ingest` of a micro-batch; `plan` and `maintain` of one table",
            "step",
        )
        self._epochs = self._counter("epochs", "Commits that change a table, or say that nothing in it changes", "mode")
        self._inserted = self._counter("rows_inserted", "Rows inserted into a table")
        self._deleted = self._counter("rows_deleted", "Rows deleted from a table; a changed row counts as both")
        self._spent = self._counter("refresh_seconds", "Time spent on refreshes of a table")
        text = "Requests to an object store by refreshes of a table; those of the JVM are not among them"
        self._asked = self._counter("refresh_requests", text, "verb")
        self._letters = self._counter("dead_letters", "Rows and records that were kept aside")
        self.registry.register(self)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        names = ("pipeline", *labels)
        return Histogram(f"strandline_{name}_seconds", text, names, buckets=_BUCKETS, registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        names = ("pipeline", "table", *labels)
        return Counter(f"strandline_{name}_total", text, names, registry=self.registry)

    # What an observer is told.

    def begun(self, stream: PipelineStream) -> None:
        """The run has its lock, and begins."""
        self._topics = open_log(stream.settings, stream.lake)
        self._stream = stream

    def ended(self, error: BaseException | None) -> None:
        """The run is over."""
        del error
        self._stream = None

    def round(self, done: Round) -> None:
        """Count a round."""
        if done.micro_batch is not None:
            self._micro_batches.labels(self._pipeline).observe(done.seconds)
            self._steps.labels(self._pipeline, "ingest").observe(done.ingest_seconds)
        for commit in done.taken:
            self._committed(commit.table, "ingest", commit.rows, 0)
        for stage in done.refreshed.stages:
            self._spent.labels(self._pipeline, stage.table).inc(stage.seconds)
            for verb, number in by_verb(stage.requests).items():
                self._asked.labels(self._pipeline, stage.table, verb).inc(number)
            self._steps.labels(self._pipeline, "plan").observe(stage.planned_seconds)
            self._steps.labels(self._pipeline, "maintain").observe(stage.seconds - stage.planned_seconds)
            if stage.version is not None:
                self._committed(stage.table, stage.mode, stage.inserted, stage.deleted)
        with self._lock:
            self._by_workers.update(done.refreshed.requests)

    def _committed(self, table: str, mode: str, inserted: int, deleted: int) -> None:
        self._epochs.labels(self._pipeline, table, mode).inc()
        self._inserted.labels(self._pipeline, table).inc(inserted)
        self._deleted.labels(self._pipeline, table).inc(deleted)
        failed_in = tables.beside_dead_letters(table)
        if failed_in is not None:
            self._letters.labels(self._pipeline, failed_in).inc(inserted)

    def beat(self, beat: Heartbeat) -> None:
        """Note where the run stands."""
        stream, topics = self._stream, self._topics
        self._beat, self._beat_at = beat, time.monotonic()
        if stream is not None and topics is not None and beat.error is None:
            for source in stream.sources:
                with suppress(SourceError):  # the lag is missing then, and the run says why
                    since = waiting_since(source, stream.lake, topics, MOST_PARTITIONS)
                    self._waiting_since[source.topic] = since
            self._stages = dict(_measured_stages(stream, {each.name for each in beat.tables}))

    # What is asked.

    @property
    def is_silent(self) -> bool:
        """True if the run has the lock, and gives no heartbeat any more."""
        beat_at = self._beat_at
        return self._stream is not None and beat_at is not None and time.monotonic() - beat_at > SILENT_SECONDS

    @property
    def readiness(self) -> str:
        """`ready` once all views were refreshed; `standby` before the run has the lock; else what it is at."""
        stream = self._stream
        if stream is None:
            return "standby" if self._beat is None else "ended"
        return "ready" if stream.refreshed is not None else "starting"

    def collect(self) -> Iterator[Metric]:
        """The gauges, as of the last heartbeat, and the requests so far."""
        requests = _Family(
            CounterMetricFamily,
            "strandline_storage_requests",
            "Requests to object stores by the driver and by the workers that refresh; those of the JVM are not among "
            "them",
            ("pipeline", "verb", "outcome"),
        )
        with self._lock:
            asked = REQUESTS.so_far() + self._by_workers
        for (verb, outcome), count in asked.items():
            requests.add(count, self._pipeline, verb, outcome)
        yield requests.family
        yield self._one("active", "1 while the run has the pipeline's lock", float(self._stream is not None))
        beat = self._beat
        if beat is not None:
            yield from self._standing(beat)

    def _standing(self, beat: Heartbeat) -> Iterator[Metric]:
        if beat.refreshed is not None:
            text = "What was committed before this moment, every view that goes on reflects"
            yield self._one("refreshed_timestamp_seconds", text, beat.refreshed / 1000)
        busy = 0.0 if beat.busy_since is None else max(now_ms() - beat.busy_since, 0) / 1000
        yield self._one("busy_seconds", "For how long the micro-batch at work has been; 0 when none is", busy)
        yield from self._lags(beat)
        stages = (*((name, *sizes) for name, sizes in self._stages.items()),)
        measured = (*((each.name, each.rows, each.bytes) for each in beat.tables), *stages)
        rows = self._family("table_rows", "Visible rows", "table")
        size = self._family("table_bytes", "Bytes of the data files: `stage` is state, no view's own", "table", "kind")
        for name, count, length in measured:
            rows.add(count, self._pipeline, name)
            size.add(length, self._pipeline, name, "stage" if name in self._stages else _kind(name))
        version = self._family("table_version", "Newest version", "table")
        stopped = self._family("table_stopped", "1 after an error: it is not refreshed any more", "table")
        for each in beat.tables:
            version.add(each.version, self._pipeline, each.name)
        for name in dict.fromkeys((*(each.name for each in beat.tables), *beat.failures)):
            stopped.add(float(name in beat.failures), self._pipeline, name)
        yield from (each.family for each in (rows, size, version, stopped, self._costs(beat)))
        stream = self._stream
        if stream is not None:
            yield self._held(stream)

    def _costs(self, beat: Heartbeat) -> _Family:
        """What refreshes cost a day at each target, once the run says something of a day."""
        text = "Seconds a day that refreshes of a view cost at a FRESHNESS in seconds; `none`: without"
        costs = self._family("refresh_seconds_a_day", text, "table", "freshness")
        lasted = (beat.at - beat.started) / 1000
        for each in beat.tables if lasted >= LEAST_RUN_SECONDS else ():
            of_day = each.costs.seconds_a_day(lasted, beat.micro_batches) if each.costs is not None else {}
            for target, seconds in of_day.items():
                costs.add(seconds, self._pipeline, each.name, target)
        return costs

    def _held(self, stream: PipelineStream) -> Metric:
        held = self._family("table_held", "1 while what reads it waits for a blocking expectation", "table")
        for item in (each for level in stream.levels for each in level if each.blocking):
            held.add(float(item.target in stream.held), self._pipeline, item.target)
        return held.family

    def _lags(self, beat: Heartbeat) -> Iterator[Metric]:
        records = self._family("lag_records", "Records of a topic that the lake does not hold", "topic")
        seconds = self._family("lag_seconds", "For how long the oldest of them has waited, by its own time", "topic")
        for topic, waiting in beat.lag.items():
            if waiting is not None:
                since = self._waiting_since.get(topic)
                records.add(waiting, self._pipeline, topic)
                seconds.add(0.0 if since is None else max(now_ms() - since, 0) / 1000, self._pipeline, topic)
        yield records.family
        yield seconds.family

    def _one(self, name: str, text: str, value: float) -> Metric:
        family = self._family(name, text)
        family.add(value, self._pipeline)
        return family.family

    def _family(self, name: str, text: str, *labels: str) -> _Family:
        return _Family(GaugeMetricFamily, f"strandline_{name}", text, ("pipeline", *labels))


class _Family:
    """A metric family that is filled label by label."""

    def __init__(
        self,
        made: type[GaugeMetricFamily] | type[CounterMetricFamily],
        name: str,
        text: str,
        labels: tuple[str, ...],
    ) -> None:
        self.family = made(name, text, labels=labels)

    def add(self, value: float, *labels: str) -> None:
        self.family.add_metric(labels, value)


def _kind(table: str) -> str:
    return "table" if tables.beside_dead_letters(table) is None else "dead_letters"


def _measured_stages(stream: PipelineStream, known: set[str]) -> Iterator[tuple[str, tuple[int, int]]]:
    """(table, (rows, bytes)) of the inner stages, and of the dead letters of views."""
    units = [each for level in stream.levels for each in level]
    names = dict.fromkeys(
        name for each in units for stage in each.stages for name in (stage.table, each.letters(stage))
    )
    for name in names:
        if name not in known:
            with suppress(StoreError):  # what is broken is among the failures
                head = reader.head(stream.lake.table(name))
                if head is not None:
                    yield name, (head.record.rows, reader.size_bytes(stream.lake.table(name), head.version))


SHARED_BY: Final = 16
"""So many runs of one machine may have the same port in their settings."""

# The port: three paths, and nothing else. It has no password, so it is of this machine unless the settings say more.


class _Endpoint(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], metrics: PipelineMetrics) -> None:
        super().__init__(address, _Handler)
        self.metrics = metrics


class _Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: _Endpoint
    timeout = 10  # a client that says nothing must not keep its thread

    def do_GET(self) -> None:
        """Answer a GET."""
        metrics = self.server.metrics
        match self.path.partition("?")[0]:
            case "/metrics":
                self._answer(200, generate_latest(metrics.registry), CONTENT_TYPE_LATEST)
            case "/health":
                silent = metrics.is_silent
                self._answer(503 if silent else 200, b"no heartbeat\n" if silent else b"up\n")
            case "/ready":
                readiness = metrics.readiness
                # A standby that waits does all that it is there for.
                self._answer(200 if readiness in ("ready", "standby") else 503, f"{readiness}\n".encode())
            case _:
                self._answer(404, b"there are /metrics, /health and /ready\n")

    def _answer(self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: a scrape is no news."""


@contextmanager
def answering(settings: MetricsSettings, metrics: PipelineMetrics) -> Iterator[int | None]:
    """Answer while the body runs: on the port of the settings, or where another run has that, on the next that is free.

    Yields:
        the port; None where none of them can be had: a run is not refused for what only shows it.
    """
    assert settings.port is not None
    endpoint = _endpoint(settings.host, settings.port, metrics)
    if endpoint is None:
        yield None
        return
    port = int(endpoint.server_address[1])
    log.info("metrics: http://%s:%d/metrics", settings.host, port)
    thread = Thread(target=endpoint.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield port
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


def _endpoint(host: str, first: int, metrics: PipelineMetrics) -> _Endpoint | None:
    """The endpoint on the first port that is free of `SHARED_BY`; None where none is, which is said in the log."""
    last = min(first + SHARED_BY, 65_536) - 1 if first else 0
    why: OSError | None = None
    for port in range(first, last + 1):
        try:
            return _Endpoint((host, port), metrics)
        except OSError as error:
            why = error
            if error.errno != errno.EADDRINUSE:
                break
        log.info("metrics: '%s:%d' is another process's; trying the next port", host, port)
    log.warning(
        "no metrics: no port of '%s:%d-%d' can be had: %s; set STRANDLINE_METRICS__PORT to one that can",
        *(host, first, last, (why and why.strerror) or why),
    )
    return None
