"""The changes of a table by its commits: what a killed run left, what cannot be counted any more."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.jobs.model import report as module
from strandline.jobs.model.report import Counted, committed, count
from strandline.state_store.commits import CommitRecord
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable


@pytest.fixture
def table(lake: LakeLayout) -> ArrowTable:
    """A table with three epochs after its creation: two rows come, one more, and one of them goes."""
    schema = pa.schema([pa.field("id", pa.int64())])
    made = ArrowTable(lake.table("v"), schema, TableSpec("v", (("id", "BIGINT"),), "keyed", key=("id",)))
    made.create(CommitRecord(epoch=0))
    made.apply([{"id": 1}, {"id": 2}], None, CommitRecord(epoch=1))
    made.apply([{"id": 3}], None, CommitRecord(epoch=2))
    made.apply([], lambda row: row["id"] == 1, CommitRecord(epoch=3))
    return made


def test_every_commit_after_a_version_counts_whoever_made_it(table: ArrowTable, lake: LakeLayout) -> None:
    path = lake.table("v")
    assert count(path, 1, 3) == Counted(1, 1, 2, whole=True)
    assert count(path, 3, 3) == Counted(0, 0, 0, whole=True)
    report = committed("v", path, None)
    assert report is not None
    assert (report.version, report.rows, report.inserted, report.deleted) == (3, 2, 3, 1)


def test_a_version_that_the_table_has_not_reached_is_of_a_former_one(table: ArrowTable, lake: LakeLayout) -> None:
    report = committed("v", lake.table("v"), 17)
    assert report is not None
    assert (report.inserted, report.deleted) == (3, 1)


def test_what_is_gone_or_too_much_is_not_called_whole(
    table: ArrowTable, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_COMMITS", 2)
    assert count(lake.table("v"), -1, 3) == Counted(1, 1, 2, whole=False)
    assert committed("nothing", lake.table("nothing"), None) is None
