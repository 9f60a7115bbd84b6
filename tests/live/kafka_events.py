"""Events for Kafka's topics: as bytes, in transactions, and the offsets that come back."""

from __future__ import annotations

import json
from collections.abc import Iterable

from infra.kafka.broker import KafkaBroker, write
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from tests.support.waiting import PATIENCE_SECONDS, wait_until


def stream(topic: str, partitions: int = 1) -> Source:
    columns = (Column("id", t.BIGINT), Column("name", t.VARCHAR))
    return Source(topic, "stream", columns, topic, "KAFKA", "JSON", "test", "", partitions=partitions)


def event(number: int) -> bytes:
    return json.dumps({"ID": number, "name": f"n{number}"}).encode()


def events(numbers: Iterable[int]) -> Iterable[tuple[bytes | None, bytes | None]]:
    return ((None, event(number)) for number in numbers)


def offsets(log: KafkaLog, topic: str, start: int, end: int) -> list[int]:
    return [offset for run in log.read(topic, 0, start, end) for offset in run.offsets]


def transactions(broker: KafkaBroker, log: KafkaLog, topic: str, committed: Iterable[bool]) -> None:
    """Transactions of three records each, committed or aborted; returns when the last marker is in the log."""
    producer = broker.transactional(topic)
    number = 0
    for commit in committed:
        producer.begin_transaction()
        write(producer, topic, events(range(number, number + 3)))
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_SECONDS)
        number += 3
    # A transaction is over before its marker is written; each takes one offset.
    wait_until(lambda: log.end_offsets(topic)[0] >= number + number // 3, "the markers did not come")
