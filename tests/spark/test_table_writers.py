"""Writers of one table: an epoch that does not follow, a plan that came too late, several at once."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import log, reader
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import CommitConflict, VectorMismatch
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from tests.spark.table_model import Model, settled_frame
from tests.support.on_disk import on_disk
from tests.support.table_model import SPEC, Key, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_epoch_that_does_not_follow_the_head_is_refused(model: Model, spark: SparkSession) -> None:
    before = model.head
    settled = settled_frame(model.table, {(7, "x"): (None, (1, None, 1))})
    for epoch in (before.record.epoch, before.record.epoch + 2):
        record = CommitRecord(epoch=epoch)
        calls: list[Callable[[], Any]] = [
            partial(model.table.apply, settled, record),
            partial(model.table.append, settled, record),
            partial(model.table.advance, record),
        ]
        for call in calls:
            with pytest.raises(VectorMismatch, match=f"epoch {epoch} does not follow"):
                call()
    assert model.table.head() == before


def _late(table: SparkTable, monkeypatch: pytest.MonkeyPatch) -> SparkTable:
    """A writer that planned from the present head, and commits after somebody else has."""
    late = SparkTable(table.spark, table.path, table.spec)
    planned = table.head()
    monkeypatch.setattr(late, "head", lambda: planned)
    return late


@pytest.mark.parametrize("way", ["append", "replace", "merge", "advance"])
def test_of_two_writers_with_one_plan_only_the_first_commits(
    model: Model, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    late, record = _late(model.table, monkeypatch), CommitRecord(epoch=2, writer="late")
    model.apply({(1, "a"): (100, None, 1)})
    changes: dict[str, dict[Key, tuple[Row | None, Row | None]]] = {
        "append": {(9, "new"): (None, (1, None, 1))},
        "replace": {(1, "b"): ((2, None, 1), (5, None, 1))},
        "merge": {(1, "b"): ((2, None, 1), None)},
    }
    files = set(on_disk(model.table.path).glob("epoch-*"))
    settled = None if way == "advance" else settled_frame(model.table, changes[way])
    with pytest.raises(CommitConflict):
        _ = late.advance(record) if settled is None else late.apply(settled, record)
    assert set(on_disk(model.table.path).glob("epoch-*")) == files
    model.check()


def test_a_table_may_be_dropped_and_made_again_in_one_session(spark: SparkSession, lake: LakeLayout) -> None:
    for _ in range(2):
        table = SparkTable(spark, lake.table("t"), SPEC)
        table.ensure(CommitRecord(epoch=0))
        table.apply(settled_frame(table, {(1, "a"): (None, (1, None, 1))}), CommitRecord(epoch=1))
        table.apply(settled_frame(table, {(1, "a"): ((1, None, 1), (2, None, 1))}), CommitRecord(epoch=2))
        assert [r["v"] for r in table.read(2).collect()] == [2]
        assert [r["v"] for r in table.changes(1, 2).orderBy("__weight").collect()] == [1, 2]
        shutil.rmtree(on_disk(table.path))


def test_two_tables_commit_in_parallel_threads_each_with_its_own_record(spark: SparkSession, lake: LakeLayout) -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(name: str) -> SparkTable:
        table = SparkTable(spark, lake.table(name), replace(SPEC, name=name))
        table.ensure(CommitRecord(epoch=0))
        table.apply(
            settled_frame(table, {(n, "a"): (None, (1, None, 1)) for n in range(6)}), CommitRecord(epoch=1, writer=name)
        )
        for n in range(3):
            changes: dict[Key, tuple[Row | None, Row | None]] = {(n, "a"): ((1, None, 1), None)}
            table.apply(settled_frame(table, changes), CommitRecord(epoch=n + 2, writer=name))
        return table

    with ThreadPoolExecutor(2) as pool:
        for table in pool.map(work, ["left", "right"]):
            commits = [log.read_commit(table.path, version) for version in range(1, 5)]
            assert [c.operation for c in commits] == ["WRITE"] * 4
            assert [(c.record.epoch, c.record.writer) for c in commits if c.record] == [
                (epoch, table.spec.name) for epoch in range(1, 5)
            ]
            assert str(digest_of_table(reader.scan(table.path))) == table.head().record.digest
