"""Writers killed at each step of a commit, stopped, and lost_races: nothing is lost, nothing doubled."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from strandline.state_store.delta import reader
from strandline.state_store.errors import WriterBusy
from strandline.state_store.lock import writer_lock
from tests.campaigns.kills import FAILPOINTS, RANDOM, campaign
from tests.support.killed_writer import lost_races, started
from tests.support.on_disk import on_disk
from tests.support.s3_server import S3Server
from tests.support.two_tables import TwoTables
from tests.support.two_tables_hold import assert_hold, orphans, told_in
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[3]


def test_every_failpoint_of_the_commit_path_is_in_the_campaign() -> None:
    named = {
        line.split('failpoint("')[1].split('"')[0]
        for path in (ROOT / "state_store").rglob("*.py")
        for line in path.read_text().splitlines()
        if 'failpoint("' in line and "grep" not in line and "replicas" not in path.parts
    }
    # Compaction, clean-up, whole folders, arrangements and replicas are killed by tests of their own: test_compaction,
    # test_cleanup, test_object_store, test_arrangements, replicas.
    others = {"before-arrangement-named", "inside-arrangement"}
    others |= {"after-compaction-staged", "after-trim-digest", "inside-cleanup", "inside-copy", "inside-removal"}
    assert named - others == set(FAILPOINTS)


@pytest.mark.kill
def test_a_writer_killed_anywhere_loses_nothing(tmp_path: Path) -> None:
    result = campaign(tmp_path, seed=7, kills=[*FAILPOINTS, *[RANDOM] * 4])
    assert set(result.kills) == {*FAILPOINTS, RANDOM}
    assert result.reported <= result.versions


@pytest.mark.kill
def test_a_writer_killed_anywhere_loses_nothing_on_an_object_store(tmp_path: Path, s3_server: S3Server) -> None:
    """A few; `python -m tests.campaigns.kills --s3` does all of them."""
    result = campaign(tmp_path, 7, ["after-link", "before-checkpoint", "before-link", RANDOM], s3_server)
    assert result.kills.total() == 4


@pytest.mark.kill
def test_a_stopped_writer_keeps_the_lock_and_loses_the_race_when_it_is_taken_away(tmp_path: Path) -> None:
    """It is stopped in the middle of an epoch, its lock's file removed, and it goes on when another has written."""
    process = started(tmp_path, events=5, epochs=10_000)
    tables = TwoTables(tmp_path / "root")
    _wait_for(tables, 3)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    lock = on_disk(tables.lake.lock("two"))
    with pytest.raises(WriterBusy, match=f"process {process.pid}"), writer_lock(lock, "another"):
        pass
    lock.unlink()
    with writer_lock(lock, "another"):
        for _ in range(3):
            tables.epoch(5)
        os.kill(process.pid, signal.SIGCONT)
        process.join(PATIENCE_SECONDS)
    assert process.exitcode == 1, "the one that was stopped ends with CommitConflict or LockLost"
    tables.epoch(5)
    assert_hold(tables, told_in(tmp_path / "told"), every_version=True)


@pytest.mark.kill
def test_of_two_racing_writers_one_makes_each_version(tmp_path: Path) -> None:
    """Without the lock: each process loses some races, starts again, and leaves nothing behind."""
    tables = TwoTables(tmp_path / "root")
    tables.ensure()
    lost = lost_races(tmp_path, 2, events=3, epochs=15)
    assert lost > 0, "they never met"
    assert_hold(tables, {})
    head = reader.head(tables.events.path)
    assert head is not None
    assert head.record.offsets == {"source": {"0": 2 * 15 * 3}}
    assert orphans(tables.events) == orphans(tables.latest) == []


def _wait_for(tables: TwoTables, version: int) -> None:
    def has_come() -> bool:
        head = reader.head(tables.latest.path)
        return head is not None and head.version >= version

    wait_until(has_come, lambda: f"version {version} does not come: {reader.head(tables.latest.path)}", 0.005)
