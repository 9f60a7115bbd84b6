"""A small micro-batch in the driver: read, decoded and written by the process that plans it, without a job.

A job that reads, one that counts and one for each table cost a second or two, however few the records. The reader is
the one that Spark's workers run, and so are the checks before it; Spark's query stays the clock, and says where each
micro-batch begins and ends.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.ingest.decode import decoded_columns
from strandline.jobs.ingest.event_logs import Ingested, Intake, Target, dead_letter_spec, log_spec
from strandline.jobs.ingest.offsets import NEVER, Offsets, Range, cut, cut_bytes
from strandline.jobs.ingest.source import TopicsReader
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.tables import ROW_HASH, TOMBSTONE
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.tablespec import arrow_schema, schema_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from duckdb import DuckDBPyConnection as Connection

    from strandline.jobs.ingest.source import IntakeRange, TopicRange
    from strandline.jobs.model.definitions import Source
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from strandline.state_store.tablespec import TableSpec

_MOST_BYTES: Final = 16 << 20
"""Of the records of a small micro-batch: decoded and with their digest they take a few times as much memory."""
_READERS: Final = 8
"""Ranges that are read side by side: each waits for its broker most of the time."""

Part = tuple[list[pa.RecordBatch], list[Range]]
"""What a micro-batch holds of one source: rows, and the ranges they are of."""
Bounds = tuple[Offsets, Offsets]
"""Where a micro-batch begins and ends."""


class SmallBatches:
    """The small micro-batches of one query.

    Args:
        checkpoint: the query's.
        available_now: those that `waiting` gives end where the topics end now.

    Attributes:
        reader, log: what plans them, and the topics, for the thread that plans.
    """

    def __init__(
        self, reading: IntakeRange, checkpoint: Path, duckdb_engine: DuckDBEngine, *, available_now: bool = False
    ) -> None:
        self.start = reading.start
        self.reading = reading
        self._most_rows = reading.settings.ingest.driver_rows
        self.log = open_log(reading.settings, reading.lake)
        schema = arrow_schema(schema_json(decoded_columns(reading.sources)))
        self.reader = TopicsReader(reading, schema)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._checkpoint = checkpoint
        self.duckdb_engine = duckdb_engine

    def bounds(self, number: int) -> Bounds | None:
        """Where a micro-batch begins and ends, as Spark's query has noted; None when the notes are not as expected.

        Args:
            number: of the micro-batch; the first one of a query is 0.
        """
        start = self.start if number == 0 else _noted(self._checkpoint, number - 1)
        end = _noted(self._checkpoint, number)
        return None if start is None or end is None else (start, end)

    def is_small(self, bounds: Bounds) -> bool:
        """True if the driver alone takes it in.

        Raises:
            OffsetsVanished: retention removed records of it, which its size was to be estimated by.
            SourceUnavailable: the brokers do not answer.
        """
        start, end = bounds
        return cut(start, end, self._most_rows, self.log) == end and cut_bytes(start, end, _MOST_BYTES, self.log) == end

    def ranges(self, bounds: Bounds) -> list[TopicRange]:
        """What a micro-batch reads.

        Raises:
            OffsetsVanished: retention removed records of a range, or its partition is gone.
        """
        start, end = bounds
        return self.reader.partitions({"topics": start}, {"topics": end})

    def waiting(self, start: Offsets) -> Bounds | None:
        """Where a micro-batch begins and ends that takes in what waits, without Spark's query; None when it is not
        small. It ends where it begins when nothing has come for a second.

        Args:
            start: where the one before it ended.

        Raises:
            StrandlineError: as of `TopicsReader.latestOffset`.
        """
        limit = self.reader.getDefaultReadLimit()
        bounds = (start, self.reader.latestOffset({"topics": start}, limit)["topics"])
        return bounds if self.is_small(bounds) else None

    def ingest(self, bounds: Bounds, targets: Sequence[Target]) -> list[Ingested]:
        """Append the records of a micro-batch to the event logs and dead letters of their sources.

        Returns:
            the commits made, in order; none when there is nothing new.

        Raises:
            OffsetsVanished: retention removed records of a range, or its partition is gone.
            VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
        """
        ranges = self.ranges(bounds)
        with ThreadPoolExecutor(_READERS, thread_name_prefix="read") as pool:
            read = pool.map(lambda each: list(self.reader.read(each)), ranges)
            parts = _by_source(batch for batches in read for batch in batches)
        commits: list[Ingested] = []
        with self.duckdb_engine.connection() as connection:
            for target in targets:
                if target.source.name in parts:
                    rows, found = parts[target.source.name]
                    commits += DriverIntake(target, rows, self.duckdb_engine, connection).take(found)
        return commits


def small_batches(
    reading: IntakeRange, checkpoint: Path, duckdb_engine: DuckDBEngine | None, *, available_now: bool = False
) -> SmallBatches | None:
    """The small micro-batches of a query; None without a DuckDB engine: Spark takes in every one."""
    if duckdb_engine is None:
        return None
    return SmallBatches(reading, checkpoint, duckdb_engine, available_now=available_now)


class DriverIntake(Intake):
    """One source's part of a micro-batch, as record batches (see `jobs.ingest.decode`)."""

    def __init__(
        self, target: Target, rows: list[pa.RecordBatch], duckdb_engine: DuckDBEngine, connection: Connection
    ) -> None:
        super().__init__(target)
        self._rows = pa.Table.from_batches(rows) if rows else None
        self._duckdb_engine = duckdb_engine
        self._connection = connection

    def _table(self, spec: TableSpec) -> DuckDBTable:
        path = self._target.lake.table(spec.name)
        return DuckDBTable(self._connection, self._duckdb_engine.kept, path, spec, spec.name)

    def _append_events(self, first: Mapping[str, int], before: Mapping[str, int], record: CommitRecord) -> Head:
        rows = self._from(pc.is_null(self._all["_error"]), first)
        columns = event_columns(rows, self._source, self._target.place, before)
        return self._table(log_spec(self._source)).append(columns, record)

    def _append_dead_letters(self, first: Mapping[str, int], record: CommitRecord) -> Head:
        rows = self._from(pc.is_valid(self._all["_error"]), first)
        columns = {"_topic": pa.repeat(pa.scalar(self._source.topic), rows.num_rows), "reason": rows["_error"]}
        stored = ("_partition", "_offset", "_timestamp", "_key", "_value", "_headers")
        columns |= {name: rows[name] for name in stored}
        return self._table(dead_letter_spec(self._source)).append(pa.table(columns), record)

    @property
    def _all(self) -> pa.Table:
        assert self._rows is not None, "its ranges say that there are records"
        return self._rows

    def _from(self, wanted: pa.ChunkedArray, first: Mapping[str, int]) -> pa.Table:
        """The wanted rows from these offsets on."""
        new = self._all["_offset"].to_numpy() >= _per_partition(self._all, first, otherwise=0)
        return self._all.filter(pc.and_(wanted, pa.chunked_array([pa.array(new)])))


