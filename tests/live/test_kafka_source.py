"""The Kafka source against a real broker: transactions, retention, growing topics, and the same epochs as any log."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition

from infra.kafka.broker import KafkaBroker, write
from jobs.ingest import event_logs, source
from jobs.ingest.logs.kafka_log import KafkaLog, client_options
from jobs.ingest.logs.log import Record
from jobs.ingest.logs.partitioner import partition_for
from jobs.ingest.produce import insert_rows
from jobs.model import types as t
from jobs.model.definitions import Column, Source
from jobs.model.errors import OffsetsVanished, SourceUnavailable, TopicMissing
from jobs.model.settings import KafkaSettings, Settings
from state_store.layout import Lake
from tests.support.drain_sources import drain, rows_of, small_epochs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.kafka


def stream(topic: str, partitions: int = 1) -> Source:
    columns = (Column("id", t.BIGINT), Column("name", t.VARCHAR))
    return Source(topic, "stream", columns, topic, "KAFKA", "JSON", "test", "", partitions=partitions)


def event(number: int) -> bytes:
    return json.dumps({"ID": number, "name": f"n{number}"}).encode()


def events(numbers: Iterable[int]) -> Iterable[tuple[bytes | None, bytes | None]]:
    return ((None, event(number)) for number in numbers)


@pytest.fixture
def kafka(settings: Settings, kafka_broker: KafkaBroker) -> Settings:
    """The settings of this test, with the broker."""
    return settings.model_copy(update={"kafka": KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)})


@pytest.fixture
def log(kafka: Settings) -> KafkaLog:
    return KafkaLog(kafka.kafka)


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
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
        number += 3
    # A transaction is over before its marker is written; each takes one offset.
    deadline = time.monotonic() + 20
    while log.end_offsets(topic)[0] < number + number // 3:
        assert time.monotonic() < deadline, "the markers did not come"
        time.sleep(0.05)


def test_aborted_records_are_never_read(kafka_broker: KafkaBroker, log: KafkaLog) -> None:
    """Aborted in the middle and at the end, markers everywhere: every range of offsets ends by itself, and at once."""
    kafka_broker.create_topic("aborted")
    transactions(kafka_broker, log, "aborted", [True, False, True, False])
    committed = [0, 1, 2, 8, 9, 10]
    began = time.monotonic()
    for start in range(17):
        for end in range(start, 17):
            assert offsets(log, "aborted", start, end) == [n for n in committed if start <= n < end]
    assert time.monotonic() - began < 60


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
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: Lake
) -> None:
    """Only committed events; the log stands behind the last marker, so that retention may take it away."""
    kafka_broker.create_topic("exact")
    transactions(kafka_broker, log, "exact", [False, True, False, True])
    drain(spark, kafka, lake, [stream("exact")])
    assert [row["id"] for row in rows_of(lake, "exact")] == [3, 4, 5, 9, 10, 11]
    assert event_logs.committed_offsets(stream("exact"), lake) == {"0": 16}
    assert drain(spark, kafka, lake, [stream("exact")]) == []


def test_several_topics_are_one_query(
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: Lake
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


def test_an_insert_reaches_the_partition_that_kafka_chooses(spark: SparkSession, kafka: Settings, lake: Lake) -> None:
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
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: Lake
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
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: Lake
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
    spark: SparkSession, kafka_broker: KafkaBroker, kafka: Settings, lake: Lake
) -> None:
    kafka_broker.create_topic("living")
    kafka_broker.produce("living", events(range(3)), 0)
    wanted = stream("living")

    def epoch(batch: DataFrame, _number: int) -> None:
        event_logs.ingest(batch.sparkSession, batch, [wanted], lake, "test/1")

    source.register(spark)
    frame = source.read_stream(spark, kafka, lake, [wanted], {})
    writer = frame.writeStream.foreachBatch(epoch).option("checkpointLocation", str(lake.checkpoint("living")))
    query = writer.trigger(processingTime="200 milliseconds").start()
    try:
        kafka_broker.grow_topic("living", 2)
        kafka_broker.produce("living", events(range(3, 6)), 1)
        deadline = time.monotonic() + 60
        while event_logs.committed_offsets(wanted, lake) != {"0": 3, "1": 3}:
            assert query.exception() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        query.stop()
    assert {row["id"] for row in rows_of(lake, "living")} == set(range(6))


def test_vanished_offsets_stop_the_run(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: Lake
) -> None:
    """Retention passed the committed offset: an error that says which records, never a silent jump."""
    kafka_broker.create_topic("vanished")
    kafka_broker.produce("vanished", events(range(10)))
    drain(spark, kafka, lake, [stream("vanished")])
    kafka_broker.produce("vanished", events(range(10)))
    kafka_broker.admin.delete_records([TopicPartition("vanished", 0, 15)])[TopicPartition("vanished", 0)].result(30)
    with pytest.raises(OffsetsVanished, match="records 10 to 14 were removed"):
        drain(spark, kafka, lake, [stream("vanished")])
    # The reader itself finds it too: retention may strike after the plan was made.
    with pytest.raises(OffsetsVanished, match="from 12 on"):
        offsets(log, "vanished", 12, 20)
    # A source that has read nothing yet begins where the topic begins.
    late = replace(stream("vanished"), name="late")
    assert sum(commit.rows for commit in drain(spark, kafka, lake, [late])) == 5


def test_retention_of_what_was_read_is_no_loss(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: Lake
) -> None:
    """All records expired, the last offsets being markers: the next run goes on."""
    kafka_broker.create_topic("expired")
    transactions(kafka_broker, log, "expired", [True, False])
    drain(spark, kafka, lake, [stream("expired")])
    end = log.end_offsets("expired")[0]
    kafka_broker.admin.delete_records([TopicPartition("expired", 0, end)])[TopicPartition("expired", 0)].result(30)
    kafka_broker.produce("expired", events([77]))
    drain(spark, kafka, lake, [stream("expired")])
    assert [row["id"] for row in rows_of(lake, "expired")] == [0, 1, 2, 77]


def test_retention_of_aborted_records_is_no_loss(
    spark: SparkSession, kafka_broker: KafkaBroker, log: KafkaLog, kafka: Settings, lake: Lake
) -> None:
    """A batch of aborted records only gives no rows, and still moves the log behind them before they expire."""
    kafka_broker.create_topic("given-up")
    kafka_broker.produce("given-up", events([1]))
    drain(spark, kafka, lake, [stream("given-up")])
    producer = kafka_broker.transactional("given-up")
    producer.begin_transaction()
    write(producer, "given-up", events(range(3)))
    producer.flush()
    producer.abort_transaction(30)
    deadline = time.monotonic() + 20
    while log.end_offsets("given-up")[0] < 5:
        assert time.monotonic() < deadline, "the marker did not come"
        time.sleep(0.05)
    assert drain(spark, kafka, lake, [stream("given-up")]) == []
    place = TopicPartition("given-up", 0, 5)
    kafka_broker.admin.delete_records([place])[place].result(30)
    kafka_broker.produce("given-up", events([2]))
    drain(spark, kafka, lake, [stream("given-up")])
    assert [row["id"] for row in rows_of(lake, "given-up")] == [1, 2]


def test_a_missing_topic_is_named_and_not_created(log: KafkaLog) -> None:
    assert not log.exists("nowhere")
    for ask in (lambda: log.end_offsets("nowhere"), lambda: log.produce("nowhere", [Record(None, b"", 0)])):
        with pytest.raises(TopicMissing, match="'nowhere'"):
            ask()
    assert "nowhere" not in log.topics()


def test_a_record_keeps_headers_key_and_time(log: KafkaLog) -> None:
    log.ensure_topic("whole", 2)
    log.ensure_topic("whole", 7)
    record = Record(b"\x00k", None, 1_700_000_000_123, (("h", b"\xff"), ("n", None)), partition=1)
    assert log.produce("whole", [record]) == [(1, 0)]
    (run,) = log.read("whole", 1, 0, 1)
    assert (run.keys, run.values, run.timestamps) == ([b"\x00k"], [None], [1_700_000_000_123])
    assert list(run.headers[0] or ()) == [("h", b"\xff"), ("n", None)]


def test_brokers_that_do_not_answer_are_an_error_to_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.ingest.logs.kafka_log.TIMEOUT", 1.0)
    with pytest.raises(SourceUnavailable) as caught:
        KafkaLog(KafkaSettings(bootstrap_servers="127.0.0.1:9")).end_offsets("t")
    assert caught.value.action == "retry"


def test_client_options_are_those_of_the_settings_only() -> None:
    """Options of the client can load code or send credentials elsewhere: only the named ones are ever passed."""
    full = KafkaSettings.model_validate(
        {
            "bootstrap_servers": "b:1",
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "u",
            "sasl_password": "p",
            "ssl_ca_location": "/ca",
        }
    )
    options = client_options(full)
    assert options.pop("logger") is not None
    assert options == {
        "bootstrap.servers": "b:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "u",
        "sasl.password": "p",
        "ssl.ca.location": "/ca",
        "client.id": "strandline",
    }
    with pytest.raises(ValueError, match="plugin"):
        KafkaSettings.model_validate({"bootstrap_servers": "b:1", "plugin.library.paths": "x.so"})
