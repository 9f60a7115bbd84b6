"""A micro-batch of Spark's query, taken in where its size says: by the driver when it is small, else in tasks; or, as
it was without either, by the session itself: workers read and decode, and write the rows of the event logs.

The batch is kept while it lasts: the topics are read once, whatever is made of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest import in_tasks
from strandline.jobs.ingest.event_logs import Ingested, Intake, Target, dead_letter_spec, log_spec
from strandline.jobs.ingest.offsets import ranges_of
from strandline.jobs.model.relation import ROW_HASH, TOMBSTONE
from strandline.state_store.spark.table import SparkTable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

    from strandline.jobs.ingest.in_driver import SmallBatches
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.tablespec import TableSpec


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
    return in_tasks.ingest(rows.sparkSession, small.reading, small.ranges(bounds), targets, small.duckdb_engine)


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
                commits += SparkIntake(target, micro_batch).take(ranges[target.source.name])
        return commits
    finally:
        micro_batch.unpersist()


class SparkIntake(Intake):
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
