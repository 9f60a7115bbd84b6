"""Followers killed at each step: what is stored is a version as the table has it, or is not served; and it goes on."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import closing
from pathlib import Path

import pytest

from strandline.state_store.replicas import follow
from strandline.state_store.replicas.follow import RestoreProgress
from strandline.state_store.replicas.state import Phase
from strandline.state_store.replicas.store import check_backup
from tests.support.examples import AT_LENGTH
from tests.support.killed_follower import PIECE_ROWS, started
from tests.support.replica_backends import Backend
from tests.support.replicated import Replicated, assert_equal, rows_of
from tests.support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[4]

FAILPOINTS = (
    "after-replica-clear",
    "inside-replica-restore:1",
    "inside-replica-restore:5",
    "before-replica-verified",
    "before-replica-write:1",
    "before-replica-write:3",
    "after-replica-write:1",
    "after-replica-write:2",
    "inside-replica-backup",
    "before-replica-backup-named",
)
# The first writes are those of the restore, the last ones those of the feed.
_OF_EACH_PHASE = ("after-replica-clear", "inside-replica-restore:5", "after-replica-write:1")
KILLS_AT_LENGTH = 70
"""At random moments, of each of the three lasting backends: 210 in all."""
DYNAMODB_ONLY = ("inside-dynamodb-write:2", "inside-dynamodb-write:5", "inside-dynamodb-write:12")


def test_every_failpoint_of_replicas_is_here() -> None:
    named = {
        line.split('failpoint("')[1].split('"')[0]
        for path in (ROOT / "state_store" / "replicas").rglob("*.py")
        for line in path.read_text().splitlines()
        if 'failpoint("' in line
    }
    assert named == {name.partition(":")[0] for name in (*FAILPOINTS, *DYNAMODB_ONLY)}


def check(made: Replicated, backend: Backend) -> Phase:
    """What a kill has left is the table at the replica's version, or is not served; its backups are whole."""
    with closing(made.replica(backend)) as replica:
        if replica.state.phase is Phase.VERIFIED:
            assert_equal(replica, made.table)
        phase = replica.state.phase
    for backup in made.folder.glob("backup-*"):
        check_backup(backup)
    return phase


@pytest.mark.kill
@pytest.mark.parametrize("kind", ["keyed", "counted"])
def test_a_follower_killed_anywhere_goes_on(lasting: Backend, kind: str, tmp_path: Path) -> None:
    """Each kill meets what the one before has left; between them the table goes on."""
    if lasting.name != "rocksdb" and kind == "counted":
        pytest.skip("counts are above the backend")
    made = Replicated(tmp_path, kind, per_epoch=30)
    made.epochs(3)
    failpoints = FAILPOINTS
    if lasting.name == "dynamodb":
        failpoints = (*(FAILPOINTS if AT_LENGTH else _OF_EACH_PHASE), *DYNAMODB_ONLY)
    phases = set()
    for number, failpoint in enumerate(failpoints):
        made.epochs(3, seed=number + 1)
        # A second round begins anew, so that every failpoint is passed.
        process = started(tmp_path, kind, lasting, failpoint, rounds=3)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == -signal.SIGKILL, failpoint
        phases.add(check(made, lasting))
    assert phases == {Phase.REGISTERED, Phase.RESTORING, Phase.VERIFIED}
    process = started(tmp_path, kind, lasting)
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 0
    with closing(made.replica(lasting)) as replica:
        assert assert_equal(replica, made.table) == 3 + 3 * len(failpoints)


@pytest.mark.kill
def test_a_follower_killed_at_random_goes_on(lasting: Backend, tmp_path: Path) -> None:
    made = Replicated(tmp_path, "counted", per_epoch=30)
    made.epochs(3)
    draw = random.Random(11)
    kills = KILLS_AT_LENGTH if AT_LENGTH else 1 if lasting.name == "dynamodb" else 5
    for number in range(kills):
        made.epochs(2, seed=number + 1)
        process = started(tmp_path, "counted", lasting, rounds=1000)
        time.sleep(draw.uniform(0.0, 0.5))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == -signal.SIGKILL
        check(made, lasting)
    process = started(tmp_path, "counted", lasting)
    process.join(PATIENCE_SECONDS)
    with closing(made.replica(lasting)) as replica:
        assert assert_equal(replica, made.table) == 3 + 2 * kills


@pytest.mark.kill
def test_a_restore_goes_on_where_it_was_killed(
    lasting: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was loaded is not loaded again, and the version is the one that was begun."""
    monkeypatch.setattr(follow, "PIECE_ROWS", PIECE_ROWS)
    made = Replicated(tmp_path, "counted", per_epoch=40)
    made.epochs(3)
    process = started(tmp_path, "counted", lasting, "inside-replica-restore:4")
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == -signal.SIGKILL
    made.epochs(1, seed=1)
    with closing(made.replica(lasting)) as replica:
        before = replica.state
        assert before.phase is Phase.RESTORING
        assert 0 < before.rows <= 4 * PIECE_ROWS
        reports: list[RestoreProgress] = []
        made.follower(replica, reports).catch_up()
        assert reports[0].version == 3
        assert reports[0].rows == before.rows
        assert assert_equal(replica, made.table) == 4


def test_a_replica_that_is_read_while_it_is_written_is_always_a_version(lasting: Backend, tmp_path: Path) -> None:
    """Rows and version of one reading belong together, whatever comes between."""
    made = Replicated(tmp_path, "keyed", per_epoch=20)
    made.epochs(2)
    with closing(made.replica(lasting)) as replica:
        made.follower(replica).catch_up()
        with replica.reading() as now:
            made.epochs(1, seed=5)
            made.follower(replica).catch_up()
            assert now.version == 2
            found = sum(batch.num_rows for batch in now.scan())
            assert found == now.state.digest.count
        assert rows_of(replica)[0] == 3
