"""The plan of a trim: the oldest whole files, none that somebody needs, and no hole in a partition."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.state_store.commits import TRIM, CommitRecord, Head
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.trims import Keeper, TrimLimits, TrimPlan, plan_trim, trim, what_went
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CommitConflict
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable

BEGIN = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
BEGIN_MS = int(BEGIN.timestamp() * 1000)
COLUMNS = (("_partition", "INT"), ("_offset", "BIGINT"), ("_timestamp", "TIMESTAMP"))
SCHEMA = pa.schema([("_partition", pa.int32()), ("_offset", pa.int64()), ("_timestamp", pa.timestamp("us", "UTC"))])
ALL = TrimLimits(before=BEGIN_MS + 86_400_000)

Event = tuple[int, int, int]
"""(partition, offset, minute)"""


@pytest.fixture
def table(tmp_path: Path) -> ArrowTable:
    """A log without events."""
    made = ArrowTable(tmp_path / "log", SCHEMA, TableSpec("log", COLUMNS, "append"))
    made.create(CommitRecord(epoch=0))
    return made


def file(table: ArrowTable, *events: Event) -> Head:
    """One more file."""
    return table.apply(
        [{"_partition": p, "_offset": o, "_timestamp": BEGIN + dt.timedelta(minutes=m)} for p, o, m in events]
    )


def planned(table: ArrowTable, limits: TrimLimits, *keepers: Keeper) -> TrimPlan:
    head = reader.head(table.path)
    assert head is not None
    return plan_trim(table.path, read_snapshot(table.path, head.version), limits, keepers)


def older(minutes: int) -> TrimLimits:
    return TrimLimits(before=BEGIN_MS + minutes * 60_000)


def test_a_file_goes_when_its_youngest_event_is_too_old(table: ArrowTable) -> None:
    file(table, (0, 0, 1), (0, 1, 5))
    file(table, (0, 2, 6), (1, 0, 30))
    file(table, (0, 3, 7))
    assert planned(table, older(5)).due == ()
    plan = planned(table, older(6))
    assert (plan.rows, plan.begins, plan.until) == (2, {0: 2}, BEGIN_MS + 300_000)
    plan = planned(table, older(20))
    assert (len(plan.due), plan.rows, plan.overlaps) == (2, 2, 1), "offset 2 of partition 0 stays, so 3 does"


def test_what_a_keeper_needs_stays_with_all_that_came_after(table: ArrowTable) -> None:
    for number in range(4):
        file(table, (0, number, number), (1, number, number))
    behind = Keeper("v", "", {0: 3, 1: 2})
    plan = planned(table, ALL, behind, Keeper("w", "", {0: 4, 1: 4}))
    assert (plan.rows, plan.begins, plan.keepers) == (4, {0: 2, 1: 2}, (behind,))
    assert planned(table, ALL, Keeper("v", "looks back")).files == ()
    assert planned(table, ALL, Keeper("v", "", {})).files == ()


def test_size_never_goes_below_its_limit(table: ArrowTable) -> None:
    for number in range(4):
        file(table, (0, number, number))
    head = reader.head(table.path)
    assert head is not None
    sizes = [int(body["size"]) for body in read_snapshot(table.path, head.version).files.values()]
    assert planned(table, TrimLimits(most_bytes=sum(sizes[1:]) + 1)).due == ()
    assert planned(table, TrimLimits(most_bytes=sum(sizes[1:]))).rows == 1
    assert planned(table, TrimLimits(most_bytes=sizes[3])).rows == 3
    assert planned(table, TrimLimits()).due == ()


def test_a_trim_says_what_went_and_the_digests_add_up(table: ArrowTable) -> None:
    for number in range(3):
        before = file(table, (0, number, number), (1, 10 * number, number))
    plan = planned(table, older(2))
    snapshot = read_snapshot(table.path, before.version)
    after = trim(table.path, before, snapshot, plan)
    trimmed = after.record.trimmed
    assert trimmed is not None
    assert (after.record.mode, trimmed.rows, trimmed.begins) == (TRIM, 4, {"0": 2, "1": 11})
    went = Digest.parse(trimmed.digest)
    assert Digest.parse(after.record.digest) + went == Digest.parse(before.record.digest)
    assert reader.read_rows(table.path).num_rows == 2
    assert what_went(table.path, after.version, SCHEMA).num_rows == 4
    with pytest.raises(CommitConflict):
        trim(table.path, before, snapshot, plan)
    file(table, (0, 3, 3))
    head = reader.head(table.path)
    assert head is not None
    second = trim(table.path, head, read_snapshot(table.path, head.version), planned(table, older(3)))
    assert second.record.trimmed is not None
    assert (second.record.gone, second.record.trimmed.begins) == (6, {"0": 3, "1": 21})
