"""The terms of the leaders that took in given records of Kafka, by a look at each of them.

A record keeps the term under which it was written for as long as it is kept, on every replica. So another term at the
same offset means another record.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from strandline.jobs.ingest.logs.kafka_range import CONSUMER, END, PASSING, TIMEOUT, unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

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
