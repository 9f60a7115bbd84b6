"""A folded feed: the log begins at the oldest version that is needed, and what only older ones named is gone."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS, clean, plan_cleanup
from strandline.state_store.delta.entry import hinted_version
from strandline.state_store.files import remove_file
from strandline.state_store.leases import Retention
from strandline.state_store.paths import Location
from strandline.state_store.storage.disk import DiskStorage
from tests.support.warm_process import exit_code
from tests.unit.state_store.delta.test_cleanup import Clock, check, files, lived

DAY = Retention(DAY_MS, fold=True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_the_log_begins_at_the_horizon(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 30, 0.1)
    plan = plan_cleanup(table.path, clock.now, DAY)
    assert plan.fold
    clean(plan)
    assert log.versions(table.path) == list(range(plan.first, plan.version + 1))
    assert 0 < plan.first < plan.version
    check(table, plan)
    assert plan_cleanup(table.path, clock.now, DAY).files == ()


def test_what_a_folded_version_alone_named_goes_at_the_next_fold(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 20, 0.1)
    clean(plan_cleanup(table.path, clock.now, DAY))
    clock.pass_days(2, table.path)
    clean(plan_cleanup(table.path, clock.now, DAY))
    head = reader.head(table.path)
    assert head is not None
    assert log.versions(table.path) == [head.version]
    named = {name for name in files(table) if name.endswith((".parquet", ".bin")) and "_delta_log" not in name}
    live = reader.read_rows(table.path).num_rows
    assert live == 41
    assert len(named) <= 16, "no file of an older version is left, though none is a week old"


def test_the_hint_goes_on_naming_the_newest_checkpoint(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 80, 0.1)
    plan = plan_cleanup(table.path, clock.now, Retention(4 * DAY_MS, fold=True))
    assert 0 < plan.first < 50
    clean(plan)
    assert hinted_version(log.hint_file(table.path)) == 50
    check(table, plan)


def _fold(path: Path, now: int) -> None:
    clean(plan_cleanup(path, now, DAY), now)


def test_a_fold_that_is_killed_is_harmless(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 30, 0.1)
    expected = plan_cleanup(table.path, clock.now, DAY)
    for failpoint in ("before-checkpoint:1", "after-checkpoint:1", "inside-cleanup:1", "inside-cleanup:9"):
        assert exit_code(_fold, table.path, clock.now, failpoint=failpoint) == -signal.SIGKILL, failpoint
        check(table, expected)
    assert exit_code(_fold, table.path, clock.now) == 0
    check(table, expected)
    assert log.versions(table.path)[0] == expected.first


def test_a_fold_that_is_killed_before_its_hint_leaves_no_hint_to_an_entry_that_goes(
    tmp_path: Path, clock: Clock
) -> None:
    table = lived(tmp_path, clock, 70, 0.1)
    expected = plan_cleanup(table.path, clock.now, DAY)
    assert 50 < expected.first < expected.version
    assert exit_code(_fold, table.path, clock.now, failpoint="before-hint:1") == -signal.SIGKILL
    assert hinted_version(log.hint_file(table.path)) == 50
    # The checkpoint is there by now; killed once more, with the entry of version 50 gone and others not.
    assert exit_code(_fold, table.path, clock.now, failpoint="inside-cleanup:52") == -signal.SIGKILL
    assert log.newest_version(table.path) == expected.version
    assert exit_code(_fold, table.path, clock.now) == 0
    assert log.versions(table.path)[0] == expected.first
    assert log.newest_version(table.path) == expected.version
    check(table, expected)


@pytest.mark.parametrize("kept", [[], [60, 61]])
def test_a_hint_to_an_entry_that_is_gone_is_passed_over(tmp_path: Path, clock: Clock, kept: list[int]) -> None:
    """As a removal of the folder leaves it that was killed, or a clean-up by another tool."""
    table = lived(tmp_path, clock, 61, 0.1)
    assert hinted_version(log.hint_file(table.path)) == 50
    for version in log.versions(table.path):
        if version not in kept:
            remove_file(log.commit_file(table.path, version))
    for path in (table.path, Location(DiskStorage(tmp_path)) / table.path.name):
        assert log.newest_version(path) == max(kept, default=None)
