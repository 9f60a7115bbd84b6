"""From nothing to LIVE and behind the head: what is gone, replaced or broken is answered by a new snapshot."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import pytest

from strandline.state_store import leases
from strandline.state_store.commits import TableVersion
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import clean, plan_cleanup
from strandline.state_store.digest import Digest
from strandline.state_store.errors import (
    CorruptState,
    InputReplaced,
    ReplicaDiverged,
    ReplicaNotReady,
    StorageUnavailable,
    TableMissing,
    VersionGone,
)
from strandline.state_store.replicas import follow
from strandline.state_store.replicas.follow import RestoreProgress
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import PREDECESSORS, Layout, Phase, ReplicaState
from strandline.state_store.replicas.store import MemoryStore, Write
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk
from tests.support.replica_backends import Backend
from tests.support.replicated import Replicated, assert_equal
from tests.unit.state_store.delta.test_cleanup import Clock

MEMORY = Backend("memory")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(monkeypatch)
    monkeypatch.setattr(leases, "_now_ms", lambda: made.now)
    return made


def phase_of(replica: Replica) -> Phase:
    """Where it is by now."""
    return replica.state.phase


@pytest.mark.parametrize("kind", ["keyed", "counted"])
def test_a_replica_is_restored_and_follows(backend: Backend, kind: str, tmp_path: Path) -> None:
    made = Replicated(tmp_path, kind)
    made.epochs(4)
    reports: list[RestoreProgress] = []
    with closing(made.replica(backend)) as replica:
        assert phase_of(replica) is Phase.REGISTERED
        follower = made.follower(replica, reports)
        assert follower.catch_up().version == 4
        assert phase_of(replica) is Phase.LIVE
        assert assert_equal(replica, made.table) == 4
        for number in range(5):
            made.epochs(2, seed=number + 1)
            at = follower.catch_up()
            assert at == reader.version_at(made.table.path, 6 + 2 * number)
            assert assert_equal(replica, made.table) == at.version
        assert reports[-1].version == 4, "it was restored once"
        before = replica.state
        assert follower.catch_up() == at
        assert replica.state == before
    if backend.name == "memory":
        return
    with closing(made.replica(backend)) as replica:
        assert phase_of(replica) is Phase.VERIFIED, "LIVE is never stored"
        made.epochs(1, seed=9)
        assert made.follower(replica, reports).catch_up().version == 15
        assert assert_equal(replica, made.table) == 15
        assert reports[-1].version == 4


class LosesAnswers(MemoryStore):
    """A store that does a write, and does not say so.

    Attributes:
        after: so many writes from now on; 0: never.
    """

    after = 0

    def write(self, write: Write) -> None:
        super().write(write)
        self._answer()

    def clear(self, state: bytes) -> None:
        super().clear(state)
        self._answer()

    def _answer(self) -> None:
        self.after -= 1
        if self.after == 0:
            raise StorageUnavailable("no answer")


@pytest.mark.parametrize("kind", ["keyed", "counted"])
@pytest.mark.parametrize("restored", [True, False])
@pytest.mark.parametrize("after", range(1, 6))
def test_a_write_that_has_no_answer_is_not_done_twice(kind: str, restored: bool, after: int, tmp_path: Path) -> None:
    made = Replicated(tmp_path, kind)
    made.epochs(3)
    store, reports = LosesAnswers(), list[RestoreProgress]()
    replica = Replica("r", store, made.layout())
    follower = made.follower(replica, reports)
    if restored:
        assert follower.catch_up().version == 3
        made.epochs(5, seed=7)
    store.after = after
    with pytest.raises(StorageUnavailable):
        follower.catch_up()
    newest = log.newest_version(made.table.path)
    assert follower.catch_up().version == newest
    assert assert_equal(replica, made.table) == newest
    assert {each.version for each in reports} == {3}, "it was restored once"


def test_an_empty_table_has_an_empty_replica(backend: Backend, tmp_path: Path) -> None:
    made = Replicated(tmp_path, "keyed")
    with closing(made.replica(backend)) as replica:
        assert made.follower(replica).catch_up().version == 0
        made.epochs(1)
        made.follower(replica).catch_up()
        assert assert_equal(replica, made.table) == 1


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    made = Replicated(tmp_path, "keyed")
    shutil.rmtree(on_disk(made.table.path))
    with closing(made.replica(MEMORY)) as replica, pytest.raises(TableMissing):
        made.follower(replica).catch_up()


def test_a_restore_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PIECE_ROWS", 3)
    made = Replicated(tmp_path, "counted", per_epoch=10)
    made.epochs(3)
    reports: list[RestoreProgress] = []
    with closing(made.replica(MEMORY)) as replica:
        made.follower(replica, reports).catch_up()
        total = replica.state.digest.count
    assert reports[0].rows == 0
    assert reports[0].seconds_left is None
    assert [report.rows for report in reports] == sorted({report.rows for report in reports})
    assert reports[-1].rows == reports[-1].total == total
    assert reports[-1].seconds_left == 0
    assert str(RestoreProgress(7, 250, 1000, 2.0, 50)) == "version 7: 250 of 1,000 rows (25%), 8 s left"


def test_a_feed_that_is_gone_is_answered_by_a_new_snapshot(lasting: Backend, tmp_path: Path, clock: Clock) -> None:
    """The replica was away for longer than its lease, and clean-up has removed what it would go on from."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    reports: list[RestoreProgress] = []
    with closing(made.replica(lasting)) as replica:
        made.follower(replica, reports).catch_up()
    for number in range(60):
        made.epochs(1, seed=number + 1)
        clock.pass_days(2, made.table.path)
    clean(plan_cleanup(made.table.path, clock.now))
    with pytest.raises(VersionGone):
        reader.read_changes(made.table.path, 3)
    with closing(made.replica(lasting)) as replica:
        assert replica.state.at is not None
        assert replica.state.at.version == 3
        assert made.follower(replica, reports).catch_up().version == 63
        assert assert_equal(replica, made.table) == 63
    assert reports[-1].version == 63


