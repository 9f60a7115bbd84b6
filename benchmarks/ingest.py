"""How fast events come in: a real broker's topic to a Delta event log, against what could be had at most.

    python benchmarks/ingest.py [--events 1000000] [--rounds 3] [--format JSON|AVRO|PROTOBUF|DELIMITED]

One run measures, over the same events (about 100 bytes of JSON, 5 fields, 4 partitions):

    consume   confluent-kafka's bare consume loop, one process, nothing decoded
    write     Spark writes the same decoded rows from memory to a Delta table, nothing read or checked
    driver    the product's way without a session, part by part: source, decoding, exactly-once commits to the event log
    ingest    the same in tasks, from a streaming query on

and prints events per second (best and median of the rounds) and the ratios.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import orjson
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

sys.path.insert(0, str(Path(__file__).parents[1]))

from infra.kafka.broker import KafkaBroker
from strandline.jobs.ingest import in_tasks, source
from strandline.jobs.ingest.event_logs import Target
from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.ingest.formats.registry import open_registry
from strandline.jobs.ingest.in_driver import small_batches
from strandline.jobs.ingest.while_starting import Backlog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.settings import KafkaSettings, Settings, load_settings
from strandline.jobs.run.spark import spark_session
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout

PARTITIONS = 4
COLUMNS = (
    Column("id", t.BIGINT),
    Column("user_name", t.VARCHAR),
    Column("amount", t.DOUBLE),
    Column("quantity", t.INT),
    Column("paid", t.BOOLEAN),
)


def row(number: int) -> dict[str, object]:
    return {
        "id": number,
        "user_name": f"user number {number * 7919 % 100_003}",
        "amount": number % 10_007 / 8,
        "quantity": number % 13,
        "paid": number % 3 == 0,
    }


def events_of(form: str) -> Source:
    return Source("events", "stream", COLUMNS, "events", "KAFKA", form, "bench", "", partitions=PARTITIONS)


def encoder(form: str, settings: Settings, lake: LakeLayout) -> Callable[[int], bytes]:
    """The event of a number. A schema is registered with the lake."""
    if form == "JSON":
        return lambda number: orjson.dumps(row(number))
    made = open_format(events_of(form), "value", lambda: open_registry(settings, lake))
    assert made is not None
    encode = made.encode

    def encoded(number: int) -> bytes:
        payload = encode(row(number))
        assert payload is not None
        return payload

    return encoded


def fill(broker: KafkaBroker, topic: str, events: int, event: Callable[[int], bytes]) -> None:
    broker.create_topic(topic, PARTITIONS)
    share = events // PARTITIONS
    for partition in range(PARTITIONS):
        first = partition * share
        broker.produce(topic, ((None, event(n)) for n in range(first, first + share)), partition)


def consume(broker: KafkaBroker, topic: str, events: int) -> None:
    """The bare loop: messages are fetched and counted."""
    options = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "bare", "enable.auto.commit": False}
    # As tuned as ours: with the client's default of a second this loop is five times slower.
    consumer = Consumer({**options, "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    seen = 0
    while seen < events:
        seen += len(consumer.consume(num_messages=min(10_000, events - seen), timeout=1.0))
    consumer.close()


def main() -> None:
    """Run the three, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--format", default="JSON", choices=["JSON", "JSON_SR", "AVRO", "PROTOBUF", "DELIMITED"])
    asked = parser.parse_args()
    events = asked.events // PARTITIONS * PARTITIONS
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder) / "kafka")
        broker.start()
        try:
            kafka = KafkaSettings(bootstrap_servers=broker.bootstrap_servers)
            settings = load_settings(lake=Path(folder) / "lake", kafka=kafka)
            fill(broker, "events", events, encoder(asked.format, settings, LakeLayout(settings.lake)))
            results = measure(broker, settings, events, asked.rounds, asked.format)
        finally:
            broker.stop()
    report(results, events)


def measure(broker: KafkaBroker, settings: Settings, events: int, rounds: int, form: str) -> dict[str, list[float]]:
    """Seconds per way and round. The first round warms up and is left out."""
    results: dict[str, list[float]] = {"consume": [], "write": [], "driver": [], "ingest": []}
    with spark_session(settings.spark, "bench-ingest") as spark:
        source.register(spark)
        rows = None
        for number in range(rounds + 1):
            lake = LakeLayout(settings.lake / f"round-{number}")
            encoder(form, settings, lake)(0)
            wanted = events_of(form)
            ways: dict[str, Callable[[], object]] = {
                "consume": partial(consume, broker, "events", events),
                "driver": partial(by_driver, settings, LakeLayout(settings.lake / f"driver-{number}"), wanted),
                "ingest": partial(ingest, spark, settings, lake, wanted),
            }
            if rows is not None:
                ways["write"] = partial(rows.write.format("delta").save, str(lake.table("bare")))
            for name, way in ways.items():
                began = time.monotonic()
                way()
                if number:
                    results[name].append(time.monotonic() - began)
            stored = spark.read.format("delta").load(str(lake.table("events")))
            assert stored.count() == events
            if rows is None:
                rows = stored.cache()
                rows.count()
    return results


def by_driver(settings: Settings, lake: LakeLayout, wanted: Source) -> None:
    """One drain of the driver alone, as a pipeline without views does it."""
    encoder(wanted.value_format, settings, lake)(0)
    reading = source.IntakeRange.after({}, settings, lake, [wanted], {})
    with DuckDBEngine("1GB", 2) as duckdb_engine:
        small = small_batches(reading, Path(str(lake.checkpoint("bench"))), duckdb_engine, available_now=True)
        assert small is not None
        at = reading.start
        with closing(Backlog(small)) as backlog:
            while (bounds := backlog.waiting(at)) is not None and bounds[0] != bounds[1]:
                backlog.ingest(bounds, Target.of_all([wanted], lake, "bench/1", {}))
                at = bounds[1]


def ingest(spark: SparkSession, settings: Settings, lake: LakeLayout, wanted: Source) -> None:
    """One drain, as a pipeline without views does it."""
    reading = source.IntakeRange.after({}, settings, lake, [wanted], {})
    checkpoint = lake.checkpoint("bench")
    with DuckDBEngine("1GB", 2) as duckdb_engine:
        small = small_batches(reading, Path(str(checkpoint)), duckdb_engine)

        def take(batch: DataFrame, number: int) -> None:
            in_tasks.ingest(batch, number, small, Target.of_all([wanted], lake, "bench/1", {}))

        writer = reading.frame(spark).writeStream.foreachBatch(take)
        writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()


def report(results: dict[str, list[float]], events: int) -> None:
    print(f"{events:,} events, {PARTITIONS} partitions")
    rate = {name: events / statistics.median(seconds) for name, seconds in results.items()}
    for name, seconds in results.items():
        print(f"  {name:8} median {rate[name]:>10,.0f}/s   best {events / min(seconds):>10,.0f}/s")
    for way in ("driver", "ingest"):
        for other in ("consume", "write"):
            print(f"  {way} / {other} = {rate[way] / rate[other]:.2f}")


if __name__ == "__main__":
    main()
