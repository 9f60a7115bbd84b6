"""Waiting at a real broker: it ends with a committed record, and costs nothing while none comes.

Waits of an hour that a record ends: the test hangs, and fails by its own time limit, if it does not.
"""

from __future__ import annotations

import time
from threading import Timer

import pytest

from infra.kafka.broker import KafkaBroker, write
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from tests.live.kafka_events import events
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.kafka

AN_HOUR = 3600.0


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
    for topic, partition in (("wait1", 0), ("wait2", 1), ("wait1", 0)):
        timer = Timer(1, lambda at=(topic, partition): kafka_broker.produce(at[0], events(range(1)), at[1]))
        timer.start()
        log.wait(places, AN_HOUR)
        assert log.end_offsets(topic)[partition] == places[topic][partition] + 1, "it ended before its record"
        timer.join()
        log.wait(places, AN_HOUR)  # it is there, so there is no wait
        places[topic][partition] += 1
    assert _waited(log, places, 1) >= 0.9


def test_a_record_of_an_open_transaction_does_not_end_it(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    kafka_broker.create_topic("wait-open")
    producer = kafka_broker.transactional("wait-open")
    producer.begin_transaction()
    write(producer, "wait-open", events(range(3)))
    producer.flush()
    assert _waited(log, {"wait-open": {0: 0}}, 2) >= 1.9
    committing = Timer(1, lambda: producer.commit_transaction(PATIENCE_SECONDS))
    committing.start()
    log.wait({"wait-open": {0: 0}}, AN_HOUR)
    committing.join()


def test_a_wait_at_a_topic_that_is_not_there_ends_in_its_time(log: KafkaLog) -> None:
    """Whoever waits asks for the topic next, and is told."""
    assert _waited(log, {"wait-missing": {0: 0}}, 1) < PATIENCE_SECONDS


def test_waiting_costs_no_processor_time(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    """A wait that asks again and again would take all of it."""
    kafka_broker.create_topic("wait-idle")
    log.wait({"wait-idle": {0: 0}}, 1)
    began = time.process_time()
    waited = _waited(log, {"wait-idle": {0: 0}}, 5)
    assert time.process_time() - began < waited / 2
