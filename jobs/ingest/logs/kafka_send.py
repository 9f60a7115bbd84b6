"""One record handed to a producer of Kafka, which waits whenever its queue is full."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import Producer

    from strandline.jobs.ingest.logs.log import Record

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
