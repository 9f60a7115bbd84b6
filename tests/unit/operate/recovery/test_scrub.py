"""The turns of a scrub: every file of a large backup comes in time, and each backup reads its share."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from strandline.jobs.operate.recovery.backup import SCRUB_DAYS, plan_scrub

DAY = 86_400_000
LARGE = {f"tables/t/{number}.parquet.{number:08x}": 10 << 20 for number in range(1000)}


@pytest.mark.parametrize("seed", range(5))
def test_every_file_is_read_within_the_stated_time(seed: int) -> None:
    """However unevenly backups are made: counted from the file's turn before."""
    random = Random(seed)
    moments, now = [0], 1_700_000_000_000
    for _ in range(200):
        now += random.randint(1, 3 * DAY)
        moments.append(now)
    moments[0] = moments[1] - DAY
    read = {name: [moments[0]] for name in LARGE}
    for last, this in pairwise(moments):
        for name in plan_scrub(LARGE, last, this).due:
            read[name].append(this)
    longest = max(later - earlier for times in read.values() for earlier, later in pairwise([*times, now]))
    assert longest <= (SCRUB_DAYS + 3) * DAY + DAY


def test_a_daily_backup_reads_its_share() -> None:
    now = 1_700_000_000_000
    shares = [len(plan_scrub(LARGE, now + day * DAY, now + (day + 1) * DAY).due) for day in range(SCRUB_DAYS)]
    assert sum(shares) == len(LARGE)
    assert max(shares) < 3 * len(LARGE) / SCRUB_DAYS


def test_a_small_backup_and_the_first_after_a_loss_are_read_whole() -> None:
    few = dict(list(LARGE.items())[:20])
    assert plan_scrub(few, 1, 2).due == few
    assert plan_scrub(LARGE, None, 2).due == LARGE


def test_what_a_kill_has_left_is_not_read() -> None:
    assert plan_scrub({"tables/t/a.parquet.0000000a": 1, "tables/t/.tmp-12": 5, "x.json": 5}, None, 2).due == {
        "tables/t/a.parquet.0000000a": 1
    }
