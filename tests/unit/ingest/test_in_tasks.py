"""Large micro-batches, written by tasks: the same rows and dead letters as by the driver, each record once."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ingest import in_tasks
from strandline.jobs.ingest.event_logs import Ingested, Target
from strandline.jobs.ingest.in_driver import SmallBatches
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.ingest.source import IntakeRange
from strandline.jobs.ingest.while_starting import Backlog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.settings import load_settings
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import VectorMismatch
from strandline.state_store.layout import LakeLayout
from tests.support.examples import examples
from tests.support.lakes import s3_folder
from tests.support.on_disk import on_disk
from tests.support.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = Source(
    name="events",
    kind="stream",
    columns=(Column("id", t.BIGINT), Column("tags", t.array(t.VARCHAR))),
    topic="events",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="p",
    sql="",
)
USERS = replace(EVENTS, name="users", kind="table", columns=(Column("k", t.BIGINT, key=True), Column("id", t.INT)))
SOURCES = [EVENTS, USERS]
WAYS = ("driver", "parts", "tasks")


class Tasks:
    """A session whose tasks run here, one after the other; what goes to them and comes back is pickled."""

    def __init__(self, tasks: Sequence[Any] = (), job: Callable[[Any], Any] = lambda each: each) -> None:
        self._tasks, self._job = tasks, job
        self.sparkContext = self

    def parallelize(self, tasks: Sequence[Any], slices: int) -> Tasks:
        assert slices == len(tasks)
        return Tasks(tasks)

    def map(self, job: Callable[[Any], Any]) -> Tasks:
        return Tasks(self._tasks, job)

    def collect(self) -> list[Any]:
        # The first one runs twice: its first attempt was lost.
        attempts: Iterator[Any] = (
            self._job(pickle.loads(pickle.dumps(each))) for each in [*self._tasks[:1], *self._tasks]
        )
        return [pickle.loads(pickle.dumps(done)) for done in attempts][1:]


def take(
    lake: LakeLayout, engine: DuckDBEngine, way: str, start: dict[str, int], end: dict[str, int]
) -> list[Ingested]:
    """A micro-batch with these bounds."""
    reading = IntakeRange.after({}, load_settings(lake=lake.root), lake, SOURCES, {"events": "an id"})
    small = SmallBatches(reading, Path("unused: no query notes anything"), engine)
    targets = Target.of_all(SOURCES, lake, "p/1", reading.topic_ids)
    bounds = ({"events": start}, {"events": end})
    if way == "driver":
        return small.ingest(bounds, targets)
    if way == "parts":
        with closing(Backlog(small)) as backlog:
            return backlog.ingest(bounds, targets)
    return in_tasks.ingest_in_tasks(cast("SparkSession", Tasks()), reading, small.ranges(bounds), targets, engine)


def produced(lake: LakeLayout, records: Sequence[tuple[bool, int, int]]) -> dict[str, int]:
    """Records (broken, partition, milliseconds), and the ends of both partitions then."""
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    log.produce(
        "events",
        [
            Record(
                n.to_bytes(8), b"{" if broken else json.dumps({"id": n, "tags": [str(n)]}).encode(), 1000 + ms, (), at
            )
            for n, (broken, at, ms) in enumerate(records)
        ],
    )
    return {str(partition): end for partition, end in log.end_offsets("events").items()}


def stored(lake: LakeLayout) -> dict[str, tuple[list[dict[str, Any]], object]]:
    """{table: its rows in the order of their places, and what its last commit says}."""
    found: dict[str, tuple[list[dict[str, Any]], object]] = {}
    for name in ("events", "events__dead_letters", "users__log", "users__dead_letters"):
        head = reader.head(lake.table(name))
        if head is not None:
            rows = reader.read_rows(lake.table(name)).to_pylist()
            said = replace(head.record, nonce="", table="")
            found[name] = sorted(rows, key=lambda row: (row["_partition"], row["_offset"])), said
    return found


@given(
    records=st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 50_000)), min_size=1, max_size=30),
    cuts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans(), st.sampled_from(WAYS)), max_size=4),
)
@settings(max_examples=examples(5))
def test_rows_letters_and_records_of_commits_are_those_of_the_driver(
    tmp_path_factory: pytest.TempPathFactory,
    duckdb_engine: DuckDBEngine,
    records: list[tuple[bool, int, int]],
    cuts: list[tuple[int, int, bool, str]],
) -> None:
    """However micro-batches are cut and repeated, and whichever of the two takes each of them in."""
    lakes = {way: LakeLayout(tmp_path_factory.mktemp(way)) for way in ("driver", "mixed")}
    ends, _ = (produced(lake, records) for lake in lakes.values())
    at = {"0": 0, "1": 0}
    for first, second, again, way in [*cuts, (30, 30, True, "tasks")]:
        start = {"0": 0, "1": 0} if again else at
        at = {name: max(at[name], min(cut, ends[name])) for name, cut in (("0", first), ("1", second))}
        took = take(lakes["mixed"], duckdb_engine, way, start, at)
        assert [replace(each, version=0) for each in took] == [
            replace(each, version=0) for each in take(lakes["driver"], duckdb_engine, "driver", start, at)
        ]
    assert stored(lakes["mixed"]) == stored(lakes["driver"])
    assert committed_offsets(EVENTS, lakes["mixed"]) == {name: end for name, end in ends.items() if end}


def test_tasks_write_to_an_object_store_too(s3_server: S3Server, duckdb_engine: DuckDBEngine) -> None:
    lake = LakeLayout(s3_folder(s3_server))
    ends = produced(lake, [(False, 0, 5), (True, 0, 1), (False, 1, 0)])
    commits = take(lake, duckdb_engine, "tasks", {"0": 0, "1": 0}, ends)
    assert {commit.table: commit.rows for commit in commits} == {
        "events": 2, "events__dead_letters": 1, "users__log": 2, "users__dead_letters": 1,
    }  # fmt: skip
    rows, _ = stored(lake)["events"]
    assert [(row["_partition"], row["id"], row["tags"]) for row in rows] == [(0, 0, ["0"]), (1, 2, ["2"])]


def test_no_file_of_a_task_is_read_that_another_writer_has_overtaken(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = produced(lake, [(False, 0, 0), (False, 1, 0)])
    whole = in_tasks.write_range

    def overtaken(task: in_tasks.RangeTask) -> in_tasks.RangeDone:
        monkeypatch.undo()
        take(lake, duckdb_engine, "driver", {"0": 0, "1": 0}, ends)
        return whole(task)

    monkeypatch.setattr(in_tasks, "write_range", overtaken)
    produced(lake, [(False, 0, 0)])
    with pytest.raises(VectorMismatch, match="was written to while its records were read"):
        take(lake, duckdb_engine, "tasks", {"0": 0, "1": 0}, {"0": 2, "1": 1})
    assert len(reader.read_rows(lake.table("events"))) == 2
    left = [file for file in on_disk(lake.table("events")).rglob("*.parquet") if file.parent.name != "_delta_log"]
    assert len(left) <= 2, "the lost attempt's, and the driver's"
