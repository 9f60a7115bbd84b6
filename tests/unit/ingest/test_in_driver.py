"""Small micro-batches: each record once, wherever they are cut or repeated, without a session."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ingest import in_driver
from strandline.jobs.ingest.event_logs import Ingested, Target
from strandline.jobs.ingest.formats import registry
from strandline.jobs.ingest.formats.registry import open_registry
from strandline.jobs.ingest.in_driver import Bounds, SmallBatches
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.ingest.source import IntakeRange
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import OffsetsVanished
from strandline.jobs.model.settings import IngestSettings, Settings, load_settings
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.support.examples import AT_LENGTH, examples
from tests.support.on_disk import on_disk
from tests.support.warm_process import exit_code

EVENTS = Source(
    name="events",
    kind="stream",
    columns=(Column("id", t.BIGINT), Column("price", t.decimal(9, 2)), Column("tags", t.array(t.VARCHAR))),
    topic="events",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="p",
    sql="",
)
USERS = replace(
    EVENTS, name="users", kind="table", columns=(Column("id", t.BIGINT, key=True), Column("city", t.VARCHAR))
)
SOURCES = [EVENTS, USERS]
IDS = {"events": "an id"}
BETWEEN_COMMITS = ["before-log-commit", "before-log-entry:2", "after-log-commit"]
if AT_LENGTH:
    BETWEEN_COMMITS += ["after-staging", "after-log-entry:2", "before-log-commit:2"]


class Query:
    """A query that begins at the first record, and its notes: where each of its micro-batches ends."""

    def __init__(self, lake: LakeLayout, duckdb_engine: DuckDBEngine, ingest: IngestSettings | None = None) -> None:
        self.lake, self.count, self.at = lake, 0, {"0": 0, "1": 0}
        self.notes = on_disk(lake.checkpoint("p") / "offsets")
        shutil.rmtree(self.notes, ignore_errors=True)
        self.notes.mkdir(parents=True)
        given = load_settings(lake=lake.root, ingest=ingest or IngestSettings())
        start = {source.name: self.at for source in SOURCES}
        self.small = SmallBatches(IntakeRange.after(start, given, lake, SOURCES, IDS), self.notes.parent, duckdb_engine)

    def take(self, ends: dict[str, int]) -> list[Ingested]:
        """A micro-batch that ends there, or where the one before did."""
        self.at = {name: max(before, ends[name]) for name, before in self.at.items()}
        note(self.notes, self.count, self.at)
        bounds = self.small.bounds(self.count)
        assert bounds is not None
        assert self.small.is_small(bounds)
        self.count += 1
        return self.small.ingest(bounds, Target.of_all(SOURCES, self.lake, "p/1", IDS))


def note(folder: Path, number: int, ends: dict[str, int]) -> None:
    """As Spark's query does."""
    lines = ["v1", json.dumps({"batchTimestampMs": 1}), json.dumps({"topics": {"events": ends}})]
    (folder / str(number)).write_text("\n".join(lines))


def record(number: int, *, broken: bool, partition: int, time: int) -> Record:
    body = b"{" if broken else json.dumps({"id": number, "price": f"{number}.5", "tags": [str(number)]}).encode()
    return Record(number.to_bytes(8), body, time, (("h", b"x"),), partition)


def produced(lake: LakeLayout, records: list[tuple[bool, int, int]]) -> dict[str, int]:
    """Records (broken, partition, milliseconds after the first second), and the ends of both partitions then."""
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    log.produce("events", [record(n, broken=b, partition=p, time=1000 + ms) for n, (b, p, ms) in enumerate(records)])
    return {str(partition): end for partition, end in log.end_offsets("events").items()}


