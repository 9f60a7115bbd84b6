"""Transactions on a real broker: what was aborted is never read, what is open waits."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from infra.kafka.broker import KafkaBroker, write
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.live.kafka_events import events, offsets, stream, transactions
from tests.support.drain_sources import drain, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


def test_aborted_records_are_never_read(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    """Aborted in the middle and at the end, markers everywhere: every range of offsets ends by itself."""
    kafka_broker.create_topic("aborted")
    transactions(kafka_broker, log, "aborted", [True, False, True, False])
    committed = [0, 1, 2, 8, 9, 10]
    for start in range(17):
        for end in range(start, 17):
            assert offsets(log, "aborted", start, end) == [n for n in committed if start <= n < end]


def test_ranges_that_follow_each_other_are_read_by_one_consumer(kafka_broker: KafkaBroker, kafka: Settings) -> None:
    """Also where a range ends at a marker or among aborted records, and where one is left out."""
    log = KafkaLog(kafka.kafka, going_on=True)
    kafka_broker.create_topic("onwards")
    transactions(kafka_broker, log, "onwards", [True, False, True, False])
    committed = [0, 1, 2, 8, 9, 10]
    with closing(log):
        for step in range(1, 17):
            for start in [*range(0, 16, step), 5, 9, 2]:
                end = min(start + step, 16)
                assert offsets(log, "onwards", start, end) == [n for n in committed if start <= n < end]
                assert len(log._kept) <= 1


def test_records_of_an_open_transaction_wait(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    """The end is the last stable offset: what may still be aborted is not promised."""
    kafka_broker.create_topic("open")
    kafka_broker.produce("open", events(range(2)))
    producer = kafka_broker.transactional("open")
    producer.begin_transaction()
    write(producer, "open", events(range(3)))
    producer.flush()
    kafka_broker.produce("open", events(range(2)))
    assert log.end_offsets("open") == {0: 2}
    producer.abort_transaction(30)


def test_transactions_arrive_exactly(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: LakeLayout
) -> None:
    """Only committed events; the log stands behind the last marker, so that retention may take it away."""
    kafka_broker.create_topic("exact")
    transactions(kafka_broker, log, "exact", [False, True, False, True])
    drain(spark, kafka, lake, [stream("exact")])
    assert [row["id"] for row in rows_of(lake, "exact")] == [3, 4, 5, 9, 10, 11]
    assert committed_offsets(stream("exact"), lake) == {"0": 16}
    assert drain(spark, kafka, lake, [stream("exact")]) == []
