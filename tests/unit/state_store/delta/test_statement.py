"""What an entry states of the table after it: a log that says otherwise is not believed, whoever sealed it anew."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.compaction import CompactionPlan, Merge, compact
from strandline.state_store.delta.entry import Action, encode
from strandline.state_store.delta.snapshot import Snapshots, read_snapshot, unproven_snapshot
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create, remove_file
from strandline.state_store.paths import LakePath
from tests.support.arrow_table import ArrowTable
from tests.support.forged_checkpoint import Change, forged
from tests.support.keyed_table import SPEC, head_of, made, rows
from tests.support.lakes import overwrite


@pytest.fixture
def table(folder: LakePath) -> ArrowTable:
    """Two files of three rows each, one row of each deleted."""
    found = made(folder)
    found.apply(rows(range(3)))
    found.apply(rows(range(10, 13)))
    found.apply((), lambda row: row["k"] in (0, 12))
    return found


def adds(actions: list[Action]) -> list[dict[str, Any]]:
    return [action["add"] for action in actions if "add" in action]


def vectors_swapped(actions: list[Action]) -> list[Action]:
    """Each file has as many rows as before, others."""
    first, second = adds(actions)
    first["deletionVector"], second["deletionVector"] = second["deletionVector"], first["deletionVector"]
    return actions


def other_file(actions: list[Action]) -> list[Action]:
    first, second = adds(actions)
    first["path"] = second["path"].replace(".parquet", "0.parquet")
    return actions


def of_other_table(actions: list[Action]) -> list[Action]:
    return [{"metaData": {**a["metaData"], "id": "another"}} if "metaData" in a else a for a in actions]


def columns_renamed(actions: list[Action]) -> list[Action]:
    for action in actions:
        if "metaData" in action:
            action["metaData"]["schemaString"] = action["metaData"]["schemaString"].replace('"v"', '"w"')
    return actions


def bounds_moved(actions: list[Action]) -> list[Action]:
    for body in adds(actions):
        said = json.loads(body["stats"])
        body["stats"] = json.dumps({**said, "minValues": {"k": 900}, "maxValues": {"k": 999}})
    return actions


FORGERIES: list[Change] = [vectors_swapped, other_file, of_other_table, columns_renamed]


@pytest.mark.parametrize("change", FORGERIES)
def test_a_forged_checkpoint_is_passed_over_where_the_commits_are_there(table: ArrowTable, change: Change) -> None:
    before = table.stored(3)
    forged(table, change, cleaned=False)
    assert unproven_snapshot(table.path, 3).difference
    assert table.stored(3) == before


@pytest.mark.parametrize("change", FORGERIES)
def test_where_they_are_not_it_is_an_error_and_nothing_is_committed(table: ArrowTable, change: Change) -> None:
    forged(table, change, cleaned=True)
    for read in (read_snapshot, Snapshots().at):
        with pytest.raises(CorruptState, match="are not those that were committed"):
            read(table.path, 3)
    with pytest.raises(CorruptState, match="are not those that were committed"):
        reader.read_rows(table.path, predicate={"k": [1]})
    with pytest.raises(CorruptState):
        table.apply((), lambda row: row["k"] == 1)
    assert head_of(table).version == 3


def test_bounds_that_were_not_committed_leave_no_file_out(table: ArrowTable, caplog: pytest.LogCaptureFixture) -> None:
    forged(table, bounds_moved, cleaned=True)
    assert not unproven_snapshot(table.path, 3).vouched
    with caplog.at_level(logging.WARNING):
        assert reader.read_rows(table.path, predicate={"k": [1]}).num_rows == 1
    assert "it is read without them" in caplog.text
    table.apply(rows(range(20, 22)), lambda row: row["k"] == 1)
    assert sorted(row["k"] for row in table.stored(4)) == [2, 10, 11, 20, 21]
    found = unproven_snapshot(table.path, 4)
    assert (found.difference, found.vouched) == ("", True), "from the next commit on it is known what is said"
    make_checkpoint(table.path, 4)
    assert unproven_snapshot(table.path, 4).vouched


@pytest.mark.parametrize(("copied", "to"), [(1, 2), (2, 3), (3, 4)])
def test_the_entry_of_another_version_is_none_of_this_one(table: ArrowTable, copied: int, to: int) -> None:
    """As a sloppy hand leaves it that puts a folder back: its checksum is right."""
    data = log.commit_file(table.path, copied).read_bytes()
    file = log.commit_file(table.path, to)
    if file.exists():
        overwrite(file, data)
    else:
        create(file, data)
    with pytest.raises(CorruptState, match=f"is a copy of that of version {copied}"):
        read_snapshot(table.path, to)
    with pytest.raises(CorruptState, match=f"is a copy of that of version {copied}"):
        log.read_history(table.path, 0, to)


def test_each_commit_states_what_the_table_is_after_it(table: ArrowTable) -> None:
    """Of rows that come and go, and of files that are merged: by the log from its beginning, and by a checkpoint."""
    before = read_snapshot(table.path, 3)
    plan = CompactionPlan(3, 2, (Merge(tuple(before.files), 4, 1_000, "all of them"),))
    head = compact(table.path, SPEC, head_of(table), before, plan)
    assert head.version == 4
    table.apply(rows(range(20, 22)))
    for version in range(head.version + 2):
        found = read_snapshot(table.path, version)
        assert found.stated == found.statement, version
    make_checkpoint(table.path, head.version + 1)
    found = read_snapshot(table.path, head.version + 1)
    assert found.stated == found.statement


def test_a_table_from_before_statements_goes_on_and_states_from_then_on(table: ArrowTable) -> None:
    for version in range(4):
        file = log.commit_file(table.path, version)
        actions = [json.loads(line) for line in file.read_bytes().splitlines()]
        del actions[0]["commitInfo"]["strandline"]
        said = json.loads(actions[0]["commitInfo"]["userMetadata"])
        said["strandline"]["crc"] = "00000000"
        actions[0]["commitInfo"]["userMetadata"] = json.dumps(said, separators=(",", ":"))
        overwrite(file, encode(actions))
    assert read_snapshot(table.path, 3).stated is None
    assert head_of(table).stated is None
    table.apply(rows(range(20, 22)))
    found = read_snapshot(table.path, 4)
    assert found.stated == found.statement


def test_a_checkpoint_of_another_tool_says_the_same(tmp_path: Path) -> None:
    table = made(tmp_path)
    table.apply(rows(range(3)))
    table.apply(rows(range(10, 13)), lambda row: row["k"] == 1)
    DeltaTable(tmp_path / "t").create_checkpoint()
    for before in range(2):
        remove_file(log.commit_file(table.path, before))
    found = read_snapshot(table.path, 2)
    assert found.stated is not None
    assert found.stated == found.statement
    assert found.vouched
