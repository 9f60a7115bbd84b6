"""A backlog in parts: each record once, whatever was written ahead and is given up then, without a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ingest import in_tasks, while_starting
from strandline.jobs.ingest.event_logs import Target
from strandline.jobs.ingest.in_driver import SmallBatches
from strandline.jobs.ingest.in_tasks import RangeDone, Standing
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import CHUNK, Record, Records, TopicIdentity
from strandline.jobs.ingest.offsets import Offsets, Range
from strandline.jobs.ingest.source import IntakeRange
from strandline.jobs.ingest.while_starting import Backlog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import OffsetsVanished
from strandline.jobs.model.settings import IngestSettings, load_settings
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout
from tests.support.examples import examples
from tests.support.on_disk import on_disk

EVENTS = Source("events", "stream", (Column("id", t.BIGINT),), "events", "KAFKA", "JSON", "p", "", partitions=2)
USERS = replace(EVENTS, name="users", kind="table", columns=(Column("k", t.BIGINT, key=True), Column("id", t.INT)))
SOURCES = [EVENTS, USERS]
BEGIN: Offsets = {"events": {"0": 0, "1": 0}}


def produced(lake: LakeLayout, records: list[tuple[bool, int, int]]) -> dict[str, int]:
    """Records (broken, partition, milliseconds), and the ends of both partitions then."""
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    log.produce("events", [record(number, *each) for number, each in enumerate(records)])
    return {str(partition): end for partition, end in log.end_offsets("events").items()}


def record(number: int, broken: bool, partition: int, ms: int) -> Record:
    return Record(number.to_bytes(8), b"{" if broken else json.dumps({"id": number}).encode(), 1000 + ms, (), partition)


def backlog(lake: LakeLayout, duckdb_engine: DuckDBEngine) -> Backlog:
    """Of five records the first part."""
    made = load_settings(lake=lake.root, ingest=IngestSettings(driver_rows=1))
    reading = IntakeRange.after({}, made, lake, SOURCES, {"events": LocalLog(lake).identity("events").id})
    return Backlog(SmallBatches(reading, Path("unused: no query notes anything"), duckdb_engine))


def targets(lake: LakeLayout) -> list[Target]:
    return Target.of_all(SOURCES, lake, "p/1", {})


def rows(lake: LakeLayout, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their places; none where there is no table."""
    if reader.head(lake.table(table)) is None:
        return []
    found: list[dict[str, Any]] = reader.read_rows(lake.table(table)).to_pylist()
    return sorted(found, key=lambda row: (row["_partition"], row["_offset"]))


def unnamed(lake: LakeLayout) -> list[Path]:
    """Files of rows that no commit names."""
    left: list[Path] = []
    for table in (lake.table("events"), lake.table("users__log")):
        head = reader.head(table)
        named = set(read_snapshot(table, head.version).files) if head is not None else set[str]()
        folder = on_disk(table)
        files = [*folder.glob("epoch-*.parquet"), *folder.glob("epoch-*/*")]
        left += [file for file in files if str(file.relative_to(folder)) not in named]
    return left


