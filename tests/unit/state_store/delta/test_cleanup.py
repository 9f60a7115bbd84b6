"""Clean-up: what no kept version needs goes, and every version within the horizon can still be read."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS, ORPHAN_DAYS, CleanupPlan, clean, plan_cleanup
from strandline.state_store.delta.data_files import stage_files, stage_rows
from strandline.state_store.delta.entry import hinted_version
from strandline.state_store.delta.merging import maintain_files
from strandline.state_store.delta.rows import changes_of
from strandline.state_store.errors import TableMissing, VersionGone
from strandline.state_store.files import remove_file
from strandline.state_store.leases import Retention
from strandline.state_store.paths import LakePath, Location
from strandline.state_store.storage_disk import DiskStorage
from strandline.state_store.tablespec import RECOVERY_HORIZON_DAYS, WEIGHT
from tests.support.arrow_table import ArrowTable
from tests.support.keyed_table import SCHEMA, SPEC, having, made, rows
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk
from tests.support.warm_process import exit_code

START = 1_000 * DAY_MS


class Clock:
    """A clock that commits and files go by."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        monkeypatch.setattr(log, "now_ms", lambda: self.now)

    def pass_days(self, days: float, folder: LakePath) -> None:
        """Time passes; files that were written since the last time are of the moment before."""
        self._date(folder)
        self.now += int(days * DAY_MS)

    def _date(self, folder: LakePath) -> None:
        top = on_disk(folder)
        for each in [top, *top.rglob("*")]:
            if each.stat().st_mtime_ns > self.now * 1_000_000:
                os.utime(each, ns=(self.now * 1_000_000,) * 2)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def lived(tmp_path: Path, clock: Clock, commits: int = 70, days: float = 2) -> ArrowTable:
    """A table with a commit every other day, each of which takes a row away, compacted as it goes."""
    table = made(tmp_path)
    for number in range(commits):
        head = table.apply(rows(range(number * 3, number * 3 + 3)), having([number * 3 - 2]))
        maintain_files(table.path, SPEC, head)
        clock.pass_days(days, table.path)
    return table


def files(table: ArrowTable) -> set[str]:
    folder = on_disk(table.path)
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def check(table: ArrowTable, plan: CleanupPlan, *, theirs: bool = True) -> None:
    """Versions from `first` on read, for delta-rs too, and the feed leads to each of them."""
    head = reader.head(table.path)
    assert head is not None
    start = Counter(map(str, table.stored(plan.first)))
    for version in {*range(plan.first, head.version, 7), head.version}:
        expected = table.stored(version)
        if theirs:
            found = reader.read_rows(table.path, version, SCHEMA.names).to_pylist()
            assert Counter(map(str, found)) == Counter(map(str, expected))
        folded = Counter(start)
        for number in range(plan.first + 1, version + 1):
            changes = changes_of(table.path, log.read_commit(table.path, number), SCHEMA).select(
                [*SCHEMA.names, WEIGHT]
            )
            for row in changes.to_pylist():
                weight = row.pop(WEIGHT)
                folded[str(row)] += weight
        assert +folded == Counter(map(str, expected))


def test_a_young_table_is_left_as_it_is(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 25, 1)
    plan = plan_cleanup(table.path, clock.now)
    assert plan.files == ()
    assert plan.first == 0
    assert str(plan) == "'t' at version 26, kept from version 0 on"
    with pytest.raises(TableMissing):
        plan_cleanup(tmp_path / "none", clock.now)


def test_what_is_past_the_horizon_goes_and_the_rest_can_be_read(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock)
    plan = plan_cleanup(table.path, clock.now)
    horizon = clock.now - RECOVERY_HORIZON_DAYS * DAY_MS
    times = {n: log.read_commit(table.path, n).timestamp for n in log.versions(table.path)}
    assert plan.first == max(n for n, time in times.items() if time <= horizon)
    sizes = sum(on_disk(table.path / name).stat().st_size for name in files(table))
    assert clean(plan) == sizes - sum(on_disk(table.path / name).stat().st_size for name in files(table))
    kept = log.versions(table.path)
    assert kept[0] == max(n for n in range(0, plan.first + 1, 50))
    assert kept == list(range(kept[0], plan.version + 1))
    check(table, plan)
    with pytest.raises(VersionGone):
        reader.version_at(table.path, kept[0] - 1)
    with pytest.raises(VersionGone):
        table.stored(kept[0] - 1)
    with pytest.raises(VersionGone):
        reader.read_changes(table.path, 0)
    assert plan_cleanup(table.path, clock.now).files == ()
    # The folders of files that went are gone with them.
    assert all(any(each.iterdir()) for each in on_disk(table.path).iterdir() if each.is_dir())
    assert delta_rs(table.path).version() == plan.version


def test_an_idle_table_keeps_its_last_rows_for_ever(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock, 20)
    clock.pass_days(365, table.path)
    before = reader.read_rows(table.path)
    plan = plan_cleanup(table.path, clock.now)
    assert plan.first == plan.version
    clean(plan)
    check(table, plan)
    assert reader.read_rows(table.path) == before
    # Without a checkpoint the log is the only way to the rows.
    assert log.versions(table.path)[0] == 0


