"""The interface of a log: topics, their partitions, records with dense or growing offsets, and the partition of a key.

Log ── LocalLog   a directory of append-only files (strandline.jobs.ingest.logs.local_log)
    └─ KafkaLog   Kafka brokers (strandline.jobs.ingest.logs.kafka_log)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


Header = tuple[str, bytes | None]

# Rows of one record batch handed to Spark. Below about 2,000 the hand-over dominates; above about 20,000 the column
# lists fall out of the processor's cache.
CHUNK = 10_000
# Bytes of one run of records, unless a single record is larger. A run, its decoded columns and the copy on the way to
# the JVM are in memory at once, for every task of the machine.
CHUNK_BYTES = 8 << 20


@dataclass(frozen=True)
class Record:
    """One record to be written. `timestamp_ms` is milliseconds since the epoch; no `partition`: chosen by the key."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[Header, ...] = ()
    partition: int | None = None


@dataclass
class Records:
    """A run of records of one partition in offset order, column by column (all lists have the same length)."""

    partition: int
    offsets: list[int] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    """Milliseconds since the epoch; -1 when the record has none."""
    keys: list[bytes | None] = field(default_factory=list)
    values: list[bytes | None] = field(default_factory=list)
    headers: list[Sequence[Header] | None] = field(default_factory=list)
    leader_epoch: int | None = None
    """The term of the leader that took in the last of them; None where that is unknown."""

    def __len__(self) -> int:
        return len(self.offsets)

    def cut(self, first: int, last: int) -> Records:
        """The records at the places first <= place < last."""
        return Records(
            self.partition,
            self.offsets[first:last],
            self.timestamps[first:last],
            self.keys[first:last],
            self.values[first:last],
            self.headers[first:last],
            self.leader_epoch if last >= len(self) else None,
        )

    def extend(self, others: Records) -> None:
        """Add the records that follow these."""
        self.offsets += others.offsets
        self.timestamps += others.timestamps
        self.keys += others.keys
        self.values += others.values
        self.headers += others.headers
        self.leader_epoch = others.leader_epoch


@dataclass(frozen=True)
class TopicIdentity:
    """What tells a topic from another one of the same name.

    Attributes:
        id: given when the topic was made; empty where it is unknown (brokers before Kafka 2.8).
        leader_epochs: {partition: number of its leader's term}; empty where there are no leaders.
    """

    id: str
    leader_epochs: Mapping[int, int] = field(default_factory=dict)


class Log(Protocol):
    """The topics of one broker or lake. Ends are exclusive: the offset that the next record would get."""

    def ensure_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create the topic unless it is there; an existing one is left as it is."""

    def exists(self, topic: str) -> bool: ...

    def topics(self) -> list[str]:
        """The names of all topics, sorted."""
        ...

    def identity(self, topic: str) -> TopicIdentity:
        """The topic's id, and the terms of its partitions' leaders. Raises TopicMissing."""
        ...

    def continues(self, topic: str, earlier: str) -> bool:
        """True if the topic is the one that had another id earlier: a table that was replaced in its own log."""
        ...

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """{partition: the term of the leader that took in the record at that offset}; unknown ones are left out.

        Args:
            offsets: {partition: offset of a record that is kept}.

        Raises:
            TopicMissing: there is no such topic.
            SourceUnavailable: the brokers do not answer.
        """
        ...

    def begin_offsets(self, topic: str) -> dict[int, int]:
        """{partition: first offset still kept}. Raises TopicMissing."""
        ...

    def end_offsets(self, topic: str) -> dict[int, int]:
        """{partition: offset after the last committed record}. Raises TopicMissing."""
        ...

    def settled_ends(self, topic: str) -> dict[int, int]:
        """The ends for a run that is going to read up to there: of a log that others keep, the same. A folder of files
        keeps none, so what is new there is written down first."""
        ...

    def wait(self, offsets: Mapping[str, Mapping[int, int]], seconds: float) -> None:
        """Return when a partition has a committed record at or after its offset, or after `seconds`.

        It may return earlier without one, so look at `end_offsets` then.

        Args:
            offsets: {topic: {partition: offset}}; records of other partitions are not waited for.
        """
        ...

    def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Append durably; (partition, offset) of each record, in order. Raises TopicMissing, SourceUnavailable.

        The local log shows all the records of a call at once or, when the process is killed, none of them. Kafka may
        keep some of them.
        """
        ...

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The records with start <= offset < end, in runs of at most `CHUNK`. Raises OffsetsVanished.

        A run also holds `CHUNK_BYTES` at most, or a single record that is larger (Kafka: about, see `kafka_client`).
        """
        ...

    def close(self) -> None:
        """Give back what is kept between the reads of ranges that follow each other; it may be read on."""

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many bytes the records with start <= offset < end take. Raises TopicMissing."""
        ...

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        """About how many records there are with start <= offset < end: of topics, the difference of the two."""
        ...

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        """Where a micro-batch from `start` on may end that should end at `end`: of topics, there. Else the last such
        place before it, or the first one after it where there is none."""
        ...


_SEED = 0x9747B28C
_M = 0x5BD1E995
_R = 24
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit MurmurHash2 of Kafka's `Utils.murmur2`, as Java prints it: signed."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> _R)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length > whole:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_for(key: bytes | None, partitions: int, position: int = 0) -> int:
    """The partition of a record with `key`; records without a key go round robin by `position`."""
    if key is None:
        return position % partitions
    return (murmur2(key) & 0x7FFFFFFF) % partitions
