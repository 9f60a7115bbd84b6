"""The runs of a pipeline as events of OpenLineage: what it reads, what it writes, and from which columns.

    run of the pipeline          START ───────────────────────────────── COMPLETE, or FAIL
      └─ run of each table          START ── RUNNING ── RUNNING ── … ──  COMPLETE, or FAIL    (its parent is the above)

A table's run begins with its first epoch; a RUNNING event tells what its epochs committed since the one before. Events
wait in a queue of their own and are sent by a thread: a catalog that does not answer costs events, and no run.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version as version_of
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    JobFacet,
    RunFacet,
    column_lineage_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    ownership_dataset,
    parent_run,
    processing_engine_run,
    schema_dataset,
    sql_job,
    symlinks_dataset,
)
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
from openlineage.client.uuid import generate_new_uuid

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import column_origins
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Ownership, Source, View
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import KafkaSettings, OpenLineageSettings
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.jobs.run.stream import PipelineStream, Round
    from strandline.state_store.layout import LakeLayout

log = logging.getLogger("strandline")

PRODUCER: Final = f"urn:strandline:{version_of('strandline')}"
"""Who made an event, as a URI."""
_QUEUED: Final = 1_000
"""Events that wait for a catalog: some megabytes."""
_ENDS_WITHIN_SECONDS: Final = 5.0
"""How long a run that is over waits for the last events to be sent."""


class Sender(Protocol):
    """Where events go."""

    def emit(self, event: RunEvent) -> object:
        """Send one event; whatever it raises is logged."""


class Posted:
    """A queue before a sender, emptied by a thread. A full one drops what comes, and says so once."""

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._queue: Queue[RunEvent | None] = Queue(_QUEUED)
        self._dropped = 0
        self._thread = Thread(target=self._send, name="openlineage", daemon=True)
        self._thread.start()

    def emit(self, event: RunEvent) -> None:
        """Send an event soon."""
        try:
            self._queue.put_nowait(event)
        except Full:
            self._dropped += 1
            if self._dropped == 1:
                log.warning("OpenLineage: %d events wait, further ones are dropped", _QUEUED)

    def close(self) -> None:
        """Send what waits, as far as that takes no longer than a run may take to end."""
        try:
            self._queue.put(None, timeout=_ENDS_WITHIN_SECONDS)
        except Full:
            return
        self._thread.join(_ENDS_WITHIN_SECONDS)

    def _send(self) -> None:
        while (event := self._queue.get()) is not None:
            try:
                self._sender.emit(event)
            except Exception as fault:  # whatever a library and a network come to
                # Its text may have the address, and that a password.
                log.warning("OpenLineage: an event was not taken: %s", type(fault).__name__)


@dataclass
class _Told:
    """What is known of one table's run.

    Attributes:
        at: when it was told last, in seconds since the epoch.
        rows: inserted since.
    """

    run: str
    at: float = 0.0
    rows: int = 0
    vector: dict[str, int] = field(default_factory=dict)
    version: int = 0


class LineageEvents:
    """Observes the runs of one pipeline, and tells OpenLineage of them.

    Args:
        seconds: at least so long between two events of a table.
    """

    def __init__(self, pipeline: str, namespace: str, seconds: float, sender: Sender) -> None:
        self._pipeline, self._namespace, self._seconds, self._sender = pipeline, namespace, seconds, sender
        self._stream: PipelineStream | None = None
        self._run = ""
        self._told: dict[str, _Told] = {}

    def begun(self, stream: PipelineStream) -> None:
        """The run begins."""
        self._stream, self._run, self._told = stream, str(generate_new_uuid()), {}
        self._emit(RunState.START, self._run, self._pipeline, (), ())

    def beat(self, beat: Heartbeat) -> None:
        """Do nothing: rounds tell what is committed."""

    def round(self, done: Round) -> None:
        """Tell what a round has committed."""
        for commit in done.taken:
            if not commit.dead_letters:
                self._committed(commit.table, commit.version, commit.rows, {}, done.began)
        for stage in done.refreshed.stages:
            if stage.version is not None:
                self._committed(stage.table, stage.version, stage.inserted, stage.to_vector, done.began)

    def ended(self, error: BaseException | None) -> None:
        """The run is over."""
        state = RunState.COMPLETE if error is None else RunState.FAIL
        for table, told in self._told.items():
            self._table(state, table, told, error)
        self._emit(state, self._run, self._pipeline, (), (), error=error)
        self._stream = None

    def _committed(self, table: str, version: int, rows: int, vector: Mapping[str, int], at: float) -> None:
        if self._definition(table) is None:
            return  # an inner stage: part of how a view is made, no data set of anybody's
        told = self._told.get(table)
        if told is None:
            told = self._told[table] = _Told(str(generate_new_uuid()))
            self._table(RunState.START, table, told, None)
        told.version, told.rows = version, told.rows + rows
        told.vector |= vector
        if at - told.at >= self._seconds:
            self._table(RunState.RUNNING, table, told, None)
            told.at, told.rows = at, 0

    def _table(self, state: RunState, table: str, told: _Told, error: BaseException | None) -> None:
        definition = self._definition(table)
        if definition is None or self._stream is None:
            return
        datasets = _Datasets(self._stream)
        inputs = datasets.read_by(definition, table, told.vector)
        output = datasets.written(definition, table, told)
        self._emit(state, told.run, f"{self._pipeline}.{table}", inputs, (output,), definition.sql, error)

    def _definition(self, table: str) -> Definition | None:
        """The source, view or query into a stream that a table's rows are of."""
        for each in self._stream.definitions if self._stream is not None else ():
            if isinstance(each, InsertQuery):
                continue
            if table in (each.name, tables.event_log(each) if isinstance(each, Source) else each.name):
                return each
        return None

    def _emit(
        self,
        state: RunState,
        run: str,
        job: str,
        inputs: tuple[InputDataset, ...],
        outputs: tuple[OutputDataset, ...],
        sql: str = "",
        error: BaseException | None = None,
    ) -> None:
        about: dict[str, RunFacet] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version_of("strandline"), "strandline", producer=PRODUCER
            )
        }
        if run != self._run:
            parent = parent_run.Job(self._namespace, self._pipeline)
            about["parent"] = parent_run.ParentRunFacet(parent_run.Run(self._run), parent, producer=PRODUCER)
        if error is not None:
            about["errorMessage"] = error_message_run.ErrorMessageRunFacet(str(error), "SQL", producer=PRODUCER)
        of_job: dict[str, JobFacet] = {
            "jobType": job_type_job.JobTypeJobFacet(
                "STREAMING", "STRANDLINE", "TABLE" if sql else "PIPELINE", producer=PRODUCER
            )
        }
        if sql:
            of_job["sql"] = sql_job.SQLJobFacet(sql, producer=PRODUCER)
        self._sender.emit(
            RunEvent(
                eventTime=datetime.now(UTC).isoformat(),
                producer=PRODUCER,
                run=Run(run, about),
                job=Job(self._namespace, job, of_job),
                eventType=state,
                inputs=list(inputs),
                outputs=list(outputs),
            )
        )