def event_columns(rows: pa.Table, source: Source, place: int, before: Mapping[str, int]) -> pa.Table:
    """The columns of the event log.

    Args:
        rows: good records, columns as in `jobs.ingest.decode`.
        place: of the source among those that were read.
        before: {partition: stream time} that the rows do not go below, in microseconds.
    """
    visible = rows[f"s{place}"].combine_chunks().flatten()
    columns = dict(zip((column.name for column in source.columns), visible, strict=True))
    columns |= {name: rows[name] for name in ("_partition", "_offset", "_timestamp", "_headers")}
    columns["_stream_time"] = _stream_times(rows, before)
    if source.kind == "table":
        columns[TOMBSTONE] = rows[TOMBSTONE]
    if source.bag:
        columns[ROW_HASH] = rows[ROW_HASH]
    return pa.table(columns)


def _noted(checkpoint: Path, batch: int) -> Offsets | None:
    """The end of a micro-batch by the query's log of offsets: a version, metadata, and a line for the one source."""
    try:
        lines = (checkpoint / "offsets" / str(batch)).read_text().splitlines()
        noted = json.loads(lines[2]) if len(lines) == 3 and lines[0] == "v1" else None
    except (OSError, ValueError):
        return None
    return cast("Offsets", noted["topics"]) if isinstance(noted, dict) and "topics" in noted else None


def _by_source(batches: Iterable[pa.RecordBatch]) -> dict[str, Part]:
    """{source: its part}; a reader gives each batch to one source, and range rows by themselves."""
    parts: dict[str, Part] = defaultdict(lambda: ([], []))
    for batch in batches:
        if batch.num_rows:
            rows, ranges = parts[batch["_source"][0].as_py()]
            if batch["_range"][0].is_valid:
                ranges.append(range_of(batch))
            else:
                rows.append(batch)
    return parts


def range_of(row: pa.RecordBatch) -> Range:
    """The range of a range row."""
    found = row["_range"].flatten()
    names = [field.name for field in row["_range"].type]
    values = {
        name: (array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array)[0].as_py()
        for name, array in zip(names, found, strict=True)
    }
    return Range(partition=str(row["_partition"][0].as_py()), **values)


def _stream_times(rows: pa.Table, before: Mapping[str, int]) -> pa.Array:
    """The largest event time up to each row; `before` is that of the last commit by partition, in microseconds."""
    running = pc.fill_null(rows["_running_time"].cast(pa.int64()), NEVER).to_numpy()
    times = np.maximum(running, _per_partition(rows, before, otherwise=NEVER))
    return pa.array(times, mask=times == NEVER).cast(pa.timestamp("us", tz="UTC"))


def _per_partition(rows: pa.Table, values: Mapping[str, int], otherwise: int) -> np.ndarray[Any, Any]:
    """The value of each row's partition."""
    partitions = rows["_partition"].to_numpy()
    found = np.full(int(partitions.max(initial=0)) + 1, otherwise, dtype=np.int64)
    for partition, value in values.items():
        if int(partition) < len(found):
            found[int(partition)] = value
    by_row: np.ndarray[Any, Any] = found[partitions]
    return by_row
