"""The shipped pipelines on the local log and on a real Kafka broker.

Three are examples of the pattern catalogue, exactly as printed, with the results that it prints or tells; the first is
the README's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline.jobs.cli.demo
from infra.kafka.broker import KafkaBroker
from strandline.jobs.model.settings import KafkaSettings, Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from tests.support.invariants import assert_correct

PIPELINES = {file.stem: file for file in strandline.jobs.cli.demo.PIPELINES}

EXPECTED: dict[str, dict[str, set[tuple[Any, ...]]]] = {
    "longest_visits": {"longest": {("Vegetable", 60), ("Fruit", 20)}},
    "movie_tickets": {
        "movie_tickets_sold": {("Aliens", 1), ("Die Hard", 3), ("The Godfather", 4), ("The Big Lebowski", 2)}
    },
    "sensor_readings": {
        "avg_readings": {("sensor-1", 68.5), ("sensor-2", 48.0), ("sensor-3", 52.0), ("sensor-4", 75.0)},
        "part_avg": {("wheel", 63.0), ("motor", 68.0), ("engine", 52.4)},
    },
    "package_locations": {"package_locations": {(1, "Rome"), (2, "Rome"), (3, "Washington")}},
}


def _query(settings: Settings, text: str) -> set[tuple[Any, ...]]:
    (result,) = Interpreter(settings).run(text)
    assert isinstance(result, Rows)
    return {tuple(row) for row in result.rows}


def _check(name: str, settings: Settings, spark: SparkSession) -> None:
    strandline.jobs.cli.demo.define(PIPELINES[name], settings)
    report = drain(settings, name, spark)
    assert report.epochs >= 1
    for view, rows in EXPECTED[name].items():
        assert _query(settings, f"SELECT * FROM {view};") == rows
    assert_correct(Interpreter(settings).lake, name)


@pytest.mark.parametrize("name", PIPELINES)
def test_an_example_on_the_local_log(name: str, settings: Settings, spark: SparkSession) -> None:
    _check(name, settings, spark)


@pytest.mark.kafka
@pytest.mark.parametrize("name", PIPELINES)
def test_an_example_on_kafka(name: str, settings: Settings, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    """The same SQL: only the setting differs. The AVRO topic's schemas lie in the lake's registry."""
    kafka = KafkaSettings(bootstrap_servers=kafka_broker.bootstrap_servers)
    _check(name, settings.model_copy(update={"kafka": kafka}), spark)


def test_the_printed_statements_are_in_the_pipelines() -> None:
    """As printed, up to white space: nobody may need to change a statement to run it."""
    printed = {
        "movie_tickets": "CREATE TABLE movie_tickets_sold AS SELECT title, COUNT(ticket_total_value) AS tickets_sold"
        " FROM movie_ticket_sales GROUP BY title EMIT CHANGES;",
        "sensor_readings": "CREATE TABLE avg_readings AS SELECT sensor, AVG(reading) as avg FROM readings"
        " GROUP BY sensor EMIT CHANGES;",
        "package_locations": "CREATE OR REPLACE TABLE package_locations AS SELECT package_id,"
        " LATEST_BY_OFFSET(location) AS current_location FROM package_checkins GROUP BY package_id;",
    }
    for name, statement in printed.items():
        assert statement in " ".join(Path(PIPELINES[name]).read_text().split())
