"""Large merges are written beside the epochs: what these delete meanwhile is deleted in the new files."""

from __future__ import annotations

import errno
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.state_store.commits import Head
from strandline.state_store.delta import data_files, merging, reader
from strandline.state_store.delta.compaction import Rewritten, rewrite
from strandline.state_store.delta.merging import EVERY, BackgroundMerges, maintain_files
from strandline.state_store.delta.snapshot import Snapshots, read_snapshot
from strandline.state_store.paths import LakePath
from tests.support.arrow_table import ArrowTable
from tests.support.keyed_table import SPEC, having, head_of, made, rows, turns
from tests.support.lakes import below
from tests.support.warm_process import exit_code


class Gate:
    """Holds back the writing of merges."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.begun = 0

    def rewrite(self, *arguments: Any) -> Rewritten:
        self.begun += 1
        assert self.open.wait(60)
        return rewrite(*arguments)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    made = Gate()
    monkeypatch.setattr(merging, "rewrite", made.rewrite)
    return made


@pytest.fixture
def merges(gate: Gate) -> Iterator[BackgroundMerges]:
    made = BackgroundMerges(fewest_rows=1)
    yield made
    gate.open.set()
    made.close()


def grown(tmp_path: Path) -> ArrowTable:
    """A table that looks at its files now: an epoch has made each of them."""
    table = made(tmp_path)
    for epoch in range(turns(table.path, EVERY)):
        table.apply(rows(range(10 * epoch, 10 * epoch + 10)))
    return table


def written(table: ArrowTable, merges: BackgroundMerges, gate: Gate) -> Head | None:
    """The head after the merge, which is written now and committed by the next look."""
    gate.open.set()
    running = merges.of(table.path)
    assert running is not None
    running.exception(60)
    return maintain_files(table.path, SPEC, head_of(table), beside=merges)


def found(table: ArrowTable) -> Counter[str]:
    return Counter(map(repr, table.stored(head_of(table).version)))


def check_digest(table: ArrowTable) -> None:
    head = head_of(table)
    snapshot = read_snapshot(table.path, head.version)
    assert not snapshot.difference
    assert str(reader.digest_of_rows(table.path, snapshot)) == head.record.digest


def test_rows_that_went_meanwhile_are_deleted_in_the_new_file(
    tmp_path: Path, gate: Gate, merges: BackgroundMerges
) -> None:
    table = grown(tmp_path)
    assert maintain_files(table.path, SPEC, head_of(table), beside=merges) is None
    table.apply(rows(range(500, 503)), gone=having([0, 5, 41, 42, 76]))
    table.apply(gone=having([501, 6]))
    before = found(table)
    assert maintain_files(table.path, SPEC, head_of(table), beside=merges) is None, "it is not written yet"
    head = written(table, merges, gate)
    assert head is not None
    assert (head.record.mode, head.record.epoch) == ("compact", head_of(table).record.epoch)
    assert found(table) == before
    assert len(read_snapshot(table.path, head.version).files) < 6
    check_digest(table)
    assert merges.of(table.path) is None
    table.apply(gone=having([1, 2]))
    assert sum(found(table).values()) == sum(before.values()) - 2


def test_a_new_file_of_which_every_row_went_is_not_added(tmp_path: Path, gate: Gate, merges: BackgroundMerges) -> None:
    table = grown(tmp_path)
    assert maintain_files(table.path, SPEC, head_of(table), beside=merges) is None
    assert merges.of(table.path) is not None
    # Of each file one row stays until the next epoch, so that no file goes whole.
    every = {row["k"] for row in table.stored(head_of(table).version)}
    table.apply(rows(range(900, 901)), gone=having({k for k in every if k % 10}))
    head = written(table, merges, gate)
    assert head is not None
    assert Counter(row["k"] for row in table.stored(head.version)) == Counter([*(k for k in every if k % 10 == 0), 900])
    check_digest(table)


def test_a_file_that_left_meanwhile_ends_the_merge(tmp_path: Path, gate: Gate, merges: BackgroundMerges) -> None:
    table = grown(tmp_path)
    assert maintain_files(table.path, SPEC, head_of(table), beside=merges) is None
    assert merges.of(table.path) is not None
    table.apply(gone=having(range(10)))
    before = below(table.path)
    assert written(table, merges, gate) is None
    assert below(table.path) == before, "nothing is left of it"
    assert merges.of(table.path) is None
    check_digest(table)


def test_the_end_of_a_process_commits_what_is_written_and_leaves_no_file(
    tmp_path: Path, gate: Gate, merges: BackgroundMerges
) -> None:
    table = grown(tmp_path)
    maintain_files(table.path, SPEC, head_of(table), beside=merges)
    before = found(table)
    gate.open.set()
    merges.finish()
    assert head_of(table).record.mode == "compact"
    assert found(table) == before
    other = grown(tmp_path / "other")
    maintain_files(other.path, SPEC, head_of(other), beside=merges)
    files = below(other.path)
    merges.close()
    assert below(other.path) == files
    assert head_of(other).record.mode == "create"


def test_a_disk_that_fails_ends_the_merge_and_leaves_no_file(
    tmp_path: Path, gate: Gate, merges: BackgroundMerges, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(file: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(file))

    table = grown(tmp_path)
    before, files = found(table), below(table.path)
    # A file of its own folder, as large ones are: it is flushed when it is whole.
    monkeypatch.setattr(data_files, "_IN_MEMORY_ROWS", 0)
    monkeypatch.setattr(data_files, "sync_file", failing)
    maintain_files(table.path, SPEC, head_of(table), beside=merges)
    assert written(table, merges, gate) is None
    assert (found(table), below(table.path)) == (before, files)
    assert merges.of(table.path) is None


def _merge(path: LakePath) -> None:
    merges = BackgroundMerges(fewest_rows=1)
    head = reader.head(path)
    assert head is not None
    maintain_files(path, SPEC, head, beside=merges)
    merges.finish()


@pytest.mark.kill
@pytest.mark.parametrize(
    "step", ["after-staging:1", "after-compaction-staged:1", "before-log-entry:1", "after-log-entry:1"]
)
def test_a_kill_loses_no_row_and_the_next_one_merges(tmp_path: Path, step: str) -> None:
    table = grown(tmp_path)
    before = found(table)
    assert exit_code(_merge, table.path, failpoint=step) == -signal.SIGKILL
    assert (head_of(table).record.mode == "compact") == ("after-log" in step)
    assert found(table) == before
    if "after-log" not in step:
        _merge(table.path)
    assert head_of(table).record.mode == "compact"
    assert found(table) == before
    check_digest(table)


@pytest.mark.parametrize("seed", range(12))
def test_whenever_a_merge_is_written_the_rows_are_those_of_the_epochs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Gate, merges: BackgroundMerges, seed: int
) -> None:
    monkeypatch.setattr(merging, "EVERY", 2)
    chance, snapshots, wanted = random.Random(seed), Snapshots(), dict[int, str]()
    table, committed = made(tmp_path), 0
    for epoch in range(60):
        new = chance.sample(range(400), chance.randint(2, 12))
        gone = {k for k in wanted if k in new or chance.random() < 0.03}
        table.apply([row for k in new for row in rows(range(k, k + 1), f"e{epoch}")], having(gone))
        wanted = {k: v for k, v in wanted.items() if k not in gone} | {k: f"e{epoch}" for k in new}
        if chance.random() < 0.4:
            gate.open.set()
            running = merges.of(table.path)
            if running is not None:
                running.exception(60)
        else:
            gate.open.clear()
        head = maintain_files(table.path, SPEC, head_of(table), snapshots, merges)
        committed += head is not None
        assert {row["k"]: row["v"] for row in table.stored(head_of(table).version)} == wanted
        check_digest(table)
    assert committed, "no merge was ever committed"