def test_files_of_a_running_epoch_stay_and_what_a_dead_one_left_goes(tmp_path: Path, clock: Clock) -> None:
    table = made(tmp_path)
    table.apply(rows(range(3)))
    alone = stage_rows(pa.Table.from_pylist(rows(range(9)), SCHEMA), table.path, 2)
    dead = stage_files([[each] for each in [pa.Table.from_pylist(rows(range(9)), SCHEMA)] * 2], SCHEMA, table.path, 2)
    on_disk(dead.folder / ".part-0.parquet.crc").write_bytes(b"crc")
    on_disk(table.path / "epoch-000000002-0bad0bad").mkdir()
    on_disk(table.path / "deletion_vector_0.bin").write_bytes(b"")
    on_disk(table.path / "_delta_log" / ".5.json.x.tmp").write_bytes(b"{}")
    gone = {*dead.files, *alone.files}
    (live,) = {each for each in on_disk(table.path).rglob("*.parquet") if each not in gone}
    (live.parent / f".{live.name}.crc").write_bytes(b"crc")
    clock.pass_days(ORPHAN_DAYS - 0.5, table.path)
    running = stage_rows(pa.Table.from_pylist(rows(range(9)), SCHEMA), table.path, 2)
    assert plan_cleanup(table.path, clock.now).files == ()
    clock.pass_days(1, table.path)
    plan = plan_cleanup(table.path, clock.now)
    clean(plan)
    assert len(plan.files) == 7
    assert files(table) == {
        *(f"_delta_log/{n:020d}.json" for n in (0, 1)),
        live.relative_to(on_disk(table.path)).as_posix(),
        f".{live.name}.crc",
        running.files[0].name,
    }
    left = {each.name for each in on_disk(table.path).iterdir()}
    assert left == {"_delta_log", live.name, f".{live.name}.crc", running.files[0].name}


def test_a_file_that_was_committed_after_the_plan_is_spared(tmp_path: Path, clock: Clock) -> None:
    """However long its epoch took."""
    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.delta.commit import RowChanges, commit

    table = made(tmp_path)
    head = table.apply(rows(range(3)))
    slow = stage_rows(pa.Table.from_pylist(rows(range(5, 9)), SCHEMA), table.path, 2)
    clock.pass_days(ORPHAN_DAYS + 1, table.path)
    plan = plan_cleanup(table.path, clock.now)
    assert [each.name for each in plan.files] == [slow.files[0].name]
    commit(table.path, head, CommitRecord(epoch=2), RowChanges(slow))
    assert clean(plan) == 0
    assert len(table.stored(2)) == 7


def test_a_broken_checkpoint_is_none(tmp_path: Path, clock: Clock) -> None:
    """The log goes down to the last one that reads back."""
    table = lived(tmp_path, clock, 116)
    first = plan_cleanup(table.path, clock.now).first
    assert first > 100
    broken = on_disk(log.checkpoint_file(table.path, 100))
    broken.write_bytes(broken.read_bytes()[:-9])
    plan = plan_cleanup(table.path, clock.now)
    clean(plan)
    assert log.versions(table.path)[0] == 50
    # delta-rs takes the broken one, and stops.
    check(table, plan, theirs=False)


def test_the_record_that_the_kept_log_goes_by_is_kept(tmp_path: Path, clock: Clock) -> None:
    """The commit of the checkpoint may be another tool's compaction, which has none."""
    table = made(tmp_path)
    for number in range(49):
        table.apply(rows(range(number, number + 1)))
    delta_rs(table.path).optimize.compact()
    from strandline.state_store.delta.commit import make_checkpoint

    make_checkpoint(table.path, 50)
    clock.pass_days(40, table.path)
    # Another tool's commit has the time of the real clock, which is later.
    text = on_disk(log.commit_file(table.path, 50)).read_text()
    stamp = text.split('"timestamp":')[1].split(",")[0].rstrip("}")
    on_disk(log.commit_file(table.path, 50)).write_text(text.replace(f'"timestamp":{stamp}', f'"timestamp":{START}'))
    clean(plan_cleanup(table.path, clock.now))
    assert log.versions(table.path) == [49, 50]
    head = reader.head(table.path)
    assert head is not None
    assert head.record.epoch == 49


def test_a_hint_to_an_entry_that_goes_goes_too(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk was full, or the writer was killed, between the checkpoint of version 100 and the hint to it."""
    table = lived(tmp_path, clock, 60, 1)
    with monkeypatch.context() as patched:
        patched.setattr("strandline.state_store.delta.checkpoint.write_hint", lambda *_, **__: None)
        for number in range(60, 110):
            table.apply(rows(range(number, number + 1)))
    assert hinted_version(log.hint_file(table.path)) == 50
    clock.pass_days(40, table.path)
    plan = plan_cleanup(table.path, clock.now)
    clean(plan)
    assert log.versions(table.path)[0] == 100
    assert hinted_version(log.hint_file(table.path)) is None
    assert log.newest_version(table.path) == plan.version > 100
    check(table, plan)


def _clean(path: Path, now: int) -> None:
    clean(plan_cleanup(path, now))


def test_a_clean_up_that_is_killed_is_harmless(tmp_path: Path, clock: Clock) -> None:
    table = lived(tmp_path, clock)
    expected = plan_cleanup(table.path, clock.now)
    hits = [1, 7, 20, 10_000]
    for hit in hits:
        ended = exit_code(_clean, table.path, clock.now, failpoint=f"inside-cleanup:{hit}")
        assert ended == (0 if hit == hits[-1] else -signal.SIGKILL)
        check(table, expected)
    # Folders that a kill left empty are young again, and go another time.
    assert not [each for each in plan_cleanup(table.path, clock.now).files if each.name.endswith("parquet")]
    assert expected.files
    assert not any(on_disk(table.path / each.name).is_file() for each in expected.files)


# A folded feed: the log begins at the oldest version that is needed, and what only older ones named is gone.

DAY = Retention(DAY_MS, fold=True)


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
    assert len(named) <= 18, "no file of an older version is left, though none is a week old"


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
