"""Event logs on the local log: each record once, wherever a batch is cut or repeated."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest import in_tasks as spark_intake
from strandline.jobs.ingest import source
from strandline.jobs.ingest.event_logs import Target
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.settings import Settings
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.spark.event_sources import EVENTS, USERS, fill
from tests.support.drain_sources import WRITER, drain, rows_of, small_epochs
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_events_arrive_with_their_offsets_and_times(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    body = json.dumps({"NAME": "a", "price": 1.10}).encode()
    times = [5000, 9000, 7000]
    log.produce("events", [Record(b"\0" * 7 + b"\1", body, ms, (("h", b"x"),), partition=1) for ms in times])
    (commit,) = drain(spark, settings, lake, [EVENTS])
    assert (commit.table, commit.rows) == ("events", 3)
    rows = rows_of(lake, "events")
    assert list(rows[0]) == [
        "id", "name", "price", "_partition", "_offset", "_timestamp", "_stream_time", "_headers",
    ]  # fmt: skip
    assert [row["_offset"] for row in rows] == [0, 1, 2]
    assert {(row["id"], row["name"], str(row["price"]), row["_partition"]) for row in rows} == {(1, "a", "1.10", 1)}
    assert [row["_timestamp"] for row in rows] == [datetime.fromtimestamp(ms / 1000, UTC) for ms in times]
    assert [row["_stream_time"] for row in rows] == [datetime.fromtimestamp(s, UTC) for s in (5, 9, 9)]
    assert rows[0]["_headers"] == [{"key": "h", "value": b"x"}]
    head = reader.head(lake.table("events"))
    assert head is not None
    assert head.record.offsets == {"events": {"0": 0, "1": 3}} or head.record.offsets == {"events": {"1": 3}}
    assert head.record.stream_times == {"events": {"1": 9_000_000}}


def test_a_second_run_reads_only_what_is_new(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """No checkpoint survives a run: the commits alone say where to go on. Stream time goes on too."""
    fill(settings, lake, 10, first=100)
    drain(spark, settings, lake, [EVENTS])
    assert drain(spark, settings, lake, [EVENTS]) == []
    fill(settings, lake, 10)
    assert sum(commit.rows for commit in drain(spark, settings, lake, [EVENTS])) == 10
    rows = rows_of(lake, "events")
    assert sorted(row["id"] for row in rows) == [*range(10), *range(100, 110)]
    for partition in (0, 1):
        times = [row["_timestamp"] for row in rows if row["_partition"] == partition]
        running = [row["_stream_time"] for row in rows if row["_partition"] == partition]
        assert running == [max(times[: n + 1]) for n in range(len(times))]


def test_a_backlog_is_cut_into_epochs(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """Stream times do not depend on the cuts, and no epoch takes more rows than it may."""
    fill(settings, lake, 20, first=50)
    fill(settings, lake, 20)
    commits = drain(spark, small_epochs(settings, 12), lake, [EVENTS])
    assert [commit.rows <= 12 for commit in commits] == [True] * len(commits)
    assert sum(commit.rows for commit in commits) == 40
    assert len(commits) >= 4
    rows = rows_of(lake, "events")
    for partition in (0, 1):
        mine = [row for row in rows if row["_partition"] == partition]
        assert [row["_offset"] for row in mine] == list(range(len(mine)))
        assert [row["_stream_time"] for row in mine] == [
            max(row["_timestamp"] for row in mine[: n + 1]) for n in range(len(mine))
        ]


def test_driver_and_tasks_store_what_spark_does(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """Micro-batch by micro-batch, with broken records and a source that is at another offset."""
    wide = replace(EVENTS, name="wide", value_format="KAFKA", columns=(EVENTS.columns[0], Column("a`b", t.VARCHAR)))
    fill(settings, lake, 7)
    LocalLog(lake).produce("events", [Record(None, b"{", 900, partition=n % 2) for n in range(4)])
    fill(settings, lake, 6, first=50)
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        by_spark = stored(spark, settings, lake.root.with_name("by_spark"), [EVENTS, wide], None)
        in_driver = stored(spark, settings, lake.root.with_name("in_driver"), [EVENTS, wide], duckdb_engine)
        in_tasks = stored(spark, settings, lake.root.with_name("in_tasks"), [EVENTS, wide], duckdb_engine, 0)
    assert by_spark == in_driver == in_tasks
    assert [len(rows) for rows, *_ in by_spark.values()] == [13, 4, 17], "the last one reads {, too"


def stored(
    spark: SparkSession,
    settings: Settings,
    root: LakePath,
    sources: list[Source],
    duckdb_engine: DuckDBEngine | None,
    small: int = 20_000,
) -> dict[str, tuple[Any, ...]]:
    """{table: rows and the last record} after two drains of a copy of the settings' lake; the second one has all
    sources."""
    lake = LakeLayout(root)
    shutil.copytree(on_disk(settings.lake), on_disk(root))
    at = settings.model_copy(update={"lake": root})
    drain(spark, small_epochs(at, 4, small), lake, sources[:1], duckdb_engine=duckdb_engine)
    drain(spark, small_epochs(at, 11, small), lake, sources, duckdb_engine=duckdb_engine)
    found: dict[str, tuple[Any, ...]] = {}
    for name in ("events", "events__dead_letters", "wide"):
        head = reader.head(lake.table(name))
        assert head is not None
        found[name] = (rows_of(lake, name), head.record.offsets, head.record.stream_times, head.record.digest)
    return found


def test_the_same_batch_twice_changes_nothing(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    fill(settings, lake, 10)
    LocalLog(lake).produce("events", [Record(None, b"broken", 1)])

    def again(batch: DataFrame) -> None:
        assert spark_intake._ingest_by_session(batch, Target.of_all([EVENTS], lake, WRITER, {})) == []

    drain(spark, settings, lake, [EVENTS], each=again)
    assert len(rows_of(lake, "events")) == 10
    assert len(rows_of(lake, "events__dead_letters")) == 1


def test_an_overlapping_batch_adds_only_its_new_rows(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """A batch that begins before the committed offsets (a restore, another source on the topic) is filtered."""
    other = replace(EVENTS, name="copy")
    fill(settings, lake, 10)
    drain(spark, settings, lake, [EVENTS])
    fill(settings, lake, 10, first=10)
    commits = drain(spark, settings, lake, [EVENTS, other])
    assert {commit.table: commit.rows for commit in commits} == {"events": 10, "copy": 20}
    assert rows_of(lake, "events") == rows_of(lake, "copy")


def test_several_topics_are_one_query(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """A stream and a table, with a tombstone; each batch serves both."""
    fill(settings, lake, 4)
    rows: list[dict[str, object]] = [{"id": 1, "city": "Rome"}, {"id": 2, "city": "Oslo"}]
    insert_rows(USERS, [*rows, {"id": 1, "__tombstone": True}], settings, lake)
    commits = drain(spark, settings, lake, [EVENTS, USERS])
    assert {commit.table: commit.rows for commit in commits} == {"events": 4, "users__log": 3}
    log = rows_of(lake, "users__log")
    assert list(log[0])[-2:] == ["_headers", "_tombstone"]
    assert {(row["id"], row["city"], row["_tombstone"]) for row in log} == {
        (1, "Rome", False),
        (2, "Oslo", False),
        (1, None, True),
    }


def test_avro_needs_no_registry_server(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """The workers find the schemas that INSERT registered, in the lake."""
    avro = replace(EVENTS, value_format="AVRO", key_format="AVRO")
    insert_rows(avro, [{"id": 7, "name": "ä", "price": "3.10"}, {"id": 8}], settings, lake)
    drain(spark, settings, lake, [avro])
    rows = rows_of(lake, "events")
    assert {(row["id"], row["name"], str(row["price"])) for row in rows} == {(7, "ä", "3.10"), (8, None, "None")}


def test_plans_do_not_show_the_settings(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """The option with the settings (a password may be among them) is one that Spark redacts."""
    fill(settings, lake, 1)
    source.register(spark)
    frame = source.IntakeRange.after({}, settings, lake, [EVENTS], {}).frame(spark)
    jvm = spark._jvm
    assert jvm is not None
    text = jvm.PythonSQLUtils.explainString(frame._jdf.queryExecution(), "extended")
    options = [value for value in text.split() if len(value) > 300]
    assert options == []
