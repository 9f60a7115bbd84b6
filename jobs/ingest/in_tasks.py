"""A micro-batch of Spark's query, taken in where its size says: by the driver when it is small, else in tasks.

A task reads a range, decodes it and writes its rows to files; the driver makes the one commit that names them.

    driver   heads ── ranges ──────────────────────────────> commit
    task                └─> topic ── columns ── files ──┘  the rows stay where they are, what was counted comes back

No row passes through the JVM. A task that runs twice leaves files that nothing names, which clean-up removes. Broken
records come back to the driver, which writes them: they are few, or a micro-batch is all they are (see
`ingest.max_bytes_per_epoch`).

Where the query has no offsets to plan by, the session itself takes it in: workers read and decode, and write the rows
of the event logs. The batch is kept while it lasts: the topics are read once, whatever is made of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.ingest.decode import decoded_columns
from strandline.jobs.ingest.event_logs import Ingested, Intake, Target, dead_letter_spec, log_spec
from strandline.jobs.ingest.in_driver import DriverIntake, event_columns, range_of
from strandline.jobs.ingest.offsets import ranges_of
from strandline.jobs.ingest.source import IntakeRange, TopicRange, TopicsReader
from strandline.jobs.model.tables import ROW_HASH, TOMBSTONE
from strandline.state_store.delta.data_files import StagedParts
from strandline.state_store.duckdb.table import BATCH_ROWS, WrittenRows, write_rows
from strandline.state_store.errors import VectorMismatch
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import arrow_schema, schema_json
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from duckdb import DuckDBPyConnection as Connection
    from pyspark.sql import Column, DataFrame, SparkSession

    from strandline.jobs.ingest.in_driver import SmallBatches
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.ingest.offsets import Range
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from strandline.state_store.tablespec import TableSpec


_ERROR: Final = "_error"


@dataclass(frozen=True)
class RangeTask:
    """What a task is to do: write the rows of one range for one source.

    Attributes:
        reading: of that source alone.
        epoch: of the commit that is to name the files.
        first: the offset from which on records are new to the event log.
        before: {partition: stream time} that its rows do not go below, in microseconds.
    """

    reading: IntakeRange
    range: TopicRange
    epoch: int
    first: int
    before: Mapping[str, int]

    @property
    def key(self) -> tuple[object, ...]:
        """Two tasks that have the same one write the same rows."""
        return self.reading.sources, self.range.value, self.epoch, self.first, self.before


@dataclass(frozen=True)
class Standing:
    """Where an event log stands.

    Attributes:
        epoch: of its last commit.
        offsets, times: {partition: next offset}, and {partition: stream time} in microseconds.
    """

    epoch: int
    offsets: Mapping[str, int]
    times: Mapping[str, int]

    def after(self, ranges: Sequence[Range]) -> Standing:
        """Where it will stand when what these ranges hold is committed: see `Intake.take`."""
        offsets, times = dict(self.offsets), dict(self.times)
        for each in ranges:
            offsets[each.partition] = max(each.next, offsets.get(each.partition, 0))
            if each.running_time is not None:
                times[each.partition] = max(each.running_time, times.get(each.partition, each.running_time))
        return Standing(self.epoch + (offsets != self.offsets), offsets, times)


@dataclass
class RangeDone:
    """What became of a range: the files of its good records, its broken ones, and its range row."""

    source: str
    written: WrittenRows | None = None
    letters: list[pa.RecordBatch] = field(default_factory=list)
    ranges: list[Range] = field(default_factory=list)


def ingest_in_tasks(
    spark: SparkSession,
    reading: IntakeRange,
    ranges: Sequence[TopicRange],
    targets: Sequence[Target],
    duckdb_engine: DuckDBEngine,
) -> list[Ingested]:
    """Append the records of a micro-batch to the event logs and dead letters of their sources.

    Returns:
        the commits made, in order; none when there is nothing new.

    Raises:
        VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
    """
    commits: list[Ingested] = []
    with duckdb_engine.connection() as connection:
        intakes = [TaskIntake(target, duckdb_engine, connection) for target in targets]
        tasks = [task for intake in intakes for task in intake.tasks(reading, ranges)]
        done = spark.sparkContext.parallelize(tasks, len(tasks)).map(write_range).collect() if tasks else []
        for intake in intakes:
            commits += intake.take_done([each for each in done if each.source == intake.name])
    return commits


class TaskIntake(DriverIntake):
    """One source's part of a micro-batch, which tasks write."""

    def __init__(self, target: Target, duckdb_engine: DuckDBEngine, connection: Connection) -> None:
        super().__init__(target, [], duckdb_engine, connection)
        self._stands: Standing | None = None
        """When the tasks were told what is new."""
        self._written: list[WrittenRows] = []

    @property
    def name(self) -> str:
        return self._source.name

    def tasks(self, reading: IntakeRange, ranges: Sequence[TopicRange]) -> list[RangeTask]:
        """A task for each range of the source's topic, as the event log stands now."""
        if not any(each.topic == self._source.topic for each in ranges):
            return []
        record = self._ensured(log_spec(self._source)).record
        topic = self._source.topic
        self._stands = Standing(record.epoch, record.offsets.get(topic, {}), record.stream_times.get(topic, {}))
        return self._tasks(reading, ranges, self._stands)

    def tasks_after(
        self, done: Sequence[RangeDone], reading: IntakeRange, ranges: Sequence[TopicRange]
    ) -> list[RangeTask]:
        """The same, as it will stand when what is done is committed."""
        if self._stands is None:
            return []
        return self._tasks(reading, ranges, self._stands.after([found for each in done for found in each.ranges]))

    def _tasks(self, reading: IntakeRange, ranges: Sequence[TopicRange], stands: Standing) -> list[RangeTask]:
        alone = replace(reading, sources=(self._source,))
        return [
            RangeTask(alone, each, stands.epoch + 1, stands.offsets.get(str(each.partition), 0), dict(stands.times))
            for each in ranges
            if each.topic == self._source.topic
        ]

    def take_done(self, done: Sequence[RangeDone]) -> list[Ingested]:
        """Commit what tasks have written; as `take`."""
        if not done:
            return []
        letters = [batch for each in done for batch in each.letters]
        self._rows = pa.Table.from_batches(letters) if letters else None
        self._written = [each.written for each in done if each.written is not None]
        return self.take([found for each in done for found in each.ranges])

    def _append_events(self, first: Mapping[str, int], before: Mapping[str, int], record: CommitRecord) -> Head:
        """Raises VectorMismatch when the log is not as it was when the tasks were told what is new to it."""
        if self._stands is None or record.epoch != self._stands.epoch + 1:
            StagedParts(tuple(part.staged for part in self._written)).discard()
            raise VectorMismatch(
                sentence("'{}' was written to while its records were read", Name(self._source.name)),
                hint="another process writes to it; its records are read again",
            )
        return self._table(log_spec(self._source)).append_written(self._written, record)