def test_a_lease_keeps_the_feed_of_a_replica_that_is_slow(tmp_path: Path, clock: Clock) -> None:
    """It is months behind, and renews its lease: clean-up leaves what it goes on from."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    reports: list[RestoreProgress] = []
    with closing(made.replica(MEMORY)) as replica:
        follower = made.follower(replica, reports)
        follower.catch_up()
        for number in range(30):
            made.epochs(1, seed=number + 1)
            clock.pass_days(4, made.table.path)
            leases.ReaderLease(made.table.path, "reader").publish(3)
        plan = plan_cleanup(made.table.path, clock.now)
        assert plan.first == 3
        clean(plan)
        assert follower.catch_up().version == 33
        assert assert_equal(replica, made.table) == 33
        assert {report.version for report in reports} == {3}
        follower.leave()
    assert leases.living(made.table.path, clock.now) == []
    assert plan_cleanup(made.table.path, clock.now).first > 3


def test_the_lease_is_published_before_anything_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Replicated(tmp_path, "keyed")
    made.epochs(2)
    seen: list[int] = []

    def noted(table: Path, replica: Replica, report: object) -> None:
        seen.extend(lease.version for lease in leases.living(table, log.now_ms()))
        raise KeyboardInterrupt

    monkeypatch.setattr(follow, "restore", noted)
    with closing(made.replica(MEMORY)) as replica, pytest.raises(KeyboardInterrupt):
        made.follower(replica).catch_up()
    assert seen == [2]


def test_compaction_and_another_tools_optimize_are_followed(tmp_path: Path) -> None:
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    reports: list[RestoreProgress] = []
    with closing(made.replica(MEMORY)) as replica:
        follower = made.follower(replica, reports)
        follower.catch_up()
        delta_rs(made.table.path).optimize.compact()
        before = replica.state.digest
        version = follower.catch_up().version
        assert version == log.newest_version(made.table.path)
        assert version > 3
        assert replica.state.digest == before
        made.epochs(1, seed=5)
        assert follower.catch_up().version == version + 1
        assert assert_equal(replica, made.table) == version + 1
    assert {report.version for report in reports} == {3}


def test_a_table_that_was_made_anew_is_restored_anew(lasting: Backend, tmp_path: Path) -> None:
    """Its versions have the same numbers and are others; so has a table that went back and went on."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(3)
    with closing(made.replica(lasting)) as replica:
        made.follower(replica).catch_up()
        shutil.rmtree(on_disk(made.table.path))
        again = Replicated(tmp_path, "keyed")
        again.epochs(5, seed=7)
        assert again.follower(replica).catch_up().version == 5
        assert assert_equal(replica, again.table) == 5
        for version in (4, 5):
            on_disk(log.commit_file(again.table.path, version)).unlink()
        again.rows = again.table.stored(3)
        again.epochs(1, seed=8)
        assert again.follower(replica).catch_up().version == 4
        assert assert_equal(replica, again.table) == 4


