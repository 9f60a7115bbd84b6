"""The range row: what the driver may conclude of a range from its tally."""

from __future__ import annotations

import numpy as np

from strandline.jobs.ingest.offsets import NEVER, Range, RangeTotals


def _tally(*runs: tuple[list[int], list[int], list[bool]]) -> RangeTotals:
    tally = RangeTotals()
    for offsets, running, broken in runs:
        tally.add(np.array(offsets), np.array(running, dtype=np.int64), np.array(broken, dtype=bool))
    return tally


def _range(tally: RangeTotals) -> Range:
    return Range("0", **tally.range_row(99))  # type: ignore[arg-type]


def test_the_first_offset_counts_broken_records_and_the_first_time_does_not() -> None:
    tally = _tally(([4, 5], [NEVER, 70], [True, False]), ([6, 7], [70, 90], [False, False]))
    assert (tally.first, tally.good, tally.broken) == (4, 7, 4)
    assert (tally.first_time, tally.running_time) == (70, 90)


def test_a_range_that_begins_below_the_next_offset_was_committed_in_part() -> None:
    found = _range(_tally(([4, 5], [1, 2], [False, False])))
    assert [found.begins_before(offset) for offset in (3, 4, 5, 6)] == [False, False, True, True]
    assert not _range(RangeTotals()).begins_before(100)


def test_a_range_is_late_when_its_first_good_record_is_or_has_no_time() -> None:
    """Running times do not decrease, so the first decides for all; a record without a time takes the stream's."""
    found = _range(_tally(([4, 5], [70, 90], [False, False])))
    assert [found.is_late(time) for time in (69, 70, 71, 95)] == [False, False, True, True]
    timeless = _range(_tally(([4, 5], [NEVER, 90], [False, False])))
    assert timeless.is_late(1)
    only_broken = _range(_tally(([4], [NEVER], [True])))
    assert not only_broken.is_late(1)