class _Datasets:
    """The data sets of a pipeline: topics and tables, by the names that OpenLineage gives to Kafka's topics, to files
    and to objects."""

    def __init__(self, stream: PipelineStream) -> None:
        self._stream = stream
        self._lake: LakeLayout = stream.lake
        self._kafka: KafkaSettings = stream.settings.kafka

    def read_by(self, definition: Definition, table: str, vector: Mapping[str, int]) -> tuple[InputDataset, ...]:
        """What a table's rows are made of, each with the version that they reflect."""
        if isinstance(definition, Source) and table == tables.event_log(definition):
            namespace, name = self._topic(definition)
            return (InputDataset(namespace, name),)
        found = []
        for each in self._inputs(definition):
            namespace, name = self._table(each)
            facets: dict[str, DatasetFacet] = {}
            if each in vector:
                facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
                    str(vector[each]), producer=PRODUCER
                )
            found.append(InputDataset(namespace, name, facets=facets))
        return tuple(found)

    def _inputs(self, definition: Definition) -> tuple[str, ...]:
        fed = (
            each
            for each in self._stream.definitions
            if isinstance(each, InsertQuery) and each.target == definition.name
        )
        own = (tables.event_log(definition),) if isinstance(definition, Source) else definition.inputs
        others = (name for each in fed for name in each.inputs)
        return tuple(dict.fromkeys(name for name in (*own, *others) if name != definition.name))

    def written(self, definition: Definition, table: str, told: _Told) -> OutputDataset:
        """A table, with its columns, where they come from, and what was committed since the last event."""
        assert not isinstance(definition, InsertQuery)
        namespace, name = self._table(table)
        columns = [schema_dataset.SchemaDatasetFacetFields(each.name, str(each.type)) for each in definition.columns]
        identifier = symlinks_dataset.Identifier(str(self._lake.root), table, "TABLE")
        facets: dict[str, DatasetFacet] = {
            "schema": schema_dataset.SchemaDatasetFacet(columns, producer=PRODUCER),
            "symlinks": symlinks_dataset.SymlinksDatasetFacet([identifier], producer=PRODUCER),
            "version": dataset_version_dataset.DatasetVersionDatasetFacet(str(told.version), producer=PRODUCER),
        }
        owners = Ownership.read(definition.options).owners
        if owners:
            named = [ownership_dataset.Owner(each) for each in owners]
            facets["ownership"] = ownership_dataset.OwnershipDatasetFacet(named, producer=PRODUCER)
        origins = self._origins(definition, table)
        if origins:
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(origins, producer=PRODUCER)
        counted = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=told.rows, producer=PRODUCER
        )
        return OutputDataset(namespace, name, facets=facets, outputFacets={"outputStatistics": counted})

    def _origins(self, definition: Source | View, table: str) -> dict[str, column_lineage_dataset.Fields]:
        fields: dict[str, list[column_lineage_dataset.InputField]] = {}
        if isinstance(definition, View):
            try:
                made = column_origins(compiled(definition, Catalog(self._lake)))
            except StrandlineError:  # it was dropped or replaced meanwhile
                return {}
            for column, found in made.items():
                fields[column] = [self._field(origin.input, origin.column) for origin in found]
        elif table != tables.event_log(definition):
            log_table = tables.event_log(definition)
            fields = {each.name: [self._field(log_table, each.name)] for each in definition.columns}
        return {column: column_lineage_dataset.Fields(found) for column, found in fields.items() if found}

    def _field(self, table: str, column: str) -> column_lineage_dataset.InputField:
        namespace, name = self._table(table)
        return column_lineage_dataset.InputField(namespace, name, column)

    def _topic(self, source: Source) -> tuple[str, str]:
        if self._kafka.bootstrap_servers is not None:
            return f"kafka://{self._kafka.bootstrap_servers.partition(',')[0]}", source.topic
        return _named(str(self._lake.topic(source.topic)))

    def _table(self, table: str) -> tuple[str, str]:
        return _named(str(self._lake.table(table)))


def _named(place: str) -> tuple[str, str]:
    """(namespace, name) of a folder: `file` and its path, or `s3://bucket` and the key."""
    if "://" not in place:
        return "file", str(Path(place))
    parts = urlsplit(place)
    return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")


@contextmanager
def lineage_events(settings: OpenLineageSettings, pipeline: str) -> Iterator[LineageEvents]:
    """Send events to the catalog of the settings while the body runs."""
    assert settings.url is not None
    config = HttpConfig(settings.url)
    if settings.api_key is not None:
        config.auth = ApiKeyTokenProvider({"apiKey": settings.api_key.get_secret_value()})
    posted = Posted(HttpTransport(config))
    try:
        yield LineageEvents(pipeline, settings.namespace, settings.seconds, posted)
    finally:
        posted.close()
