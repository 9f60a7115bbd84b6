"""The producer of the benchmark of freshness, a process of its own: so many clicks a second, open-loop.

    python -m benchmarks.clicks.click_producer SERVERS FIRST RATE SECONDS

A click is due at its time whether or not the brokers have taken those before it, and its record's timestamp is when it
was due. So a stall, of the producer too, counts as latency of all that were due while it lasted.
"""

from __future__ import annotations

import sys
import time
from typing import Final

import orjson
from confluent_kafka import Producer

from benchmarks.clicks.five_views import click

TICKS: Final = 100
"""Times a second at which clicks are due: at 10,000 a second a hundred clicks each."""
# Clicks wait that long for others to share a request: it is part of the latency that is measured.
_LINGER_MS: Final = 2


def connected(servers: str) -> Producer:
    """A producer of clicks that has spoken with the brokers. Raises KafkaException: they do not answer."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": _LINGER_MS, "log_level": 2})
    producer.list_topics(timeout=30)
    return producer


def produce(producer: Producer, first: int, rate: int, seconds: float) -> None:
    """Send click `first` and those after it; all are acknowledged at return.

    Raises:
        RuntimeError: some were not.
    """
    number = first
    begun = time.time()
    for tick in range(int(seconds * TICKS)):
        due = begun + tick / TICKS
        wait = due - time.time()
        if wait > 0:
            time.sleep(wait)
        until = first + rate * (tick + 1) // TICKS
        while number < until:
            producer.produce("clicks", orjson.dumps(click(number)), timestamp=round(due * 1000))
            number += 1
        producer.poll(0)
    if producer.flush(60):
        raise RuntimeError("some clicks were not acknowledged")


if __name__ == "__main__":
    produce(connected(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
