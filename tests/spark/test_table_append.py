"""Event logs of the store: they grow, give each commit back, and say when history is gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import ForeignWrite, VersionGone
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from tests.support.on_disk import on_disk
from tests.support.table_model import LOG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_an_event_log_grows_and_gives_each_commit_back(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    for epoch in (1, 2, 3):
        rows = spark.range(epoch * 10, epoch * 10 + 10).selectExpr(
            "timestamp'2026-01-01' AS at", "concat('n', id) AS note", "CAST(id AS INT) AS id"
        )
        offsets = {"topic": {"0": epoch * 10}}
        head = table.append(rows, CommitRecord(epoch=epoch, offsets=offsets, mode="ingest"))
        assert (head.version, head.record.inserted, head.record.offsets) == (epoch, 10, offsets)
    assert str(digest_of_table(reader.scan(table.path))) == head.record.digest
    second = table.changes(1, 2).orderBy("id").collect()
    assert [(r["id"], r["note"], r["__weight"]) for r in second] == [(n, f"n{n}", 1) for n in range(20, 30)]
    assert table.changes(0, 3).count() == table.changes(None, 3).count() == 30
    assert table.changes(3, 3).count() == 0
    shapes = {table.changes(after, 3).schema.simpleString() for after in (None, 0, 3)}
    assert len(shapes) == 1
    assert reader.read_changes(table.path, 2)["id"].to_pylist() == list(range(30, 40))


def test_an_append_of_no_rows_moves_the_offsets(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    head = table.append(spark.createDataFrame([], LOG.ddl), CommitRecord(epoch=1, offsets={"t": {"0": 5}}))
    assert (head.record.inserted, head.record.offsets, head.record.digest) == (0, {"t": {"0": 5}}, "0" * 32 + ":0")
    assert table.changes(0, 1).count() == 0
    assert reader.read_changes(table.path).num_rows == 0


def test_appended_rows_are_computed_once(spark: SparkSession, lake: LakeLayout) -> None:
    """They may come from a topic: reading twice costs twice, and could differ."""
    table = SparkTable(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    seen = spark.sparkContext.accumulator(0)

    def count(rows: Iterable[Any]) -> Iterator[Any]:
        for row in rows:
            seen.add(1)
            yield row

    counted = spark.createDataFrame([(n, "x", None) for n in range(50)], LOG.ddl).rdd.mapPartitions(count)
    table.append(spark.createDataFrame(counted, LOG.ddl), CommitRecord(epoch=1))
    assert seen.value == 50


def test_compaction_changes_neither_digest_nor_changes(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    for epoch in (1, 2):
        table.append(spark.createDataFrame([(epoch, "x", None)], LOG.ddl), CommitRecord(epoch=epoch))
    spark.sql(f"OPTIMIZE delta.`{table.path}`").collect()
    head = table.head()
    assert (head.version, head.record.epoch) == (3, 2)
    assert table.changes(2, 3).count() == 0
    assert str(digest_of_table(reader.scan(table.path))) == head.record.digest
    assert table.append(spark.createDataFrame([(3, "y", None)], LOG.ddl), CommitRecord(epoch=3)).version == 4
    assert sorted(r["id"] for r in table.changes(0, 4).collect()) == [1, 2, 3]


def test_history_that_is_gone_is_a_typed_error(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    for epoch in (1, 2):
        table.append(spark.createDataFrame([(epoch, "x", None)], LOG.ddl), CommitRecord(epoch=epoch))
    with pytest.raises(VersionGone, match="version 9"):
        table.read(9)
    with pytest.raises(VersionGone, match="made anew"):
        table.changes(2, 1)
    (folder,) = on_disk(table.path).glob("epoch-000000001-*")
    shutil.rmtree(folder)
    with pytest.raises(VersionGone, match="files of 'log' are gone"):
        table.changes(0, 2)
    on_disk(table.path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(VersionGone, match="version 1"):
        table.changes(0, 2)


def test_an_append_table_that_lost_rows_is_not_read_on(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    table.append(spark.createDataFrame([(1, "x", None)], LOG.ddl), CommitRecord(epoch=1))
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    spark.sql(f"DELETE FROM delta.`{table.path}`")
    with pytest.raises(ForeignWrite, match="DELETE changed its rows"):
        table.head()
    with pytest.raises(ForeignWrite):
        table.changes(1, 3)
