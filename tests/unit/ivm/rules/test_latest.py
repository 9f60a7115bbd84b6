"""A keyed source, maintained from its event log on DuckDB, holds the newest event of each key that is no tombstone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.model import types as t
from strandline.jobs.model.stage import LatestStage
from tests.support.examples import examples
from tests.support.rule_harness import RuleBench, append_log, multiset, output

EXAMPLES = examples(10)
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)

MAP = t.map_of(t.VARCHAR, t.INT)
STAGE = LatestStage(
    "t",
    append_log([("id", t.INT), ("sub", t.VARCHAR), ("v", t.VARCHAR), ("m", MAP), ("_tombstone", t.BOOLEAN)], "t__log"),
    (output("id", "id", t.INT), output("sub", "sub", t.VARCHAR), output("v", "v", t.VARCHAR), output("m", "m", MAP)),
    ("id", "sub"),
)
NEWEST = (
    "SELECT id, sub, v, m FROM (SELECT * FROM history QUALIFY row_number() OVER"
    " (PARTITION BY id, sub ORDER BY _stream_time DESC, _partition DESC, _offset DESC) = 1) WHERE NOT _tombstone"
)


def event(
    key: tuple[int | None, str | None], value: str | None, offset: int, second: int = 0, partition: int = 0
) -> Any:
    row = {"id": key[0], "sub": key[1], "v": value, "m": None if value is None else {value: 1}}
    row |= {"_tombstone": value is None, "_partition": partition, "_offset": offset}
    return {**row, "_stream_time": BEGIN + timedelta(seconds=second)}, 1, 0


keys = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "x"]))


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(
    st.lists(st.lists(st.tuples(keys, st.none() | st.sampled_from("pqr"), st.integers(0, 2)), max_size=6), max_size=5)
)
def test_the_newest_event_of_a_key_wins_and_a_tombstone_takes_it_away(
    duck: DuckDBPyConnection, batches: list[list[Any]]
) -> None:
    """Keys have NULL parts, come back after a tombstone, and change several times within one batch."""
    bench = RuleBench(duck, STAGE)
    offset = second = 0
    for batch in batches:
        changes = []
        for key, value, later in batch:
            offset, second = offset + 1, second + later
            changes.append(event(key, value, offset, second))
        bench.epoch(changes)
        assert bench.visible() == multiset(bench.query(NEWEST))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), max_size=5), max_size=5))
def test_a_late_older_event_of_another_partition_does_not_win(
    duck: DuckDBPyConnection, batches: list[list[Any]]
) -> None:
    """Without tombstones this holds however a key's events are spread over partitions."""
    bench = RuleBench(duck, STAGE)
    offset = 0
    for batch in batches:
        changes = []
        for key, second, partition in batch:
            offset += 1
            changes.append(event((key, None), f"{offset}", offset, second, partition))
        bench.epoch(changes)
        assert bench.visible() == multiset(bench.query(NEWEST))


def test_an_event_older_than_the_stored_row_settles_nothing(duck: DuckDBPyConnection) -> None:
    bench = RuleBench(duck, STAGE)
    bench.epoch([event((1, "x"), "new", 2, second=5)])
    bench.epoch([event((1, "x"), "old", 7, second=3, partition=1)])
    assert bench.query("SELECT count(*) FROM settled") == [(0,)]


def test_a_tombstone_of_an_absent_key_settles_nothing(duck: DuckDBPyConnection) -> None:
    bench = RuleBench(duck, STAGE)
    bench.epoch([event((1, "x"), None, 1)])
    assert bench.query("SELECT count(*) FROM settled") == [(0,)]


def test_an_event_without_a_time_is_before_every_time_and_the_offset_decides_among_such(
    duck: DuckDBPyConnection,
) -> None:
    """A stream time is unknown until the first record that has one, whose time may be long before 1970."""
    bench = RuleBench(duck, STAGE)
    changes = []
    for offset, (key, time) in enumerate([((1, "x"), None), ((1, "x"), BEGIN.replace(year=1)), ((2, "x"), None)]):
        row, *rest = event(key, f"v{offset}", offset)
        changes.append(({**row, "_stream_time": time}, *rest))
    later, *rest = event((2, "x"), "last", 1 << 50)
    bench.epoch([*changes, ({**later, "_stream_time": None}, *rest)])
    assert bench.query("SELECT id, v FROM settled ORDER BY id") == [(1, "v1"), (2, "last")]
