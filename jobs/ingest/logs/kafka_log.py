"""Kafka as a log, on confluent-kafka: topics and offsets by the admin client, INSERT by an idempotent producer."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import ConfigResource, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from strandline.jobs.ingest.logs import kafka_client
from strandline.jobs.ingest.logs.kafka_client import (
    CONSUMER,
    END,
    PASSING,
    TIMEOUT,
    PartitionRead,
    connect,
    unavailable,
)
from strandline.jobs.ingest.logs.log import TopicIdentity
from strandline.jobs.model.errors import SourceUnavailable, TopicMissing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    from confluent_kafka.admin import AdminClient

    from strandline.jobs.ingest.logs.log import Record, Records
    from strandline.jobs.model.settings import KafkaSettings


_PRODUCER: dict[str, Any] = {
    "enable.idempotence": True,
    "acks": "all",
    "partitioner": "murmur2_random",
    "linger.ms": 5,
}


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """The client's options: only those that settings name, since arbitrary client options could run code."""
    password = settings.sasl_password.get_secret_value() if settings.sasl_password else None
    options = {
        "bootstrap.servers": settings.bootstrap_servers,
        "security.protocol": settings.security_protocol,
        "sasl.mechanism": settings.sasl_mechanism,
        "sasl.username": settings.sasl_username,
        "sasl.password": password,
        "ssl.ca.location": settings.ssl_ca_location,
        "client.id": "strandline",
    }
    return {name: value for name, value in options.items() if value is not None} | {
        "logger": logging.getLogger("strandline.kafka")
    }


# A partition whose leader is being chosen: a new topic's for a moment, any after a broker has failed; and one that the
# client knows from a former topic of the same name.
_ELECTING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.FENCED_LEADER_EPOCH,
)


# Consumers that stay where a range ends while more of its partition is known to be there: each fetches ahead, up to a
# queue of its own. As many as ranges are read side by side.
_KEPT = 8


