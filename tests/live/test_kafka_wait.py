"""Waiting at a real broker: it ends with a committed record, and costs nothing while none comes."""

from __future__ import annotations

import time
from threading import Timer

import pytest

from infra.kafka.broker import KafkaBroker, write
from jobs.ingest.logs.kafka_log import KafkaLog
from tests.live.kafka_events import events

pytestmark = pytest.mark.kafka

# Of waits of a minute that end early: longer than a busy machine needs, much shorter than the wait.
SOON = 10.0


def _waited(log: KafkaLog, offsets: dict[str, dict[int, int]], seconds: float) -> float:
    began = time.monotonic()
    log.wait(offsets, seconds)
    return time.monotonic() - began


def test_a_record_of_any_topic_ends_the_wait(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    """Again and again, at the same places and at others."""
    for topic in ("wait1", "wait2"):
        kafka_broker.create_topic(topic, 2)
    places = {topic: {0: 0, 1: 0} for topic in ("wait1", "wait2")}
    assert _waited(log, places, 1) >= 0.9
    for number, (topic, partition) in enumerate((("wait1", 0), ("wait2", 1), ("wait1", 0))):
        timer = Timer(1, lambda at=(topic, partition): kafka_broker.produce(at[0], events(range(1)), at[1]))
        timer.start()
        assert 0.5 < _waited(log, places, 60) < SOON, f"record {number}"
        timer.join()
        assert _waited(log, places, 60) < SOON, "it is there, so there is no wait"
        places[topic][partition] += 1
        assert log.end_offsets(topic)[partition] == places[topic][partition]
    assert _waited(log, places, 1) >= 0.9


def test_a_record_of_an_open_transaction_does_not_end_it(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    kafka_broker.create_topic("wait-open")
    producer = kafka_broker.transactional("wait-open")
    producer.begin_transaction()
    write(producer, "wait-open", events(range(3)))
    producer.flush()
    assert _waited(log, {"wait-open": {0: 0}}, 2) >= 1.9
    Timer(1, lambda: producer.commit_transaction(30)).start()
    assert _waited(log, {"wait-open": {0: 0}}, 60) < SOON


def test_a_wait_at_a_topic_that_is_not_there_ends_in_its_time(log: KafkaLog) -> None:
    """Whoever waits asks for the topic next, and is told."""
    assert _waited(log, {"wait-missing": {0: 0}}, 1) < SOON


def test_waiting_costs_no_processor_time(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    kafka_broker.create_topic("wait-idle")
    log.wait({"wait-idle": {0: 0}}, 1)
    began = time.process_time()
    log.wait({"wait-idle": {0: 0}}, 5)
    assert time.process_time() - began < 0.1