def test_a_replica_that_is_not_as_it_was_is_restored_anew(backend: Backend, tmp_path: Path) -> None:
    """A row was lost below it: the next version's changes do not fit, or its digest at the end."""
    made = Replicated(tmp_path, "keyed", per_epoch=12)
    made.epochs(3)
    reports: list[RestoreProgress] = []
    with closing(made.replica(backend)) as replica:
        follower = made.follower(replica, reports)
        follower.catch_up()
        with replica._store.snapshot() as now:
            keys = [key for key, _ in now.range(b"r", b"s")]
        replica._store.write(Write(replica.state.to_bytes(), keys, [None] * len(keys)))
        with replica.reading() as now, pytest.raises(CorruptState, match="the replica has 0 rows"):
            list(now.scan())
        made.epochs(1, seed=4)
        follower.catch_up()
        assert assert_equal(replica, made.table) == 4
    assert {report.version for report in reports} == {3, 4}


def test_a_table_whose_digest_no_restore_reaches_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many restores as it takes to be sure; and the rows are never served."""
    made = Replicated(tmp_path, "keyed")
    made.epochs(2)
    reports: list[RestoreProgress] = []
    monkeypatch.setattr(follow, "_expected", lambda *_: Digest(1, 2, 3))
    with closing(made.replica(MEMORY)) as replica:
        with pytest.raises(ReplicaDiverged, match="are not those of version 2"):
            made.follower(replica, reports).catch_up()
        assert sum(report.rows == 0 for report in reports) == follow.ATTEMPTS
        with pytest.raises(ReplicaNotReady), replica.reading():
            pass


def test_a_replica_of_other_columns_is_refused(tmp_path: Path) -> None:
    made = Replicated(tmp_path, "keyed")
    made.epochs(1)
    schema = made.layout().schema
    replica = Replica("r", MEMORY.open(tmp_path), Layout(schema.remove(1), ("town",)))
    with pytest.raises(InputReplaced, match="the columns of 'keyed' are others"):
        made.follower(replica).catch_up()


def test_the_phases_follow_each_other_as_the_table_says() -> None:
    for phase in Phase:
        for before in Phase:
            state = ReplicaState("layout", phase=before)
            if before in PREDECESSORS[phase]:
                assert state.entering(phase).phase is phase
            else:
                with pytest.raises(ValueError, match="cannot become"):
                    state.entering(phase)
    assert Phase.LIVE not in {after for after in Phase if Phase.RESTORING in PREDECESSORS[after]}
    assert PREDECESSORS[Phase.LIVE] == {Phase.VERIFIED, Phase.LIVE}


def test_a_state_comes_back_and_a_broken_one_is_told() -> None:
    state = ReplicaState("layout", Phase.RESTORING, TableVersion(3, "t", "n"), file="ä/part", file_rows=7, rows=9)
    stored = state.to_bytes()
    assert ReplicaState.from_bytes(stored) == state
    for place in range(len(stored)):
        broken = bytearray(stored)
        broken[place] ^= 1
        with pytest.raises(CorruptState):
            ReplicaState.from_bytes(bytes(broken))
