"""Event logs: one micro-batch of decoded records becomes at most one commit per log, exactly once.

    micro-batch ──> per source: dead letters first, then the event log

Each commit records the next offset of every partition it holds (`record.offsets`). Records below the offsets of a
table's last commit are left out, so a micro-batch may be repeated, or cut differently after a restart, and nothing is
lost or written twice. Dead letters go first: if the process dies in between, the log is behind, the micro-batch is read
again, and the offsets of the dead letters keep them from being written twice. Event log + dead letters = the topic.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from jobs.ingest.offsets import committed_offsets
from jobs.ingest.ranges import ranges_of
from jobs.model import tables
from jobs.model import types as t
from jobs.model.columns import DEAD_LETTER_COLUMNS, META_COLUMNS
from state_store.commits import CommitRecord
from state_store.failpoints import failpoint
from state_store.spark.table import Table
from state_store.tablespec import TableSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from jobs.ingest.ranges import Range
    from jobs.model.definitions import Source
    from state_store.commits import Head
    from state_store.layout import Lake

__all__ = ["Ingested", "committed_offsets", "dead_letter_spec", "ingest", "log_spec"]

log = logging.getLogger("strandline.ingest")


@dataclass(frozen=True)
class Ingested:
    """One commit: `rows` were appended to `table`, which is now at `version`."""

    source: str
    table: str
    version: int
    rows: int
    dead_letters: bool = False


def log_spec(source: Source) -> TableSpec:
    """The event log of a source: visible columns, meta columns and, if the source is a table, `_tombstone`."""
    columns = [(column.name, column.type.spark()) for column in source.columns]
    columns += [(name, sql_type.spark()) for name, sql_type in META_COLUMNS]
    if source.kind == "table":
        columns.append(("_tombstone", t.BOOLEAN.spark()))
    return TableSpec(tables.event_log(source), tuple(columns), "append")


def dead_letter_spec(source: Source) -> TableSpec:
    """The dead letters of a source: its records that could not be decoded, and why."""
    columns = tuple((name, sql_type.spark()) for name, sql_type in DEAD_LETTER_COLUMNS)
    return TableSpec(tables.dead_letters(source.name), columns, "append")


def ingest(
    spark: SparkSession,
    micro_batch: DataFrame,
    sources: Sequence[Source],
    lake: Lake,
    writer: str,
    topic_ids: Mapping[str, str],
) -> list[Ingested]:
    """Append one micro-batch of `source.read_stream` to the event logs and dead letters of `sources`.

    Args:
        spark: the session of the micro-batch (`micro_batch.sparkSession`).
        writer: the writer that the commits name: `pipeline/incarnation`.
        topic_ids: {topic: id} of the topics that the run reads; the commits name it, for the next run to compare.

    Returns:
        the commits made, in order; none when the micro-batch holds nothing new.

    Raises:
        VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
    """
    from pyspark.storagelevel import StorageLevel

    micro_batch = micro_batch.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        ranges = ranges_of(micro_batch)
        open_table = partial(_open, spark, lake=lake, writer=writer)
        commits: list[Ingested] = []
        for place, source in enumerate(sources):
            if source.name in ranges:
                intake = _Intake(micro_batch, place, source, writer, open_table, topic_ids.get(source.topic, ""))
                commits += intake.take(ranges[source.name])
        return commits
    finally:
        micro_batch.unpersist()


class _Intake:
    """The part of one micro-batch that belongs to one source."""

    def __init__(
        self,
        micro_batch: DataFrame,
        place: int,
        source: Source,
        writer: str,
        open_table: Callable[[TableSpec], tuple[Table, Head]],
        topic_id: str,
    ) -> None:
        self._rows = micro_batch.where(f"_source = '{_quoted(source.name)}' AND _range IS NULL")
        self._place = place
        self._source = source
        self._writer = writer
        self._open_table = open_table
        self._topic_id = topic_id
        self._log, self._log_head = self._open_table(log_spec(source))

    def take(self, ranges: Sequence[Range]) -> list[Ingested]:
        committed = self._offsets(self._log_head)
        commits = self._commit_dead_letters(ranges, committed)
        record = self._record(self._log_head, ranges)
        failpoint("before-log-commit")
        if any(r.good is not None and r.good >= committed.get(r.partition, 0) for r in ranges):
            head = self._log.append(self._events(ranges, committed), record)
            commits.append(
                Ingested(self._source.name, tables.event_log(self._source), head.version, head.record.inserted)
            )
        elif any(r.next > committed.get(r.partition, 0) for r in ranges):
            # Broken or aborted records only. The log must not read them again: retention may remove them.
            self._log.advance(record)
        failpoint("after-log-commit")
        return commits

    def _commit_dead_letters(self, ranges: Sequence[Range], committed: dict[str, int]) -> list[Ingested]:
        """Commit the new dead letters of the micro-batch, if there are any."""
        if all(r.broken is None for r in ranges):
            return []
        name, source = tables.dead_letters(self._source.name), self._source.name
        table, before = self._open_table(dead_letter_spec(self._source))
        written = self._offsets(before)
        first = {r.partition: max(committed.get(r.partition, 0), written.get(r.partition, 0)) for r in ranges}
        if all(r.broken is None or r.broken < first[r.partition] for r in ranges):
            return []
        head = table.append(self._dead_letters(ranges, first), self._record(before, ranges))
        log.warning("source '%s': %d records are broken, see table '%s'", source, head.record.inserted, name)
        return [Ingested(source, name, head.version, head.record.inserted, dead_letters=True)]

    def _offsets(self, head: Head) -> dict[str, int]:
        return dict(head.record.offsets.get(self._source.topic, {}))

    def _record(self, head: Head, ranges: Sequence[Range]) -> CommitRecord:
        """The next commit after `head`; offsets and stream times never decrease."""
        topic = self._source.topic
        offsets = self._offsets(head)
        times = dict(head.record.stream_times.get(topic, {}))
        terms = dict(head.record.leader_epochs.get(topic, {}))
        for r in ranges:
            if r.leader_epoch is not None and r.next > offsets.get(r.partition, 0):
                terms[r.partition] = [max(r.good or 0, r.broken or 0), r.leader_epoch]
            offsets[r.partition] = max(r.next, offsets.get(r.partition, 0))
            if r.running_time is not None:
                times[r.partition] = max(r.running_time, times.get(r.partition, r.running_time))
        return replace(
            head.record,
            epoch=head.record.epoch + 1,
            offsets={topic: offsets},
            stream_times={topic: times},
            leader_epochs={topic: terms} if terms else {},
            topics={topic: self._topic_id} if self._topic_id else head.record.topics,
            writer=self._writer,
            mode="ingest",
            reason=f"records of topic '{topic}' for source '{self._source.name}'",
        )

    def _events(self, ranges: Sequence[Range], committed: Mapping[str, int]) -> DataFrame:
        """The good records from the offsets `committed` on, as rows of the event log."""
        from pyspark.sql import functions as f

        before = self._log_head.record.stream_times.get(self._source.topic, {})
        running = f.unix_micros("_running_time")
        if any(r.is_late(before[r.partition]) for r in ranges if r.partition in before):
            running = f.greatest(running, _per_partition(before))
        visible = [f.col(f"s{self._place}.`{column.name}`").alias(column.name) for column in self._source.columns]
        meta: list[Column] = [f.col("_partition"), f.col("_offset"), f.col("_timestamp")]
        meta += [f.timestamp_micros(running).alias("_stream_time"), f.col("_headers")]
        if self._source.kind == "table":
            meta.append(f.col("_tombstone"))
        return _from(self._rows.where(f.col("_error").isNull()), ranges, committed).select(*visible, *meta)

    def _dead_letters(self, ranges: Sequence[Range], first: Mapping[str, int]) -> DataFrame:
        """The broken records from the offsets `first` on, as rows of the dead letters."""
        from pyspark.sql import functions as f

        stored = [f.col(name) for name in ("_partition", "_offset", "_timestamp", "_key", "_value", "_headers")]
        columns = [f.lit(self._source.topic).alias("_topic"), *stored, f.col("_error").alias("reason")]
        return _from(self._rows.where(f.col("_error").isNotNull()), ranges, first).select(*columns)


def _open(spark: SparkSession, spec: TableSpec, lake: Lake, writer: str) -> tuple[Table, Head]:
    table = Table(spark, lake.table(spec.name), spec)
    return table, table.ensure(CommitRecord(epoch=0, writer=writer, reason="first use"))


def _from(rows: DataFrame, ranges: Sequence[Range], offsets: Mapping[str, int]) -> DataFrame:
    """The rows that a table with these next offsets does not have yet.

    Mostly all of them. Then there is no condition: with its numbers the plan would be a new one in each micro-batch,
    for which Spark generates and compiles code.
    """
    from pyspark.sql import functions as f

    if not any(r.begins_before(offsets.get(r.partition, 0)) for r in ranges):
        return rows
    return rows.where(f.col("_offset") >= _per_partition(offsets, otherwise=0))


def _per_partition(values: Mapping[str, int], otherwise: int | None = None) -> Column:
    """The value of the row's `_partition`; `otherwise` for a partition without one."""
    from pyspark.sql import functions as f

    chosen: Any = f
    for partition, value in values.items():
        chosen = chosen.when(f.col("_partition") == int(partition), f.lit(value).cast("bigint"))
    return f.lit(otherwise).cast("bigint") if chosen is f else chosen.otherwise(f.lit(otherwise).cast("bigint"))


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
