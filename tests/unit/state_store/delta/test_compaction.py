"""Compaction: files merge by levels, and no reader sees a difference."""

from __future__ import annotations

import io
import json
import logging
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from strandline.state_store.commits import Head
from strandline.state_store.delta import compaction, log, reader
from strandline.state_store.delta.commit import RowChanges, commit
from strandline.state_store.delta.compaction import (
    FANOUT,
    FULL_BYTES,
    REWRITE_ROWS,
    CompactionPlan,
    compact,
    plan_compaction,
)
from strandline.state_store.delta.merging import EVERY, maintain_files
from strandline.state_store.delta.snapshot import Snapshot, read_snapshot
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import CommitConflict, CorruptState
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable
from tests.support.keyed_table import SCHEMA, SPEC, having, head_of, made, rows, turns
from tests.support.lakes import below, delta_rs, overwrite
from tests.support.warm_process import exit_code


def compacted(table: ArrowTable) -> Head:
    head = head_of(table)
    snapshot = read_snapshot(table.path, head.version)
    return compact(table.path, table.spec, head, snapshot, plan_compaction(snapshot))


def file_action(live: int, deleted: int = 0, size: int = 1000) -> dict[str, Any]:
    vector = {"deletionVector": {"cardinality": deleted}} if deleted else {}
    return {"size": size, "stats": json.dumps({"numRecords": live + deleted}), **vector}


def plan_of(*bodies: dict[str, Any]) -> CompactionPlan:
    return plan_compaction(Snapshot(7, files={str(n): body for n, body in enumerate(bodies)}))


def merged(plan: CompactionPlan) -> list[int]:
    return [len(merge.files) for merge in plan.merges]


def test_a_level_is_merged_when_it_is_full() -> None:
    assert merged(plan_of(*[file_action(5)] * (FANOUT - 1))) == []
    assert merged(plan_of(*[file_action(5)] * FANOUT)) == [FANOUT]


def test_smaller_files_go_along_and_larger_ones_are_left_alone() -> None:
    level_2 = [file_action(100)] * FANOUT
    plan = plan_of(file_action(1_000_000), *level_2, file_action(3), file_action(60_000))
    (merge,) = plan.merges
    assert merge.files == tuple(str(n) for n in range(1, FANOUT + 2))
    assert merge.rows == 100 * FANOUT + 3
    assert str(plan) == (
        "version 7, 11 files: 9 of them become 1\n  9 files, 803 rows, 0.0 MB: 8 or more files of fewer than 512 rows"
    )


def test_what_comes_out_may_be_what_the_next_level_waits_for() -> None:
    small, waiting = [file_action(7)] * FANOUT, [file_action(20)] * (FANOUT - 1)
    assert merged(plan_of(*small, *waiting)) == [2 * FANOUT - 1]
    assert merged(plan_of(*small, *waiting[1:])) == [FANOUT]


def test_rows_are_written_again_as_often_as_there_are_levels() -> None:
    """The arithmetic of 20,000 commits of one row, looked at after each 16."""
    files: list[int] = []
    written, most = 0, 0
    for number in range(1, 20_001):
        files.append(1)
        if number % EVERY == 0:
            for merge in plan_of(*map(file_action, files)).merges:
                files = [rows for n, rows in enumerate(files) if str(n) not in merge.files] + [merge.rows]
                written += merge.rows
        most = max(most, len(files))
    assert sum(files) == 20_000
    assert written <= 5 * 20_000
    assert most <= EVERY + 5 * (FANOUT - 1)


