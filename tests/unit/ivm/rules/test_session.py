"""Session windows, maintained per touched group on DuckDB, equal sessions cut from all rows in Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AggregateStage, SessionWindow
from strandline.jobs.model.tables import Relation
from tests.support.examples import examples
from tests.support.rule_harness import RuleBench, append_log, call, core, multiset, output

# An example runs a few epochs in a few milliseconds each: this many take some seconds.
EXAMPLES = examples(10)

GAP = 10
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
FIRST = int(BEGIN.timestamp() * 1000)

LOG = append_log((("k", t.VARCHAR), ("v", t.INT)), "t")
TABLE = Relation("t", (("id", t.INT), *LOG.columns), "keyed", ("id",))
CALLS = (
    call("__a0", "COUNT", []),
    call("__a1", "SUM", [("v", t.INT)]),
    call("__a2", "MAX", [("v", t.INT)]),
    call("__a3", "LATEST_BY_OFFSET", [("v", t.INT)]),
)

Row = dict[str, Any]


def at(millis: int) -> datetime:
    return BEGIN + timedelta(milliseconds=millis)


@st.composite
def events(draw: st.DrawFn) -> list[Row]:
    """An event log: times run back and forth, `_stream_time` is the greatest so far."""
    drawn = draw(
        st.lists(
            st.tuples(st.sampled_from([None, "a", "b"]), st.none() | st.integers(-3, 3), st.integers(0, 80)),
            max_size=14,
        )
    )
    clocks = list(accumulate((time for _, _, time in drawn), max))
    return [
        {
            **{"id": offset, "k": k, "v": v, "_timestamp": at(time), "_stream_time": at(clock)},
            **{"_partition": 0, "_offset": offset},
        }
        for offset, ((k, v, time), clock) in enumerate(zip(drawn, clocks, strict=True))
    ]


def stage_of(
    relation: Relation, *, grace: int | None = None, shown: str = "k windowstart windowend", skip: bool = False
) -> AggregateStage:
    """The calls per session of `k`, beside the `shown` columns."""
    types = {"k": t.VARCHAR, "windowstart": t.BIGINT, "windowend": t.BIGINT}
    key = "k" if "k" in shown.split() else "__k0"
    return AggregateStage(
        table="view",
        body=(replace(core(relation), key=relation.key),),
        group=(output(key, "k", t.VARCHAR),),
        aggregates=CALLS,
        outputs=(
            *(output(name, name, types[name]) for name in shown.split()),
            *(output(each.name.strip("_"), each.name, each.type) for each in CALLS),
        ),
        key=(key,),
        skip_null_keys=skip,
        session=SessionWindow(GAP, grace, "_timestamp", "_stream_time"),
    )


def sessions(rows: Sequence[Row], grace: int | None = None) -> list[tuple[Any, ...]]:
    """(k, start, end, count, sum, max, latest) of every session, cut row by row."""
    groups: defaultdict[Any, list[Row]] = defaultdict(list)
    for row in rows:
        behind = (row["_stream_time"] - row["_timestamp"]) / timedelta(milliseconds=1)
        if grace is None or behind <= GAP + grace:
            groups[row["k"]].append(row)
    found = []
    for k, members in groups.items():
        session: list[Row] = []
        for row in sorted(members, key=lambda row: (row["_timestamp"], row["_stream_time"])):
            if session and apart(session[-1], row, grace):
                found.append((k, *summary(session)))
                session = []
            session.append(row)
        found.append((k, *summary(session)))
    return found


def apart(last: Row, row: Row, grace: int | None) -> bool:
    """The row is too far from the session's last one, or came when the session had closed."""
    if row["_timestamp"] - last["_timestamp"] > timedelta(milliseconds=GAP):
        return True
    return grace is not None and row["_stream_time"] - last["_timestamp"] > timedelta(milliseconds=GAP + grace)


