"""The Spark source of a pipeline: a streaming Python data source that reads and decodes all its topics.

    driver   a process of Spark's plans: latestOffset → partitions, one per topic-partition with new records
    worker   reads its range from the log, decodes it for every source of the topic, yields record batches

Offsets are {"topics": Offsets} (see `jobs.ingest.offsets`). A run starts at the offsets of the event logs' commits. The
checkpoint of a run is deleted with it. A topic that is replaced while the run goes on stops it before the next
micro-batch.
"""

from __future__ import annotations

import base64
import gc
import pickle
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from strandline.jobs.ingest.decode import Decoder, decoded_columns
from strandline.jobs.ingest.offsets import (
    Offsets,
    as_numbers,
    as_text,
    check_kept,
    check_partitions,
    cut,
    cut_bytes,
    not_before,
    start_offsets,
    topics_of,
)
from strandline.jobs.ingest.topics import check_all_same, check_same_records, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import TracebackType

    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.ingest.topics import LeaderEpochs
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

FORMAT = "strandline"
# Spark shows a source's options in plans and logs, but for names that match its redaction pattern: `secret` does, and
# the settings may hold the broker's password.
_PLAN = "secret_plan"
# How long an idle query waits for a record at a time. Between two waits it looks for new partitions, for topics that
# were replaced, and whether it is to stop.
_WAIT_SECONDS = 1.0


def register(spark: SparkSession) -> None:
    """Make the source known to the session."""
    spark.dataSource.register(StrandlineSource)


@dataclass(frozen=True)
class IntakeRange:
    """What a query reads: the topics of a pipeline, each partition from the first record that is not in the lake.

    Attributes:
        topic_ids: {topic: id} as `topics.current_ids` found them; the query stops when one changes.
        start: where it begins.
    """

    settings: Settings
    lake: LakeLayout
    sources: tuple[Source, ...]
    topic_ids: dict[str, str]
    start: Offsets

    @classmethod
    def after(
        cls,
        committed: Mapping[str, Mapping[str, int]],
        settings: Settings,
        lake: LakeLayout,
        sources: Sequence[Source],
        topic_ids: Mapping[str, str],
    ) -> IntakeRange:
        """What is to be read after what is committed.

        Args:
            committed: {source: {partition: next offset}}, as the event logs' last commits say.

        Raises:
            TopicMissing: a topic is not there.
            OffsetsVanished: records after a committed offset are not in the topic any more.
        """
        start = start_offsets(sources, committed, open_log(settings, lake))
        return cls(settings, lake, tuple(sources), dict(topic_ids), start)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The streaming rows, columns as in `jobs.ingest.decode`."""
        plan = base64.b64encode(pickle.dumps(self)).decode()
        return spark.readStream.format(FORMAT).option(_PLAN, plan).load()


class TopicRange(InputPartition):
    """The records of one partition with start <= offset < end."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__((topic, partition, start, end))
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end


class StrandlineSource(DataSource):
    """All topics of a pipeline as one stream. Instances travel to Spark's planner process and workers."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Plain values only: the options' own type does not survive every way of pickling.
        self._plan = options[_PLAN]

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return ", ".join(f"{name} {ddl}" for name, ddl in decoded_columns(self._reading.sources))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark.sql.pandas.types import to_arrow_schema

        sys.excepthook = _end_with_the_driver
        return TopicsReader(self._reading, to_arrow_schema(schema, timezone="UTC"))

    @property
    def _reading(self) -> IntakeRange:
        loaded: IntakeRange = pickle.loads(base64.b64decode(self._plan))  # noqa: S301  (our own)
        return loaded


def _end_with_the_driver(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Say nothing of a lost connection to the JVM, in the process that Spark keeps for a source's plans: the run has
    been stopped, and Spark's loop tells the JVM of it until that fails too. Anything else is told as ever."""
    if not issubclass(kind, ConnectionError):
        sys.__excepthook__(kind, error, trace)


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """Python looks for no cycles meanwhile: a run of records has thousands of objects and not one cycle, and to look at
    them again and again takes half the time of reading them. What a cycle holds is freed afterwards."""
    at_work = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # Of ranges that are read side by side, whichever put it to rest wakes it.
        if at_work:
            gc.enable()


class TopicsReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans ranges in the driver's process, reads them in the workers.

    Args:
        schema: of the record batches, see `jobs.ingest.decode`.
    """

    def __init__(self, reading: IntakeRange, schema: pa.Schema) -> None:
        self._settings, self._lake, self._sources = reading.settings, reading.lake, reading.sources
        self._topic_ids = reading.topic_ids
        self._start = reading.start
        self._schema = schema
        self._last: Offsets | None = None
        self._seen: Offsets = {}
        # Of a topic without leaders there is nothing to check; of others each is checked once, and after an election.
        self._terms: LeaderEpochs = {topic: {} for topic in self._topic_ids}
        self._leaders: LeaderEpochs = {}
        self._log: Log | None = None
        self._client: SchemaRegistryClient | None = None

    def initialOffset(self) -> dict[str, Any]:
        return {"topics": self._start}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._settings.ingest.max_rows_per_epoch)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._ends()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next micro-batch, within the limits of rows and bytes. New partitions join with their first
        offset.

        While there is nothing to read it waits, so that a micro-batch begins when its first record comes.

        Raises:
            TopicReplaced: a topic is not the one that the run began with.
            RecordsReplaced: the election of a leader has cut off records that were read.
        """
        if self._last is None:
            self._open().wait(as_numbers(start["topics"]), _WAIT_SECONDS)
        # After the wait: a topic may have been replaced while it lasted.
        terms = self._leaders = check_all_same(self._topic_ids, self._open())
        if terms != self._terms and check_same_records(self._sources, self._lake, self._open(), terms):
            self._terms = terms
        ends = self._seen = self._last or self._ends()
        begun = self._begun(start["topics"], ends)
        reached = not_before(ends, begun)
        if isinstance(limit, ReadMaxRows):
            reached = cut(begun, reached, limit.max_rows, self._open())
            reached = cut_bytes(begun, reached, self._settings.ingest.max_bytes_per_epoch, self._open())
        return {"topics": reached}

    def reportLatestOffset(self) -> dict[str, Any]:
        """The ends as the last micro-batch found them: it is for Spark's reports, and worth no request of its own."""
        return {"topics": self._seen or self._ends()}

    @property
    def seen(self) -> Offsets:
        """The ends of the topics, as the last micro-batch found them; none before the first."""
        return self._seen

    @property
    def leaders(self) -> LeaderEpochs:
        """The terms of the topics' leaders, as the last micro-batch found them; none before the first."""
        return self._leaders

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[TopicRange]:
        """The ranges of a micro-batch.

        Raises:
            OffsetsVanished: retention removed records of a range, or its partition is gone.
        """
        ranges: list[TopicRange] = []
        for topic, ends in end["topics"].items():
            begin = self._open().begin_offsets(topic)
            for name, last in ends.items():
                number = int(name)
                check_partitions(topic, {name: last}, begin)
                first = start["topics"].get(topic, {}).get(name, begin[number])
                if first < last:
                    check_kept(topic, number, first, begin[number], last)
                    ranges.append(TopicRange(topic, number, first, last))
        return ranges

    def read(self, partition: InputPartition, log: Log | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of a range: for each source of the topic its records, then the range row (see `decode`).

        Args:
            log: what is read from; one of its own without it.
        """
        assert isinstance(partition, TopicRange), "made by `partitions`"
        decoders = [
            Decoder(source, place, self._schema, self._registry, self._settings.ingest.max_seconds_ahead)
            for place, source in enumerate(self._sources)
            if source.topic == partition.topic
        ]
        log = log or open_log(self._settings, self._lake)
        with collector_at_rest():
            for records in log.read(partition.topic, partition.partition, partition.start, partition.end):
                for decoder in decoders:
                    yield decoder.decode(records)
        for decoder in decoders:
            yield decoder.close(partition.partition, partition.end)

    def _registry(self) -> SchemaRegistryClient:
        """The registry's client; ranges that are read side by side may each make one the first time."""
        from strandline.jobs.ingest.formats.registry import open_registry

        if self._client is None:
            self._client = open_registry(self._settings, self._lake)
        return self._client

    def _open(self) -> Log:
        # Not in the constructor: the reader is pickled to the workers, a client cannot be.
        if self._log is None:
            self._log = open_log(self._settings, self._lake)
        return self._log

    def _ends(self) -> Offsets:
        return {topic: as_text(self._open().settled_ends(topic)) for topic in topics_of(self._sources)}

    def _begun(self, start: Offsets, ends: Offsets) -> Offsets:
        """`start`, with the first offset of each partition that has appeared since."""
        begun: Offsets = {}
        for topic, partitions in ends.items():
            known = start.get(topic, {})
            fresh = set(partitions) - set(known)
            first = as_text(self._open().begin_offsets(topic)) if fresh else {}
            begun[topic] = {**known, **{name: first[name] for name in fresh}}
        return begun
