"""The cut of a micro-batch: by rows and by bytes, always forward, and never past either limit by more than a record."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Log, Record
from strandline.jobs.ingest.offsets import Offsets, cut, cut_bytes
from strandline.state_store.layout import LakeLayout


class _Sized:
    """A log that knows the size of each record: {(topic, partition): sizes}."""

    def __init__(self, sizes: dict[tuple[str, int], list[int]]) -> None:
        self._sizes = sizes

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        return sum(self._sizes[topic, partition][start:end])

    def span(self, _topic: str, _partition: int, start: int, end: int) -> int:
        return max(end - start, 0)

    def whole(self, _topic: str, _partition: int, _start: int, end: int) -> int:
        return end


_SIZES = st.dictionaries(
    st.tuples(st.sampled_from("tu"), st.integers(0, 2)), st.lists(st.integers(1, 50), max_size=30), min_size=1
)


@given(_SIZES, st.integers(1, 400))
def test_a_backlog_is_cut_by_bytes_and_comes_to_its_end(sizes: dict[tuple[str, int], list[int]], most: int) -> None:
    log = cast("Log", _Sized(sizes))
    end: Offsets = {}
    for (topic, partition), found in sizes.items():
        end.setdefault(topic, {})[str(partition)] = len(found)
    start: Offsets = {topic: dict.fromkeys(names, 0) for topic, names in end.items()}
    while start != end:
        reached = cut_bytes(start, end, most, log)
        taken = {
            (topic, name): sum(sizes[topic, int(name)][start[topic][name] : last])
            for topic, names in reached.items()
            for name, last in names.items()
        }
        single = sum(start[topic][name] + 1 == last for topic, names in reached.items() for name, last in names.items())
        assert sum(taken.values()) <= most or single
        for topic, names in end.items():
            for name, last in names.items():
                first = start[topic][name]
                assert first <= reached[topic][name] <= last
                assert (first == last) == (reached[topic][name] == first), "what has a backlog advances"
        start = reached


def test_what_fits_is_not_cut() -> None:
    log = cast("Log", _Sized({("t", 0): [5] * 9}))
    assert cut_bytes({"t": {"0": 1}}, {"t": {"0": 9}}, 40, log) == {"t": {"0": 9}}
    assert cut({"t": {"0": 1}}, {"t": {"0": 9}}, None, log) == {"t": {"0": 9}}


def test_rows_are_counted_over_all_topics() -> None:
    """So a micro-batch is small for the driver only when all of it is."""
    log = cast("Log", _Sized({}))
    end: Offsets = {f"t{number}": {"0": 150, "1": 150} for number in range(100)}
    assert cut({}, end, 30_000, log) == end
    reached = cut({}, end, 20_000, log)
    assert sum(last for partitions in reached.values() for last in partitions.values()) == 20_000


def test_a_topic_of_large_records_does_not_starve_beside_one_of_small_ones() -> None:
    log = cast("Log", _Sized({("large", 0): [100_000] * 20, ("small", 0): [10] * 10_000}))
    end = {"large": {"0": 20}, "small": {"0": 10_000}}
    reached = cut_bytes({"large": {"0": 0}, "small": {"0": 0}}, end, 1_050_000, log)
    assert reached == {"large": {"0": 10}, "small": {"0": 5000}}


@pytest.mark.parametrize("count", [1, 3])
def test_the_local_log_knows_what_its_records_take(lake: LakeLayout, count: int) -> None:
    """Records of 1 MB, `count` to a call: a cut is exact, since each is a frame of its own."""
    log = LocalLog(lake)
    log.ensure_topic("t", 2)
    for _ in range(12 // count):
        log.produce("t", [Record(None, bytes(1 << 20), 1, partition=0)] * count + [Record(None, b"x", 1, partition=1)])
    end = {"t": {name: offset for name, offset in (("0", 12), ("1", 12 // count))}}
    start = {"t": {"0": 5, "1": 0}}
    reached = cut_bytes(start, end, 4_300_000, log)
    assert reached["t"]["0"] == 5 + 4
    assert log.size("t", 0, 5, 9) == 4 * ((1 << 20) + 20 + 16), "record and frame"
    assert log.size("t", 0, 3, 3) == 0


def test_a_frame_is_shared_by_its_records(lake: LakeLayout) -> None:
    log = LocalLog(lake)
    log.ensure_topic("t")
    log.produce("t", [Record(None, bytes(80), 1)] * 100)
    log.produce("t", [Record(None, bytes(80), 1)] * 100)
    whole = 100 * 100 + 16
    assert [log.size("t", 0, 0, end) for end in (50, 100, 150)] == [whole // 2, whole, whole + whole // 2]
    assert LocalLog(lake).size("t", 0, 0, 0) == 0