def summary(session: list[Row]) -> tuple[Any, ...]:
    values = [row["v"] for row in session if row["v"] is not None]
    latest = max((row for row in session if row["v"] is not None), key=lambda r: r["_offset"], default={"v": None})
    bounds = [(row["_timestamp"] - BEGIN) // timedelta(milliseconds=1) + FIRST for row in (session[0], session[-1])]
    return (*bounds, len(session), sum(values) if values else None, max(values, default=None), latest["v"])


@settings(max_examples=EXAMPLES, deadline=None)
@given(events(), st.lists(st.integers(0, 14), max_size=3), st.sampled_from([None, 0, 15]))
def test_sessions_over_a_log_equal_recomputation(
    duck: DuckDBPyConnection, log: list[Row], cuts: list[int], grace: int | None
) -> None:
    """Whatever the batch cuts; events bridge, extend and begin sessions, and late ones are left out."""
    tables = RuleBench(duck, stage_of(LOG, grace=grace), initial=True)
    for upto in [*sorted(cuts), len(log)]:
        tables.state(log[:upto])
        assert tables.visible() == multiset(sessions(log[:upto], grace))


@settings(max_examples=EXAMPLES, deadline=None)
@given(events(), st.lists(st.lists(st.integers(0, 13), max_size=8, unique=True), min_size=1, max_size=4))
def test_sessions_over_a_table_split_when_a_row_goes(
    duck: DuckDBPyConnection, log: list[Row], epochs: list[list[int]]
) -> None:
    tables = RuleBench(duck, stage_of(TABLE), initial=True)
    for chosen in epochs:
        rows = [log[number] for number in chosen if number < len(log)]
        tables.state(rows)
        assert tables.visible() == multiset(sessions(rows))


@settings(max_examples=EXAMPLES, deadline=None)
@given(events(), st.lists(st.integers(0, 14), max_size=3))
def test_groups_and_bounds_nobody_selected(duck: DuckDBPyConnection, log: list[Row], cuts: list[int]) -> None:
    tables = RuleBench(duck, stage_of(LOG, shown=""), initial=True)
    for upto in [*sorted(cuts), len(log)]:
        tables.state(log[:upto])
        assert tables.visible() == multiset(row[3:] for row in sessions(log[:upto]))


@settings(max_examples=EXAMPLES, deadline=None)
@given(events(), st.integers(0, 14))
def test_rows_with_a_null_key_are_skipped_when_asked(duck: DuckDBPyConnection, log: list[Row], cut: int) -> None:
    tables = RuleBench(duck, stage_of(LOG, skip=True), initial=True)
    tables.state(log[:cut])
    tables.state(log)
    assert tables.visible() == multiset(row for row in sessions(log) if row[0] is not None)


def logged(*times: tuple[str, int]) -> list[Row]:
    clocks = accumulate((time for _, time in times), max)
    return [
        {"k": k, "v": 1, "_timestamp": at(time), "_stream_time": at(clock), "_partition": 0, "_offset": offset}
        for offset, ((k, time), clock) in enumerate(zip(times, clocks, strict=True))
    ]


def test_a_row_exactly_a_gap_away_joins_and_one_more_millisecond_does_not(duck: DuckDBPyConnection) -> None:
    tables = RuleBench(duck, stage_of(LOG), initial=True)
    tables.state(logged(("a", 0), ("a", GAP), ("a", 2 * GAP + 1)))
    assert sorted(row[1:4] for row in tables.visible()) == [(FIRST, FIRST + GAP, 2), (FIRST + 21, FIRST + 21, 1)]


def test_a_bridge_takes_both_sessions_away_and_gives_one(duck: DuckDBPyConnection) -> None:
    tables = RuleBench(duck, stage_of(LOG), initial=True)
    log = logged(("a", 0), ("a", 20), ("b", 0), ("a", 10))
    tables.state(log[:3])
    tables.state(log)
    assert tables.query("SELECT k, windowstart, windowend, a0, __exists FROM settled ORDER BY ALL") == [
        ("a", FIRST, FIRST, None, False),
        ("a", FIRST, FIRST + 20, 3, True),
        ("a", FIRST + 20, FIRST + 20, None, False),
    ]


@pytest.mark.parametrize(("time", "taken"), [(100 - GAP - 5, True), (100 - GAP - 6, False)])
def test_a_row_is_late_when_its_own_session_closed_by_the_grace_period(
    duck: DuckDBPyConnection, time: int, taken: bool
) -> None:
    tables = RuleBench(duck, stage_of(LOG, grace=5), initial=True)
    tables.state(logged(("b", 100), ("a", time)))
    assert ("a" in {row[0] for row in tables.visible()}) is taken