class KafkaLog:
    """The brokers of `settings`. Clients are made when first needed; an instance stays in its process.

    Args:
        going_on: ranges are read that follow each other, until `close`.
    """

    def __init__(self, settings: KafkaSettings, *, going_on: bool = False) -> None:
        self._going_on = going_on
        self._kept: dict[tuple[str, int], PartitionRead] = {}
        self._options = client_options(settings)
        self._servers = settings.bootstrap_servers
        self._client: AdminClient | None = None
        self._producer: Producer | None = None
        self._sizes = RecordSizes(self._options)
        self._wait = RecordWait(self._options)

    def ensure_topic(
        self, topic: str, partitions: int = 1, replicas: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create the topic unless it is there; an existing one keeps its partitions and its configuration.

        Args:
            config: of a topic that is made, where it is not the brokers' default.

        Raises:
            SourceUnavailable: the brokers do not answer, or refuse.
        """
        if self.exists(topic):
            return
        new = NewTopic(topic, num_partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        try:
            _answer(self._admin.create_topics([new], request_timeout=TIMEOUT)[topic])
        except KafkaException as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise self._unavailable(error) from error
        # The answer may come before every broker knows the topic.
        deadline = time.monotonic() + TIMEOUT
        while not self.exists(topic) and time.monotonic() < deadline:
            time.sleep(0.05)

    def exists(self, topic: str) -> bool:
        return self._partitions(topic) is not None

    def topics(self) -> list[str]:
        """All topics but Kafka's own."""
        try:
            found = self._admin.list_topics(timeout=TIMEOUT).topics
        except KafkaException as error:
            raise self._unavailable(error) from error
        return sorted(name for name in found if not name.startswith("__"))

    def config(self, topic: str) -> dict[str, str | None]:
        """The topic's configuration, the brokers' defaults included. Raises SourceUnavailable."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        try:
            found = _answer(self._admin.describe_configs([resource], request_timeout=TIMEOUT)[resource])
        except KafkaException as error:
            raise self._unavailable(error) from error
        return {name: entry.value for name, entry in found.items()}

    def identity(self, topic: str) -> TopicIdentity:
        """The broker's id of the topic, and the leaders' terms at the partitions' ends."""
        described = self._described(topic)
        if described is None:
            raise self._missing(topic)
        partitions = [part.id for part in described.partitions]
        ends = self._listed(topic, partitions, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        terms = {number: end.leader_epoch for number, end in ends.items() if end.leader_epoch is not None}
        return TopicIdentity(_hex(described.topic_id), terms)

    def continues(self, topic: str, earlier: str) -> bool:
        """Never: a topic has one id for its life."""
        return False

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        return leader_epochs(self._options, topic, offsets)

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return self._offsets(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def end_offsets(self, topic: str) -> dict[int, int]:
        """{partition: the last stable offset}: only records of open transactions lie beyond it."""
        return self._offsets(topic, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def settled_ends(self, topic: str) -> dict[int, int]:
        """The ends: what is committed stays."""
        return self.end_offsets(topic)

    def wait(self, offsets: Mapping[str, Mapping[int, int]], seconds: float) -> None:
        self._wait.wait(offsets, seconds)

    def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Append, acknowledged by all in-sync replicas; (partition, offset) of each record, in order.

        Raises:
            TopicMissing: there is no such topic.
            SourceUnavailable: a record was not acknowledged; those before it may have been.
        """
        if not self.exists(topic):
            raise self._missing(topic)
        places: list[tuple[int, int] | None] = [None] * len(records)
        failed: list[KafkaError] = []

        def delivered(position: int, error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failed.append(error)
            else:
                places[position] = (message.partition(), message.offset())

        producer = self._open_producer()
        for position, record in enumerate(records):
            send(producer, topic, record, lambda error, message, at=position: delivered(at, error, message))
        producer.flush(TIMEOUT)
        if failed or None in places:
            raise self._unavailable(KafkaException(failed[0]) if failed else TimeoutError("no acknowledgement"))
        return [place for place in places if place is not None]

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """Of one partition, one range at a time. For threads side by side."""
        if start >= end:
            return
        reading = self._kept.pop((topic, partition), None)
        if reading is not None and reading.at != start:
            reading.close()
            reading = None
        reading = reading or PartitionRead(self._options, topic, partition, start)
        try:
            yield from reading.upto(end)
            if self._going_on and len(self._kept) < _KEPT and reading.has_more():
                # Sources of the same topic read it side by side.
                reading = reading if self._kept.setdefault((topic, partition), reading) is not reading else None
        finally:
            if reading is not None:
                reading.close()

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        """An estimate by the average size of a few records: see `RecordSizes`."""
        return self._sizes.estimate(topic, partition, start, end)

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        """How many offsets there are; at most as many records."""
        return max(end - start, 0)

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        """The end itself: a micro-batch may end after any record."""
        return end

    @property
    def _admin(self) -> AdminClient:
        if self._client is None:
            self._client = connect(self._options)
        return self._client

    def _open_producer(self) -> Producer:
        if self._producer is None:
            self._producer = Producer(self._options | _PRODUCER)
        return self._producer

    def _partitions(self, topic: str) -> list[int] | None:
        described = self._described(topic)
        return None if described is None else [part.id for part in described.partitions]

    def _described(self, topic: str) -> Any:
        """The brokers' description of the topic; None when it is not there."""
        try:
            # Unlike a metadata request this one never creates the topic, whatever the brokers' settings.
            future = self._admin.describe_topics(TopicCollection([topic]), request_timeout=TIMEOUT)[topic]
            return _answer(future)
        except KafkaException as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise self._unavailable(error) from error

    def _offsets(self, topic: str, spec: OffsetSpec) -> dict[int, int]:
        partitions = self._partitions(topic)
        if partitions is None:
            raise self._missing(topic)
        return {number: found.offset for number, found in self._listed(topic, partitions, spec).items()}

    def _listed(self, topic: str, partitions: Sequence[int], spec: OffsetSpec) -> dict[int, Any]:
        """{partition: offset and leader's term at the place that `spec` names}."""
        wanted = {TopicPartition(topic, number): spec for number in partitions}
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                futures = self._admin.list_offsets(
                    wanted, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT
                )
                return {place.partition: _answer(future) for place, future in futures.items()}
            except KafkaException as error:
                if _code(error) not in _ELECTING or time.monotonic() > deadline:
                    raise self._unavailable(error) from error
                time.sleep(0.1)

    def _missing(self, topic: str) -> TopicMissing:
        hint = "CREATE STREAM … WITH (PARTITIONS = n) makes it"
        return TopicMissing(f"topic '{topic}' is not there", where=str(self._servers), hint=hint)

    def _unavailable(self, error: Exception) -> SourceUnavailable:
        return SourceUnavailable(
            f"Kafka: {error}", where=str(self._servers), hint="check kafka.bootstrap_servers and that the brokers run"
        )


def _answer(future: Future[Any]) -> Any:
    """The result of an admin request. The client keeps the time limit; ours guards against a future it never completes.

    Raises:
        KafkaException: the request failed.
    """
    try:
        return future.result(2 * TIMEOUT)
    except TimeoutError:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001  (the client's own name)


def _hex(topic_id: Any) -> str:
    """The 128 bits as hex digits; empty for zero, which brokers send that know no ids."""
    if topic_id is None:
        return ""
    halves = (topic_id.get_most_significant_bits(), topic_id.get_least_significant_bits())
    return "".join(f"{half & (1 << 64) - 1:016x}" for half in halves) if any(halves) else ""


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())


# The size of Kafka's records, by a look at a few of them: brokers do not tell how many bytes a range takes.

# A look costs a fetch and the start of a consumer, about 50 ms, so not at every micro-batch. Records seldom change
# their size within seconds.
_SECONDS = 10.0
_RECORDS = 100
_CONSUMER: dict[str, Any] = {"max.partition.fetch.bytes": 1 << 20, "queued.max.messages.kbytes": 1 << 10}


@dataclass(frozen=True)
class _Average:
    """What a record of a topic takes in bytes, and when that was seen (monotonic seconds)."""

    bytes: int
    at: float


class RecordSizes:
    """The average size of the records of each topic, remembered for some seconds."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = {**options, **_CONSUMER}
        self._known: dict[str, _Average] = {}

    def estimate(self, topic: str, partition: int, start: int, end: int) -> int:
        """The number of offsets times the average of the records seen last, which were the first of some range.

        A range of few records is not worth a look of its own, unless it is the first of all. In a topic that nobody has
        looked at, records count as large as the largest that are known: many topics of a few records each are much
        together.

        Raises:
            OffsetsVanished: retention removed the records at `start`.
            SourceUnavailable: the brokers do not answer.
        """
        count = end - start
        known = self._known.get(topic)
        old = known is None or time.monotonic() - known.at > _SECONDS
        if not self._known or (count > _RECORDS and old):
            known = self._known[topic] = self._look(topic, partition, start, min(end, start + _RECORDS))
        return count * (known.bytes if known is not None else max(each.bytes for each in self._known.values()))

    def _look(self, topic: str, partition: int, start: int, end: int) -> _Average:
        runs = kafka_client.read(self._options, topic, partition, start, end)
        try:
            first = next(runs, None)
        finally:
            runs.close()
        size = kafka_client.bytes_of(first) // len(first) if first is not None else 0
        return _Average(size, time.monotonic())


# Waiting for records of Kafka: a fetch that the broker holds until a record comes, and no requests meanwhile.

_WAIT: dict[str, Any] = {
    # The end of a partition is where the wait begins, not news.
    "enable.partition.eof": False,
    # The broker answers when a record comes, or after this time, and is asked again.
    "fetch.wait.max.ms": 500,
    # One record is enough to know; the broker sends at least one batch, however small the limit.
    "max.partition.fetch.bytes": 1,
    "queued.min.messages": 1,
}

Places = dict[tuple[str, int], int]
"""{(topic, partition): offset}."""


class RecordWait:
    """A consumer that waits at given offsets of any topics. Made when first needed; for one thread."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._consumer: Consumer | None = None
        self._places: Places = {}

    def wait(self, offsets: Mapping[str, Mapping[int, int]], seconds: float) -> None:
        """Return when one of the partitions has a committed record at or after its offset, or after `seconds`.

        It also returns, at once, when the brokers report an error: whoever waits asks them next, and is told.
        """
        if self._consumer is None:
            self._consumer = Consumer({**CONSUMER, **self._options, **_WAIT})
        places = {(topic, number): at for topic, each in offsets.items() for number, at in each.items()}
        if places != self._places:
            self._consumer.assign([TopicPartition(topic, number, at) for (topic, number), at in places.items()])
            self._places = places
        if self._consumer.poll(seconds) is not None:
            # Otherwise it would fetch on.
            self._consumer.unassign()
            self._places = {}


# The terms of the leaders that took in given records of Kafka, by a look at each of them.
#
# A record keeps the term under which it was written for as long as it is kept, on every replica. So another term at
# the same offset means another record.

# One record of each partition is wanted: the broker sends at least one batch, however small the limit.
_LOOK: dict[str, Any] = {"max.partition.fetch.bytes": 1, "queued.min.messages": 1}


def leader_epochs(options: Mapping[str, Any], topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    """{partition: term of the leader that took in the record at that offset}; left out are records that are not there
    (aborted, compacted away), and those of brokers that name no terms.

    Args:
        options: how to reach the brokers.
        offsets: {partition: offset}, each below the partition's end and not before its begin.

    Raises:
        SourceUnavailable: the brokers refuse, or nothing has come for `TIMEOUT`.
    """
    if not offsets:
        return {}
    consumer = Consumer({**CONSUMER, **options, **_LOOK})
    try:
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in offsets.items()])
        return _found(consumer, topic, offsets)
    finally:
        consumer.close()


def _found(consumer: Consumer, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
    waiting, found = set(offsets), dict[int, int]()
    last_answer = time.monotonic()
    while waiting:
        messages: list[Any] = consumer.consume(num_messages=len(waiting), timeout=0.05)
        for message in messages:
            partition, error = message.partition(), message.error()
            if error is not None and error.code() != END:
                if not error.retriable() and error.code() not in PASSING:
                    raise unavailable(str(KafkaException(error)))
            elif partition in waiting:
                # The first that comes: the record itself, or a later one or the end where it is not there.
                waiting.discard(partition)
                epoch = message.leader_epoch() if error is None else None
                if epoch is not None and message.offset() == offsets[partition]:
                    found[partition] = epoch
        if messages:
            last_answer = time.monotonic()
        elif time.monotonic() - last_answer > TIMEOUT:
            raise unavailable(f"topic '{topic}' gives no record of the partitions {sorted(waiting)}")
    return found


# One record handed to a producer of Kafka, which waits whenever its queue is full.

_BY_KEY = -1


def send(producer: Producer, topic: str, record: Record, delivered: Any = None) -> None:
    """Hand over a record; it is delivered later.

    Args:
        delivered: called with the error, or None and the message, by a later call of the producer.
    """
    while True:
        try:
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
                on_delivery=delivered,
                partition=_BY_KEY if record.partition is None else record.partition,
            )
            break
        except BufferError:
            # The queue is full: let acknowledgements come in.
            producer.poll(0.5)
    producer.poll(0)