def test_a_full_file_is_never_merged_and_a_merge_reads_no_more_than_that() -> None:
    full = [file_action(1_000_000, size=FULL_BYTES)] * 20
    assert merged(plan_of(*full)) == []
    thirds = [file_action(1_000_000, size=FULL_BYTES // 3)] * 30
    assert merged(plan_of(*thirds)) == [3, 3, 3, 3]


def test_a_worn_file_is_written_again_alone() -> None:
    worn, half = file_action(REWRITE_ROWS // 2, REWRITE_ROWS), file_action(REWRITE_ROWS, REWRITE_ROWS)
    few = file_action(10, 500)
    big = file_action(100_000, 1_000_000, size=3 * FULL_BYTES)
    plan = plan_of(worn, half, few, big)
    assert [merge.files for merge in plan.merges] == [("0",), ("3",)]
    assert plan.reason == "10,000 of 15,000 rows are deleted; 1,000,000 of 1,100,000 rows are deleted"


def test_the_rows_and_the_record_stay_and_the_feed_is_empty(folder: LakePath) -> None:
    table = made(folder)
    for first in reversed(range(0, 90, 10)):
        table.apply(rows(range(first, first + 10)))
    before = table.apply(rows(range(200, 203)), lambda row: row["k"] % 7 == 0)
    stored = table.stored(before.version)
    after = compacted(table)
    assert after == head_of(table)
    assert after.version == before.version + 1
    # All but the three new rows, too few for the level that was full, are in one file, by key.
    found = table.stored(after.version)
    assert found == sorted(stored, key=lambda row: int(row["k"]))
    reason, nonce = after.record.reason, after.record.nonce
    assert after.record == replace(before.record, mode="compact", reason=reason, inserted=0, deleted=0, nonce=nonce)
    assert after.record.nonce != before.record.nonce
    assert reader.version_at(table.path, before.version) == before.at
    assert str(digest_of_table(reader.scan(table.path))) == after.record.digest
    assert not log.read_commit(table.path, after.version).changes_rows
    assert reader.read_changes(table.path, before.version).num_rows == 0
    theirs = delta_rs(table.path)
    assert pa.table(theirs.load_cdf(after.version, after.version).read_all()).num_rows == 0
    assert theirs.transaction_version("strandline/t") == before.record.epoch
    assert table.apply(rows(range(300, 301))).record.epoch == before.record.epoch + 1


def test_a_plan_of_positions_in_a_file_that_was_replaced_is_refused(folder: LakePath) -> None:
    """The rows that it meant stand elsewhere: the same positions in the new file are other rows."""
    table = made(folder)
    for first in reversed(range(FANOUT)):
        table.apply(rows(range(first, first + 1)))
    planned = head_of(table)
    name = next(iter(read_snapshot(table.path, planned.version).files))
    record = replace(planned.record, epoch=planned.record.epoch + 1, digest="")
    gone = RowChanges(None, {name: BitMap64([0])})
    after = compacted(table)
    files = below(table.path)
    for head in (planned, after):
        with pytest.raises(CommitConflict, match="since version"):
            commit(table.path, head, record, gone)
    assert below(table.path) == files
    assert [row["k"] for row in table.stored(after.version)] == list(range(FANOUT))


def test_a_compaction_that_came_too_late_leaves_nothing(folder: LakePath) -> None:
    table = made(folder)
    for first in range(FANOUT):
        table.apply(rows(range(first, first + 1)))
    head = head_of(table)
    snapshot = read_snapshot(table.path, head.version)
    table.apply(gone=lambda row: row["k"] == 3)
    files = below(table.path)
    with pytest.raises(CommitConflict):
        compact(table.path, SPEC, head, snapshot, plan_compaction(snapshot))
    assert below(table.path) == files


def test_an_event_log_keeps_its_order(folder: LakePath) -> None:
    schema = pa.schema([("v", pa.string()), ("_partition", pa.int32()), ("_offset", pa.int64())])
    spec = TableSpec("log", (("v", "STRING"), ("_partition", "INT"), ("_offset", "BIGINT")), "append")
    table = made(folder, schema, spec)
    for first in range(0, 40, 4):
        events = [{"v": "x", "_partition": p, "_offset": first + n} for p in (1, 0) for n in range(4)]
        table.apply(events)
    after = compacted(table)
    found = [(row["_partition"], row["_offset"]) for row in table.stored(after.version)]
    assert found == [(p, offset) for p in (0, 1) for offset in range(40)]
    assert log.read_commit(table.path, after.version).only_adds
    assert log.read_commit(table.path, after.version).record == after.record
    (body,) = read_snapshot(table.path, after.version).files.values()
    assert json.loads(body["stats"])["maxValues"] == {"v": "x", "_partition": 1, "_offset": 39}


def test_an_append_table_without_offsets_keeps_the_order_of_its_files(folder: LakePath) -> None:
    spec = TableSpec("log", (("v", "STRING"),), "append")
    table = made(folder, pa.schema([("v", pa.string())]), spec)
    names = [f"{n * 7 % 10}" for n in range(10)]
    for name in names:
        table.apply([{"v": name}])
    assert [row["v"] for row in table.stored(compacted(table).version)] == names


def test_a_large_file_is_written_again_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "_ROW_GROUP", 1_000)
    monkeypatch.setattr(compaction, "_BATCH_ROWS", 500)
    table = made(tmp_path)
    table.apply(rows(range(REWRITE_ROWS)))
    table.apply(gone=lambda row: row["k"] % 4 != 0)
    after = compacted(table)
    (name,) = read_snapshot(table.path, after.version).files
    footer = pq.read_metadata(table.path / name)
    assert [footer.row_group(n).num_rows for n in range(footer.num_row_groups)] == [1_000, 1_000, 500]
    assert [row["k"] for row in table.stored(after.version)] == list(range(0, REWRITE_ROWS, 4))


def test_a_broken_file_is_not_merged(folder: LakePath) -> None:
    table = made(folder)
    for first in range(FANOUT):
        table.apply(rows(range(first, first + 3)))
    name = next(iter(read_snapshot(table.path, FANOUT).files))
    other = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows(range(2)), SCHEMA), other)
    overwrite(table.path / name, other.getvalue())
    files = below(table.path)
    with pytest.raises(CorruptState, match="fails its checksum"):
        compacted(table)
    assert below(table.path) == files


