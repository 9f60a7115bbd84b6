"""Retention on a real broker: records gone unread stop the run, others are no loss."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from infra.kafka.broker import KafkaBroker, write
from strandline.jobs.ingest.logs.kafka_log import KafkaLog
from strandline.jobs.model.errors import OffsetsVanished
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.live.kafka_events import events, offsets, stream, transactions
from tests.support.drain_sources import drain, rows_of
from tests.support.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


def test_vanished_offsets_stop_the_run(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: LakeLayout
) -> None:
    """Retention passed the committed offset: an error that says which records, never a silent jump."""
    kafka_broker.create_topic("vanished")
    kafka_broker.produce("vanished", events(range(10)))
    drain(spark, kafka, lake, [stream("vanished")])
    kafka_broker.produce("vanished", events(range(10)))
    kafka_broker.admin.delete_records([TopicPartition("vanished", 0, 15)])[TopicPartition("vanished", 0)].result(
        PATIENCE_SECONDS
    )
    with pytest.raises(OffsetsVanished, match="records 10 to 14 were removed"):
        drain(spark, kafka, lake, [stream("vanished")])
    # The reader itself finds it too: retention may strike after the plan was made.
    with pytest.raises(OffsetsVanished, match="from 12 on"):
        offsets(log, "vanished", 12, 20)
    # A source that has read nothing yet begins where the topic begins.
    late = replace(stream("vanished"), name="late")
    assert sum(commit.rows for commit in drain(spark, kafka, lake, [late])) == 5


def test_retention_of_what_was_read_is_no_loss(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: LakeLayout
) -> None:
    """All records expired, the last offsets being markers: the next run goes on."""
    kafka_broker.create_topic("expired")
    transactions(kafka_broker, log, "expired", [True, False])
    drain(spark, kafka, lake, [stream("expired")])
    end = log.end_offsets("expired")[0]
    kafka_broker.admin.delete_records([TopicPartition("expired", 0, end)])[TopicPartition("expired", 0)].result(
        PATIENCE_SECONDS
    )
    kafka_broker.produce("expired", events([77]))
    drain(spark, kafka, lake, [stream("expired")])
    assert [row["id"] for row in rows_of(lake, "expired")] == [0, 1, 2, 77]


def test_retention_of_aborted_records_is_no_loss(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: LakeLayout
) -> None:
    """A batch of aborted records only gives no rows, and still moves the log behind them before they expire."""
    kafka_broker.create_topic("given-up")
    kafka_broker.produce("given-up", events([1]))
    drain(spark, kafka, lake, [stream("given-up")])
    producer = kafka_broker.transactional("given-up")
    producer.begin_transaction()
    write(producer, "given-up", events(range(3)))
    producer.flush()
    producer.abort_transaction(PATIENCE_SECONDS)
    wait_until(lambda: log.end_offsets("given-up")[0] >= 5, "the marker did not come")
    assert drain(spark, kafka, lake, [stream("given-up")]) == []
    place = TopicPartition("given-up", 0, 5)
    kafka_broker.admin.delete_records([place])[place].result(PATIENCE_SECONDS)
    kafka_broker.produce("given-up", events([2]))
    drain(spark, kafka, lake, [stream("given-up")])
    assert [row["id"] for row in rows_of(lake, "given-up")] == [1, 2]
