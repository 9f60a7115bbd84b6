"""Snapshots that follow the log are those that are read from nothing, whatever happens to the table in between."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from strandline.state_store.delta import commit as commits
from strandline.state_store.delta import log, snapshot
from strandline.state_store.delta.cleanup import DAY_MS, clean, plan_cleanup
from strandline.state_store.delta.commit import RowChanges, make_checkpoint
from strandline.state_store.delta.compaction import FANOUT, compact, plan_compaction
from strandline.state_store.delta.snapshot import Snapshot, Snapshots, read_snapshot
from strandline.state_store.errors import TableMissing, VersionGone
from strandline.state_store.files import Remembered
from tests.support.arrow_table import ArrowTable
from tests.support.examples import examples
from tests.support.keyed_table import head_of, made, rows
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk


def same(one: Snapshot, other: Snapshot) -> bool:
    """True if they are one table at one version, whether its actions come from a checkpoint or from the commits."""
    return all(
        plain(getattr(one, name)) == plain(getattr(other, name))
        for name in ("version", "metadata", "protocol", "files", "transactions")
    ) and list(one.files) == list(other.files)


def plain(value: Any) -> Any:
    """Without what a checkpoint leaves out: absent members, members that we do not know, and what is news."""
    if not isinstance(value, Mapping):
        return value
    unknown = ("dataChange", "baseRowId", "defaultRowCommitVersion", "clusteringProvider")
    return {name: plain(each) for name, each in value.items() if each is not None and name not in unknown}


OPERATIONS = st.lists(
    st.sampled_from(
        [
            "insert",
            "insert",
            "update",
            "delete",
            "compact",
            "their compact",
            "checkpoint",
            "clean",
            "copy",
            "restore",
            "make anew",
            "touch",
        ]
    ),
    min_size=4,
    max_size=24,
)


@given(operations=OPERATIONS, seed=st.randoms(use_true_random=False), skipping=st.booleans())
@settings(max_examples=examples(25))
def test_any_history_gives_the_snapshots_that_are_read(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str], seed: random.Random, skipping: bool
) -> None:
    table, cache = made(tmp_path_factory.mktemp("history")), Snapshots()
    for operation in ["insert"] * (FANOUT - 1) + operations:
        _written(operation, table, seed)
        _kept_up(operation, table)
        _replaced(operation, table, seed)
        newest = head_of(table).version
        first = _first_to_be_read(table)
        for version in (seed.randint(first, newest), newest, newest):
            if not skipping or seed.random() < 0.3:
                assert same(cache.at(table.path, version), read_snapshot(table.path, version))


def _first_to_be_read(table: ArrowTable) -> int:
    """The version of the oldest checkpoint, once the log does not begin with version 0: clean-up leaves the entry of
    our last record, which stands below the checkpoint when another tool has committed since."""
    if log.versions(table.path)[0] == 0:
        return 0
    return log.checkpoints(table.path, upto=head_of(table).version)[0]


def _written(operation: str, table: ArrowTable, seed: random.Random) -> None:
    match operation:
        case "insert":
            start = seed.randrange(10**6)
            table.apply(rows(range(start, start + seed.randrange(1, 20))))
        case "update":
            table.apply(rows(range(5), str(seed.random())), lambda row: row["k"] % 3 == 0)
        case "delete":
            table.apply(gone=lambda row: row["k"] % 3 == 1)


def _kept_up(operation: str, table: ArrowTable) -> None:
    match operation:
        case "compact":
            head = head_of(table)
            snapshot = read_snapshot(table.path, head.version)
            plan = plan_compaction(snapshot)
            if plan.merges:
                compact(table.path, table.spec, head, snapshot, plan)
        case "their compact":
            delta_rs(table.path).optimize.compact()
        case "checkpoint":
            make_checkpoint(table.path, head_of(table).version)
        case "clean":
            clean(plan_cleanup(table.path, log.now_ms() + 40 * DAY_MS))


def _replaced(operation: str, table: ArrowTable, seed: random.Random) -> None:
    path = on_disk(table.path)
    copy = path.with_name("copy")
    match operation:
        case "copy":
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(path, copy)
        case "restore" if copy.exists():
            shutil.rmtree(path)
            shutil.copytree(copy, path)
        case "make anew":
            versions = head_of(table).version
            shutil.rmtree(path)
            made(path.parent)
            for _ in range(seed.randrange(versions + 1)):
                table.apply(rows(range(seed.randrange(1, 9))))
        case "touch":
            for file in path.glob("_delta_log/*.json"):
                os.utime(file)


def test_only_what_came_after_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, cache = made(tmp_path), Snapshots()
    table.apply(rows(range(3)))
    cache.at(table.path, 1)
    monkeypatch.setattr(snapshot, "read_snapshot", None)
    read: list[int] = []
    entry = snapshot._read_entry

    def told(file: Path) -> tuple[object, bytes]:
        read.append(int(file.stem))
        return entry(file)

    monkeypatch.setattr(snapshot, "_read_entry", told)
    for number in (2, 3):
        table.apply(rows(range(number, number + 1)))
    before = cache.at(table.path, 1)
    assert cache.at(table.path, 3) is cache.at(table.path, 3)
    assert cache.at(table.path, 1) is before
    assert read == [2, 3]
    assert len(before.files) == 1


def test_a_history_that_was_rolled_back_and_went_on_is_read_anew(tmp_path: Path) -> None:
    """The version is the same number again, and the file of its entry may have the same time."""
    table, cache = made(tmp_path), Snapshots()
    table.apply(rows(range(3)))
    path = on_disk(table.path)
    shutil.copytree(path, tmp_path / "copy")
    head = table.apply(rows(range(3, 6)))
    entry = on_disk(log.commit_file(table.path, 2))
    times, lost = entry.stat(), cache.at(table.path, 2)
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "copy", path)
    with pytest.raises(VersionGone):
        cache.at(table.path, 2)
    again = table.apply(rows(range(6, 9)))
    os.utime(entry, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert again.version == head.version
    found = cache.at(table.path, 2)
    assert found.files.keys() != lost.files.keys()
    assert same(found, read_snapshot(table.path, 2))


def test_a_commit_takes_rows_away_by_the_snapshots_that_its_process_keeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, cache = made(tmp_path), Snapshots()
    head = table.apply(rows(range(3)))
    (name,) = cache.at(table.path, 1).files
    monkeypatch.setattr(commits, "read_snapshot", None)
    for number in range(3):
        record = replace(head.record, epoch=head.record.epoch + 1, digest="")
        head = commits.commit(table.path, head, record, RowChanges(None, {name: BitMap64([number])}), cache)
    assert cache.at(table.path, head.version).files == {}


def test_a_table_that_is_gone_is_missing(tmp_path: Path) -> None:
    table, cache = made(tmp_path), Snapshots()
    cache.at(table.path, 0)
    shutil.rmtree(on_disk(table.path))
    with pytest.raises(TableMissing):
        cache.at(table.path, 0)


def test_no_more_tables_are_kept_than_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, cache = made(tmp_path / "a"), made(tmp_path / "b"), Snapshots(tables=1, files=0)
    kept = cache.at(first.path, 0)
    assert cache.at(first.path, 0) is kept
    cache.at(second.path, 0)
    assert cache.at(first.path, 0) is not kept
    cache.forget(first.path)
    assert cache.at(first.path, 0) is not kept


@pytest.mark.parametrize("replaced", [False, True])
def test_the_snapshot_of_a_commit_is_known_to_who_made_it_as_long_as_the_entry_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, replaced: bool
) -> None:
    table, cache = made(tmp_path), Snapshots()
    before = table.apply(rows(range(3)))
    (name,) = cache.at(table.path, 1).files
    record = replace(before.record, epoch=before.record.epoch + 1, digest="")
    head = commits.commit(table.path, before, record, RowChanges(None, {name: BitMap64([0, 1])}), cache)
    if replaced:
        entry = on_disk(log.commit_file(table.path, head.version))
        entry.unlink()
        commits.commit(table.path, before, record, RowChanges(None, {name: BitMap64([2])}))
    else:
        monkeypatch.setattr(snapshot, "decode", None)
    found = cache.at(table.path, head.version)
    assert [body["deletionVector"]["cardinality"] for body in found.files.values()] == [1 if replaced else 2]


def test_a_log_is_flushed_before_the_next_version_unless_this_process_made_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path)
    head = table.apply(rows(range(3)))
    flushed: list[object] = []
    monkeypatch.setattr(commits, "sync_folder", flushed.append)
    for number in range(3):
        record = replace(head.record, epoch=head.record.epoch + 1)
        if number == 2:
            monkeypatch.setattr(commits, "_FLUSHED", Remembered())  # as in a process that has just begun
        head = commits.commit(table.path, head, record, RowChanges())
        assert flushed == ([log.log_folder(table.path)] if number == 2 else [])