@given(
    records=st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(0, 50_000)), min_size=1, max_size=60),
    again=st.lists(st.booleans(), max_size=4),
)
@settings(max_examples=examples(10))
def test_each_record_is_there_once(
    tmp_path_factory: pytest.TempPathFactory,
    duckdb_engine: DuckDBEngine,
    records: list[tuple[bool, int, int]],
    again: list[bool],
) -> None:
    lake = LakeLayout(tmp_path_factory.mktemp("lake"))
    ends = produced(lake, records)
    at, sizes = BEGIN, list[int]()
    with closing(backlog(lake, duckdb_engine)) as parts:
        while (bounds := parts.waiting(at)) is not None and bounds[0] != bounds[1]:
            if again and again.pop():
                parts.close()
                bounds = parts.waiting(at)
                assert bounds is not None
            parts.ingest(bounds, targets(lake))
            sizes.append(sum(bounds[1]["events"][name] - at["events"][name] for name in at["events"]))
            at = bounds[1]
    assert at == {"events": ends}
    assert all(size <= 5 * 4**number for number, size in enumerate(sizes))
    offsets = [(int(name), offset) for name, end in ends.items() for offset in range(end)]
    for log, letters in (("events", "events__dead_letters"), ("users__log", "users__dead_letters")):
        written = [*rows(lake, log), *rows(lake, letters)]
        assert sorted((row["_partition"], row["_offset"]) for row in written) == offsets
    for partition in (0, 1):
        mine = [row for row in rows(lake, "events") if row["_partition"] == partition]
        times = [row["_timestamp"] for row in mine]
        assert [row["_stream_time"] for row in mine] == [max(times[: n + 1]) for n in range(len(times))]
    assert unnamed(lake) == []


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The ranges that are read of logs."""
    seen: list[tuple[int, int]] = []
    original = LocalLog.read

    def read(log: LocalLog, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        seen.append((start, end))
        return original(log, topic, partition, start, end)

    monkeypatch.setattr(LocalLog, "read", read)
    return seen


@pytest.mark.parametrize("elected", [False, True])
def test_what_was_read_ahead_is_read_again_after_an_election(
    lake: LakeLayout,
    duckdb_engine: DuckDBEngine,
    monkeypatch: pytest.MonkeyPatch,
    reads: list[tuple[int, int]],
    elected: bool,
) -> None:
    """The new leader may have other records there. Otherwise each range is read once for each source."""
    produced(lake, [(False, 0, 0)] * 12)
    with closing(backlog(lake, duckdb_engine)) as parts:
        first = parts.waiting(BEGIN)
        assert first is not None
        parts.ingest(first, targets(lake))
        if elected:
            monkeypatch.setattr(LocalLog, "identity", lambda *_: TopicIdentity("", {0: 7}))
        second = parts.waiting(first[1])
        assert second is not None
        before = len(reads)
        parts.ingest(second, targets(lake))
    if elected:
        assert reads[before:] == [(5, 12)] * 2
    else:
        assert reads == [(0, 5)] * 2 + [(5, 12)] * 2
    assert unnamed(lake) == []


def test_a_part_is_written_again_where_the_log_is_not_as_it_was_to_be(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, reads: list[tuple[int, int]]
) -> None:
    """Another writer has taken it in meanwhile: nothing is there twice."""
    ends = produced(lake, [(False, 0, 0)] * 12)
    with closing(backlog(lake, duckdb_engine)) as parts:
        first = parts.waiting(BEGIN)
        assert first is not None
        parts.ingest(first, targets(lake))
        second = parts.waiting(first[1])
        assert second is not None
        with closing(backlog(lake, duckdb_engine)) as others:
            others.ingest((first[1], {"events": ends}), targets(lake))
        assert parts.ingest(second, targets(lake)) == []
    assert set(reads) == {(0, 5), (5, 12)}
    assert [row["_offset"] for row in rows(lake, "events")] == list(range(12))
    assert unnamed(lake) == []


def test_records_that_cannot_be_read_ahead_are_an_error_when_they_are_asked_for(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before them is committed."""
    produced(lake, [(False, 0, 0)] * 12)
    original = LocalLog.read

    def read(log: LocalLog, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        if start:
            raise OffsetsVanished("gone meanwhile")
        return original(log, topic, partition, start, end)

    monkeypatch.setattr(LocalLog, "read", read)
    with closing(backlog(lake, duckdb_engine)) as parts:
        first = parts.waiting(BEGIN)
        assert first is not None
        assert [commit.rows for commit in parts.ingest(first, targets(lake))] == [5, 5]
        second = parts.waiting(first[1])
        assert second is not None
        with pytest.raises(OffsetsVanished, match="gone meanwhile"):
            parts.ingest(second, targets(lake))
    assert unnamed(lake) == []


def test_what_nobody_asks_for_ends_soon_and_leaves_no_file(
    lake: LakeLayout, duckdb_engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    produced(lake, [(False, 0, 0)] * (5 + 3 * CHUNK))
    ended: list[BaseException | None] = []

    def watched(*args: Any) -> RangeDone:
        try:
            return in_tasks.write_range(*args)
        except BaseException as error:
            ended.append(error)
            raise

    monkeypatch.setattr(while_starting, "write_range", watched)
    first_part: Offsets = {"events": {"0": 5, "1": 0}}
    monkeypatch.setattr(Backlog, "_end", lambda _, start, ends: first_part if start == BEGIN else ends)
    with closing(backlog(lake, duckdb_engine)) as parts:
        first = parts.waiting(BEGIN)
        assert first is not None
        parts.ingest(first, targets(lake))
    assert {type(error).__name__ for error in ended} <= {"_Dropped"}
    assert unnamed(lake) == []


def test_where_a_log_stands_after_ranges() -> None:
    stands = Standing(3, {"0": 5}, {"0": 70})
    empty = Range("0", 5, None, None, None)
    assert stands.after([empty]) == stands, "nothing is committed for it"
    found = [Range("0", 9, 8, None, 60), Range("1", 4, None, 3, None)]
    assert stands.after(found) == Standing(4, {"0": 9, "1": 4}, {"0": 70})
    assert stands.after([Range("1", 4, 3, None, 20)]) == Standing(4, {"0": 5, "1": 4}, {"0": 70, "1": 20})
