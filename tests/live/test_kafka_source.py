"""The Kafka source against a real broker: growing topics, and the same epochs as any log."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from infra.kafka.broker import KafkaBroker
from strandline.jobs.ingest import in_tasks, source
from strandline.jobs.ingest.event_logs import Target
from strandline.jobs.ingest.logs.log import partition_for
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.live.kafka_events import event, events, stream
from tests.support.drain_sources import drain, rows_of, small_epochs
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.kafka


def test_several_topics_are_one_query(
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: LakeLayout
) -> None:
    """Three topics of different widths, keyed as Kafka's own partitioner does, drained in one run."""
    sources = [stream(f"wide{n}", n) for n in (1, 2, 3)]
    for source_ in sources:
        kafka_broker.create_topic(source_.topic, source_.partitions)
        pairs = [(f"key {n}".encode(), event(n)) for n in range(100)]
        kafka_broker.produce(source_.topic, pairs)
    commits = drain(spark, kafka, lake, sources)
    assert {commit.table: commit.rows for commit in commits} == {"wide1": 100, "wide2": 100, "wide3": 100}
    for row in rows_of(lake, "wide3"):
        assert row["_partition"] == partition_for(f"key {row['id']}".encode(), 3)


def test_an_insert_reaches_the_partition_that_kafka_chooses(
    spark: SparkSession, kafka: Settings, lake: LakeLayout
) -> None:
    """INSERT creates the topic with its partitions, and keys go where the Java client sends them."""
    keyed = replace(stream("inserted", 5), columns=(Column("id", t.BIGINT, key=True), Column("name", t.VARCHAR)))
    rows = [{"id": n, "name": "x", "rowtime": 1_700_000_000_000 + n} for n in range(40)]
    assert insert_rows(keyed, rows, kafka, lake) == 40
    drain(spark, kafka, lake, [keyed])
    arrived = rows_of(lake, "inserted")
    assert sorted(row["id"] for row in arrived) == list(range(40))
    for row in arrived:
        number = row["id"]
        assert isinstance(number, int)
        assert row["_partition"] == partition_for(number.to_bytes(8, "big"), 5)


def test_available_now_drains_exactly_in_bounded_epochs(
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: LakeLayout
) -> None:
    """What comes while draining is for the next run; no epoch takes more rows than it may."""
    kafka_broker.create_topic("bounded", 2)
    for partition in (0, 1):
        kafka_broker.produce("bounded", events(range(50)), partition)

    def more(_batch: DataFrame) -> None:
        kafka_broker.produce("bounded", events(range(5)), 0)

    commits = drain(spark, small_epochs(kafka, 30), lake, [stream("bounded", 2)], each=more)
    assert sum(commit.rows for commit in commits) == 100
    assert max(commit.rows for commit in commits) <= 30
    arrived = rows_of(lake, "bounded")
    assert [(row["_partition"], row["_offset"]) for row in arrived] == [(p, n) for p in (0, 1) for n in range(50)]
    assert sum(commit.rows for commit in drain(spark, kafka, lake, [stream("bounded", 2)])) == 5 * len(commits)


def test_new_partitions_are_read_from_their_beginning(
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: LakeLayout
) -> None:
    """Also those that appear between two runs, and between two epochs of one."""
    kafka_broker.create_topic("growing")
    kafka_broker.produce("growing", events(range(10)), 0)
    drain(spark, kafka, lake, [stream("growing")])
    kafka_broker.grow_topic("growing", 3)
    kafka_broker.produce("growing", events(range(10, 20)), 2)
    (commit,) = drain(spark, kafka, lake, [stream("growing")])
    assert commit.rows == 10
    assert {row["id"] for row in rows_of(lake, "growing") if row["_partition"] == 2} == set(range(10, 20))


def test_a_running_query_picks_up_new_partitions(
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: LakeLayout
) -> None:
    kafka_broker.create_topic("living")
    kafka_broker.produce("living", events(range(3)), 0)
    wanted = stream("living")

    def epoch(batch: DataFrame, _number: int) -> None:
        in_tasks._ingest_by_session(batch, Target.of_all([wanted], lake, "test/1", {}))

    source.register(spark)
    frame = source.IntakeRange.after({}, kafka, lake, [wanted], {}).frame(spark)
    writer = frame.writeStream.foreachBatch(epoch).option("checkpointLocation", str(lake.checkpoint("living")))
    query = writer.trigger(processingTime="200 milliseconds").start()
    try:
        kafka_broker.grow_topic("living", 2)
        kafka_broker.produce("living", events(range(3, 6)), 1)

        def reached() -> bool:
            assert query.exception() is None
            return committed_offsets(wanted, lake) == {"0": 3, "1": 3}

        wait_until(reached, lambda: f"it stands at {committed_offsets(wanted, lake)}", 0.2)
    finally:
        query.stop()
    assert {row["id"] for row in rows_of(lake, "living")} == set(range(6))