def write_range(task: RangeTask, log: Log | None = None, check: Callable[[], None] | None = None) -> RangeDone:
    """A task, in a worker or in a thread.

    Args:
        log: what is read from; one of its own without it.
        check: is asked after each run of records; what it raises ends the task, which leaves no file.
    """
    (source,) = task.reading.sources
    schema = arrow_schema(schema_json(decoded_columns([source])))
    done = RangeDone(source.name)
    spec = log_spec(source)
    path = task.reading.lake.table(spec.name)
    batches = TopicsReader(task.reading, schema).read(task.range, log)
    done.written = write_rows(_groups(_good_rows(_checked(batches, check), task, done)), spec, path, task.epoch)
    return done


def _checked(batches: Iterator[pa.RecordBatch], check: Callable[[], None] | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if check is not None:
            check()
        yield batch


def _good_rows(batches: Iterator[pa.RecordBatch], task: RangeTask, done: RangeDone) -> Iterator[pa.Table]:
    """The rows for the event log; what else the range holds is noted in `done`."""
    (source,) = task.reading.sources
    for batch in batches:
        if batch.num_rows and batch["_range"][0].is_valid:
            done.ranges.append(range_of(batch))
            continue
        errors = batch[_ERROR]
        if errors.null_count < len(errors):
            done.letters.append(batch.filter(pc.is_valid(errors)))
            batch = batch.filter(pc.is_null(errors))
        if batch.num_rows and batch["_offset"][0].as_py() < task.first:
            batch = batch.filter(pc.greater_equal(batch["_offset"], task.first))
        if batch.num_rows:
            yield event_columns(pa.Table.from_batches([batch]), source, 0, task.before)


def _groups(rows: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The rows in batches that are large enough for a row group."""
    waiting: list[pa.Table] = []
    for each in rows:
        waiting.append(each)
        if sum(table.num_rows for table in waiting) >= BATCH_ROWS:
            yield from _joined(waiting)
            waiting = []
    if waiting:
        yield from _joined(waiting)


def _joined(rows: Sequence[pa.Table]) -> Sequence[pa.RecordBatch]:
    joined: Sequence[pa.RecordBatch] = pa.concat_tables(rows).combine_chunks().to_batches()
    return joined


def ingest(rows: DataFrame, number: int, small: SmallBatches | None, targets: Sequence[Target]) -> list[Ingested]:
    """Append a micro-batch to the event logs and dead letters of its sources; the commits made, in order.

    Args:
        number: of the micro-batch in its query.
        small: those of the query; None when Spark takes in every one.

    Raises:
        VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
    """
    bounds = small.bounds(number) if small is not None else None
    if small is None or bounds is None:
        return _ingest_by_session(rows, targets)
    if small.is_small(bounds):
        return small.ingest(bounds, targets)
    return ingest_in_tasks(rows.sparkSession, small.reading, small.ranges(bounds), targets, small.duckdb_engine)


def _ingest_by_session(micro_batch: DataFrame, targets: Sequence[Target]) -> list[Ingested]:
    """Append one micro-batch of `Reading.frame` to the event logs and dead letters of its sources.

    Returns:
        the commits made, in order; none when the micro-batch holds nothing new.

    Raises:
        VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
    """
    from pyspark.storagelevel import StorageLevel

    micro_batch = micro_batch.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        ranges = ranges_of(micro_batch)
        commits: list[Ingested] = []
        for target in targets:
            if target.source.name in ranges:
                commits += _SparkIntake(target, micro_batch).take(ranges[target.source.name])
        return commits
    finally:
        micro_batch.unpersist()


class _SparkIntake(Intake):
    """One source's part of a micro-batch, as a frame."""

    def __init__(self, target: Target, micro_batch: DataFrame) -> None:
        super().__init__(target)
        self._rows = micro_batch.where(f"_source = '{_quoted(target.source.name)}' AND _range IS NULL")

    def _table(self, spec: TableSpec) -> SparkTable:
        return SparkTable(self._rows.sparkSession, self._target.lake.table(spec.name), spec)

    def _append_events(self, first: Mapping[str, int], before: Mapping[str, int], record: CommitRecord) -> Head:
        from pyspark.sql import functions as f

        running = f.unix_micros("_running_time")
        if before:
            running = f.greatest(running, _per_partition(before))
        struct = f.col(f"s{self._target.place}")
        visible = [struct.getField(column.name).alias(column.name) for column in self._source.columns]
        meta: list[Column] = [f.col("_partition"), f.col("_offset"), f.col("_timestamp")]
        meta += [f.timestamp_micros(running).alias("_stream_time"), f.col("_headers")]
        if self._source.kind == "table":
            meta.append(f.col(TOMBSTONE))
        if self._source.bag:
            meta.append(f.col(ROW_HASH))
        rows = _from(self._rows.where(f.col("_error").isNull()), first).select(*visible, *meta)
        return self._table(log_spec(self._source)).append(rows, record)

    def _append_dead_letters(self, first: Mapping[str, int], record: CommitRecord) -> Head:
        from pyspark.sql import functions as f

        stored = [f.col(name) for name in ("_partition", "_offset", "_timestamp", "_key", "_value", "_headers")]
        columns = [f.lit(self._source.topic).alias("_topic"), *stored, f.col("_error").alias("reason")]
        rows = _from(self._rows.where(f.col("_error").isNotNull()), first).select(*columns)
        return self._table(dead_letter_spec(self._source)).append(rows, record)


def _from(rows: DataFrame, first: Mapping[str, int]) -> DataFrame:
    """The rows from these offsets on; all of them without any."""
    from pyspark.sql import functions as f

    return rows.where(f.col("_offset") >= _per_partition(first, otherwise=0)) if first else rows


def _per_partition(values: Mapping[str, int], otherwise: int | None = None) -> Column:
    """The value of the row's `_partition`; `otherwise` for a partition without one."""
    from pyspark.sql import functions as f

    chosen: Any = f
    for partition, value in values.items():
        chosen = chosen.when(f.col("_partition") == int(partition), f.lit(value).cast("bigint"))
    return f.lit(otherwise).cast("bigint") if chosen is f else chosen.otherwise(f.lit(otherwise).cast("bigint"))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