def test_the_writer_looks_every_so_many_versions_and_goes_on_when_it_fails(
    folder: LakePath, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(folder)
    looked = turns(table.path, FANOUT)
    done = Counter[bool]()
    for first in range(looked):
        head = table.apply(rows(range(first, first + 1)))
        done[maintain_files(table.path, SPEC, head) is not None] += 1
    assert done == {False: looked - 1, True: 1}
    head = head_of(table)
    assert head.version == looked + 1
    again = looked + EVERY
    for first in range(100, 100 + again - head.version):
        head = table.apply(rows(range(first, first + 1)))
    name = list(read_snapshot(table.path, head.version).files)[-1]
    overwrite(table.path / name, b"not Parquet")
    with caplog.at_level(logging.WARNING, "strandline.store"):
        assert maintain_files(table.path, SPEC, head) is None
    assert f"no compaction of 't' at version {again}" in caplog.text
    assert head_of(table) == head


def test_tables_whose_epochs_go_together_are_looked_at_in_different_ones(tmp_path: Path) -> None:
    """With 38 tables the sixteenth epoch took three times as long as the others."""
    tables = [tmp_path / f"view_{n}" for n in range(64)]
    at_once = Counter(turns(path, 1) for path in tables)
    assert set(at_once) == set(range(FANOUT, EVERY)), "never before so many files can be there"
    assert max(at_once.values()) <= 2 * len(tables) // (EVERY - FANOUT)


def _maintain(path: LakePath) -> None:
    head = reader.head(path)
    assert head is not None
    maintain_files(path, SPEC, head)


@pytest.mark.parametrize("step", ["after-compaction-staged", "before-log-entry", "before-link", "after-log-entry"])
def test_a_compaction_that_is_killed_is_there_whole_or_not_at_all(tmp_path: Path, step: str) -> None:
    table = made(tmp_path)
    epochs = turns(table.path, EVERY)
    for first in range(epochs):
        before = table.apply(rows(range(first, first + 2)), having([first]))
    assert exit_code(_maintain, table.path, failpoint=step) == -signal.SIGKILL
    after = head_of(table)
    assert (after.version - before.version, after.record.mode) == (
        (1, "compact") if "after-log" in step else (0, "create")
    )
    assert Counter(map(str, table.stored(after.version))) == Counter(map(str, table.stored(before.version)))
    if after == before:
        assert maintain_files(table.path, SPEC, before) is not None
    assert table.apply(rows(range(90, 91))).record.epoch == epochs + 1
    assert sorted(row["k"] for row in table.stored(head_of(table).version)) == [*range(epochs + 1), 90]
