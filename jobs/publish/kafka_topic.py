"""A changelog topic of Kafka: each write is one transaction, and the position is committed inside it.

    begin ── records ── offset and metadata of the consumer group `strandline-<topic>` ── commit
             all visible at once to readers of committed records, or never

The position is the group's metadata for partition 0, since that is part of the transaction and of no record: a marker
among the records would be a key that the topic's readers cannot decode, and one in headers goes with its record when
that is compacted away. Where the brokers have dropped the group's offsets (a week without a write, by default), the
position is None, and the topic is compared with the table.

The transactional id is made of the topic alone: whatever publishes to a topic, from whichever lake, fences what did so
before.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from strandline.jobs.ingest.logs.kafka_client import CONSUMER, TIMEOUT, unavailable
from strandline.jobs.ingest.logs.kafka_log import KafkaLog, client_options, send
from strandline.jobs.ingest.topics import remember
from strandline.jobs.publish.topic import Position, PublisherFenced, TopicUnfit
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.ingest.logs.log import Record
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

_PRODUCER: Final[dict[str, Any]] = {
    "acks": "all",
    "partitioner": "murmur2_random",
    "linger.ms": 20,
    # A view of 10 M rows is first written in one transaction, in some minutes; the brokers refuse more than fifteen.
    # While a publisher that was killed has not begun again, readers wait behind what it left, this long at most.
    "transaction.timeout.ms": 600_000,
}
_FENCED: Final = (
    KafkaError._FENCED,  # noqa: SLF001  (the client names its own codes so)
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
_CHOOSING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_COMPACT: Final = "compact"
_PARTITION: Final = 0
"""The position of a whole topic is committed as the offset of one partition, which every topic has."""


class KafkaTopic:
    """See `ChangelogTopic`. Clients are made when first needed."""

    def __init__(self, source: Source, settings: Settings, lake: LakeLayout) -> None:
        self.source = source
        self.log = KafkaLog(settings.kafka)
        self._settings = settings
        self._lake = lake
        self._options = client_options(settings.kafka)
        self._name = f"strandline-{source.topic}"
        self._id = ""
        self._group: Consumer | None = None
        self._producer: Producer | None = None

    def position(self) -> Position | None:
        if not self.log.exists(self.source.topic):
            return None
        with self._typed():
            found = self._committed()
        if found.offset < 0 or not found.metadata:
            return None
        return self._read(found.metadata)

    def begin(self) -> None:
        topic, config = self.source.topic, {"cleanup.policy": _COMPACT}
        self.log.ensure_topic(topic, self.source.partitions, self.source.replicas, config)
        remember(self._settings, self._lake)
        policy = self.log.config(topic).get("cleanup.policy") or ""
        if policy != _COMPACT:
            raise TopicUnfit(
                f"the topic '{topic}' has cleanup.policy={policy}: rows that stay as they are would vanish from it",
                where=str(self._options["bootstrap.servers"]),
                hint=f"kafka-configs.sh --alter --topic {topic} --add-config cleanup.policy={_COMPACT}",
            )
        # Once: a topic that is made anew while this publisher goes on does not hold what it wrote before.
        self._id = self.log.identity(topic).id
        producer = Producer({**_PRODUCER, **self._options, "transactional.id": self._name})
        with self._typed():
            producer.init_transactions(TIMEOUT)
        self._producer = producer

    def write(self, records: Iterable[Record], position: Position) -> int:
        producer = self._producer
        assert producer is not None, "begin comes first"
        failpoint("before-publish")
        count = 0
        with self._typed():
            producer.begin_transaction()
            try:
                for record in records:
                    send(producer, self.source.topic, record)
                    count += 1
                self._send_position(producer, position)
                producer.flush(TIMEOUT)
                failpoint("inside-publish")
                producer.commit_transaction(TIMEOUT)
            except BaseException as error:
                why = _aborted(producer)
                if why is not None and isinstance(error, KafkaException):
                    raise why from error
                raise
        failpoint("after-publish")
        return count

    def close(self) -> None:
        group, self._group, self._producer = self._group, None, None
        if group is not None:
            group.close()

    def _committed(self) -> TopicPartition:
        """What the group has committed. A group's coordinator is being chosen for a moment after the brokers start."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                [found] = self._consumer().committed([TopicPartition(self.source.topic, _PARTITION)], TIMEOUT)
                if found.error is None:
                    return found
                raise KafkaException(found.error)
            except KafkaException as error:
                if error.args[0].code() not in _CHOOSING or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def _send_position(self, producer: Producer, position: Position) -> None:
        metadata = json.dumps({"topic": self._id, "position": position.to_json()})
        # The number is for people who list the group; what counts is the metadata.
        place = TopicPartition(self.source.topic, _PARTITION, position.version, metadata)
        group = self._consumer().consumer_group_metadata()
        producer.send_offsets_to_transaction([place], group, TIMEOUT)

    def _read(self, metadata: str) -> Position | None:
        where = f"group {self._name}"
        try:
            body = json.loads(metadata)
            topic, stated = body["topic"], body["position"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(
                f"the metadata of the group '{self._name}' is not ours",
                where=where,
                hint="delete the group; the topic is then compared with the table",
            ) from error
        # A topic that was deleted and made again under its name is empty, whatever the group says.
        return Position.from_json(stated, where) if topic == self.log.identity(self.source.topic).id else None

    def _consumer(self) -> Consumer:
        if self._group is None:
            self._group = Consumer({**CONSUMER, **self._options, "group.id": self._name})
        return self._group

    @contextmanager
    def _typed(self) -> Iterator[None]:
        """The client's errors as ours."""
        try:
            yield
        except KafkaException as error:
            fault = error.args[0]
            if fault.code() in _FENCED:
                raise PublisherFenced(
                    f"another publisher of the topic '{self.source.topic}' has begun",
                    where=str(self._options["bootstrap.servers"]),
                    hint=f"see which process or lake publishes to it: the transactional id is {self._name}",
                ) from error
            raise unavailable(str(fault)) from error


def _aborted(producer: Producer) -> KafkaException | None:
    """Abort, so that readers need not wait for the transaction's time limit; whoever begins next would do it too.

    Where the producer can do nothing any more, that is found out here only: the reason, not only that there is one.
    """
    try:
        producer.abort_transaction(TIMEOUT)
    except KafkaException as error:
        return error if error.args[0].fatal() else None
    return None
