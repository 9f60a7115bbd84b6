"""Waiting for records of Kafka: a fetch that the broker holds until a record comes, and no requests meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from strandline.jobs.ingest.logs.kafka_range import CONSUMER

if TYPE_CHECKING:
    from collections.abc import Mapping

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