def rows(lake: LakeLayout, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their places; none where there is no table."""
    if reader.head(lake.table(table)) is None:
        return []
    found: list[dict[str, Any]] = reader.read_rows(lake.table(table)).to_pylist()
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


@given(
    records=st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 50_000)), min_size=1, max_size=40),
    cuts=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.booleans()), max_size=6),
)
@settings(max_examples=examples(15))
def test_each_record_is_there_once(
    tmp_path_factory: pytest.TempPathFactory,
    duckdb_engine: DuckDBEngine,
    records: list[tuple[bool, int, int]],
    cuts: list[tuple[int, int, bool]],
) -> None:
    """However micro-batches are cut, and also when a query begins again at the first record of all."""
    lake = LakeLayout(tmp_path_factory.mktemp("lake"))
    ends = produced(lake, records)
    query = Query(lake, duckdb_engine)
    for first, second, again in cuts:
        query.take({"0": min(first, ends["0"]), "1": min(second, ends["1"])})
        query = Query(lake, duckdb_engine) if again else query
    query.take(ends)
    written = [*rows(lake, "events"), *rows(lake, "events__dead_letters")]
    offsets = [(int(name), offset) for name, end in ends.items() for offset in range(end)]
    assert sorted((row["_partition"], row["_offset"]) for row in written) == offsets
    reached = {name: end for name, end in ends.items() if end}
    assert [committed_offsets(source, lake) for source in SOURCES] == [reached, reached]
    for partition in (0, 1):
        mine = [row for row in rows(lake, "events") if row["_partition"] == partition]
        times = [row["_timestamp"] for row in mine]
        assert [row["_stream_time"] for row in mine] == [max(times[: n + 1]) for n in range(len(times))]


def test_a_row_has_all_of_its_record(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    ends = produced(lake, [(False, 1, 5000), (True, 1, 0)])
    commits = Query(lake, duckdb_engine).take(ends)
    assert [(commit.table, commit.rows) for commit in commits] == [
        ("events__dead_letters", 1), ("events", 1), ("users__dead_letters", 1), ("users__log", 1),
    ]  # fmt: skip
    (row,) = rows(lake, "events")
    assert (row["id"], str(row["price"]), row["tags"]) == (0, "0.50", ["0"])
    assert row["_timestamp"] == row["_stream_time"] == datetime.fromtimestamp(6, UTC)
    assert row["_headers"] == [{"key": "h", "value": b"x"}]
    (letter,) = rows(lake, "events__dead_letters")
    assert (letter["_topic"], letter["_value"], letter["_offset"]) == ("events", b"{", 1)
    assert "JSON" in letter["reason"]
    head = reader.head(lake.table("events"))
    assert head is not None
    assert head.record.offsets == {"events": {"1": 2}}
    assert head.record.topics == {"events": "an id"}
    assert head.record.stream_times == {"events": {"1": 6_000_000}}


def test_the_registry_is_reached_by_one_client(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make one for a registry over HTTP takes 40 ms, most of it for certificates."""
    avro = replace(
        EVENTS, key_format="AVRO", value_format="AVRO", columns=(Column("id", t.INT, key=True), EVENTS.columns[1])
    )
    configured = load_settings(lake=lake.root)
    insert_rows(avro, [{"id": 1, "price": "1.50"}, {"id": 2, "price": "2.50"}], configured, lake)
    made: list[LakeLayout] = []

    def opened(of: Settings, at: LakeLayout) -> SchemaRegistryClient:
        made.append(at)
        return open_registry(of, at)

    monkeypatch.setattr(registry, "open_registry", opened)
    small = SmallBatches(
        IntakeRange.after({}, configured, lake, [avro], IDS), on_disk(lake.checkpoint("p")), duckdb_engine
    )
    for number in (0, 1):
        bounds = {"events": {"0": number}}, {"events": {"0": number + 1}}
        small.ingest(bounds, Target.of_all([avro], lake, "p/1", IDS))
    assert [row["id"] for row in rows(lake, "events")] == [1, 2]
    assert made == [lake]


def take_all(root: Path, ends: dict[str, int]) -> None:
    """One micro-batch with all there is, as a process takes it in."""
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        Query(LakeLayout(root), duckdb_engine).take(ends)


@pytest.mark.kill
@pytest.mark.parametrize("place", BETWEEN_COMMITS)
def test_a_driver_killed_between_its_commits_loses_and_doubles_nothing(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, place: str
) -> None:
    ends = produced(lake, [(True, 0, 0), (False, 0, 0), (True, 0, 0)])
    assert exit_code(take_all, lake.root, ends, failpoint=place) == -signal.SIGKILL
    Query(lake, duckdb_engine).take(ends)
    for log in ("events", "users__log"):
        assert [row["_offset"] for row in rows(lake, log)] == [1]
    for letters in ("events__dead_letters", "users__dead_letters"):
        assert [row["_offset"] for row in rows(lake, letters)] == [0, 2]


def test_columns_of_every_type_are_stored_as_they_came(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    inner = t.struct(("day", t.DATE), ("a`b", t.map_of(t.VARCHAR, t.array(t.INT))))
    wanted: dict[str, tuple[t.SqlType, object, object]] = {
        "x`y": (t.INT, 1, 1),
        "yes": (t.BOOLEAN, True, True),
        "real": (t.DOUBLE, 0.5, 0.5),
        "exact": (t.decimal(38, 10), "1.5", Decimal("1.5000000000")),
        "bytes": (t.BYTES, "AAE=", b"\0\1"),
        "day": (t.DATE, 1, date(1970, 1, 2)),
        "time": (t.TIME, 7, 7),
        "moment": (t.TIMESTAMP, 1000, datetime.fromtimestamp(1, UTC)),
        "map": (t.map_of(t.VARCHAR, inner), {"k": None}, [("k", None)]),
        "nested": (
            t.array(inner),
            [{"day": 0, "a`b": {"k": [1, None]}}],
            [{"day": date(1970, 1, 1), "a`b": [("k", [1, None])]}],
        ),
    }
    source = replace(EVENTS, columns=tuple(Column(name, found) for name, (found, *_) in wanted.items()))
    log = LocalLog(lake)
    log.ensure_topic("events", 1)
    sent = {name: value for name, (_, value, _) in wanted.items()}
    log.produce("events", [Record(None, json.dumps(body).encode(), 1, partition=0) for body in (sent, {})])
    reading = IntakeRange.after({}, load_settings(lake=lake.root), lake, [source], IDS)
    start, end = {"events": {"0": 0}}, {"events": {"0": 2}}
    small = SmallBatches(reading, on_disk(lake.checkpoint("p")), duckdb_engine)
    small.ingest((start, end), Target.of_all([source], lake, "p/1", IDS))
    first, second = rows(lake, "events")
    assert {name: first[name] for name in wanted} == {name: stored for name, (_, _, stored) in wanted.items()}
    assert {second[name] for name in wanted} == {None}


@pytest.mark.parametrize(
    "notes",
    ["", "v2\n{}\n{}", "v1\n{}", "v1\n{}\n{", "v1\n{}\n[]", 'v1\n{}\n{"other": {}}'],
)
def test_notes_that_are_not_as_expected_leave_the_micro_batch_to_spark(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, notes: str
) -> None:
    produced(lake, [(False, 0, 0)])
    query = Query(lake, duckdb_engine)
    assert query.small.bounds(0) is None, "there are none"
    (query.notes / "0").write_text(notes)
    assert query.small.bounds(0) is None


def test_a_large_micro_batch_is_left_to_tasks(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = produced(lake, [(False, 0, 0)] * 3)
    for most, small in ((2, False), (3, True), (0, False)):
        query = Query(lake, duckdb_engine, IngestSettings(driver_rows=most))
        note(query.notes, 0, ends)
        assert query.small.is_small(bounds_of(query)) is small
    monkeypatch.setattr(in_driver, "_MOST_BYTES", 100)
    query = Query(lake, duckdb_engine)
    note(query.notes, 0, ends)
    assert not query.small.is_small(bounds_of(query)), "few records, many bytes"


def bounds_of(query: Query) -> Bounds:
    bounds = query.small.bounds(0)
    assert bounds is not None
    return bounds


def test_records_that_went_before_they_were_read_stop_the_run(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> None:
    ends = produced(lake, [(False, 0, 0)])
    log = LocalLog(lake)
    query = Query(lake, duckdb_engine)
    log.produce("events", [record(7, broken=False, partition=0, time=1)])
    first, *_ = sorted(on_disk(lake.topic("events")).glob("*.log"))
    first.unlink()
    with pytest.raises(OffsetsVanished, match="records 0 to 0 were removed"):
        query.take({"0": 2, "1": ends["1"]})
