"""One commit per epoch of a keyed table, whatever the way it is made: rows, digest and record."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import TableMissing
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import TableSpec
from tests.spark.table_model import Model, placed
from tests.support.table_model import SPEC, Changes, TableContract

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ONE = TableSpec("one", (("total", "BIGINT"),), "keyed", (), "STRUCT<__n: BIGINT>")


class TestTable(TableContract):
    """Of Spark's tables."""


def test_a_table_is_created_once_and_spark_reads_what_was_created(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("t"), SPEC)
    with pytest.raises(TableMissing):
        table.head()
    first = table.ensure(CommitRecord(epoch=0, writer="first"))
    assert first.record.table
    assert first.record.nonce
    assert replace(first.record, table="", nonce="") == CommitRecord(epoch=0, writer="first", digest="0" * 32 + ":0")
    assert table.ensure(CommitRecord(epoch=0, writer="second")) == first
    assert table.read(0).columns == ["k", "v", "tags", "__state", "__file", "__position"]
    assert spark.read.format("delta").load(str(table.path)).columns == ["k", "v", "tags", "__state"]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").collect()[0]
    assert detail["properties"]["delta.enableDeletionVectors"] == "true"
    assert "deletionVectors" in detail["tableFeatures"]


def test_changed_rows_replace_the_old_ones_with_null_and_hidden_keys(model: Model) -> None:
    head = model.apply({(None, "a"): (33, {"y": 2}, 2), (2, None): (44, None, 2), (1, "a"): (11, {"x": 1}, 2)})
    assert head is not None
    assert (head.record.inserted, head.record.deleted) == (3, 3)
    model.check()


def test_changed_and_new_rows_go_into_one_commit(model: Model) -> None:
    before = model.head.version
    model.apply({(1, "a"): (10, None, 1), (None, None): (9, {"z": 1}, 1)})
    assert model.head.version == before + 1
    assert (model.head.record.inserted, model.head.record.deleted) == (2, 1)
    model.check()


def test_only_the_rows_that_change_are_written(model: Model) -> None:
    changed: Changes = {key: row if key != (1, "b") else (22, None, 1) for key, row in model.rows.items()}
    model.apply(changed)
    feed = model.table.changes(model.head.version - 1, model.head.version)
    assert [(r["k"], r["v"], r["__weight"]) for r in feed.orderBy("__weight").collect()] == [("b", 2, -1), ("b", 22, 1)]


def test_narrower_types_are_stored_and_hashed_as_the_stored_ones(spark: SparkSession, lake: LakeLayout) -> None:
    spec = TableSpec("wide", (("k", "INT"), ("n", "BIGINT"), ("price", "DECIMAL(20, 2)")), "keyed", ("k",))
    table = SparkTable(spark, lake.table("wide"), spec)
    table.ensure(CommitRecord(epoch=0))
    row = "STRUCT<k: INT, n: INT, price: DECIMAL(10, 2)>"
    for epoch, old in enumerate(("NULL", "named_struct('k', 1, 'n', 1, 'price', 2.50)"), start=1):
        settled = spark.sql(f"SELECT 1 k, {epoch} n, 2.50 price, true __exists, CAST({old} AS {row}) __old")
        head = table.apply(placed(settled, table, "__s.k <=> __n.k"), CommitRecord(epoch=epoch))
        assert head is not None
        assert str(digest_of_table(reader.scan(table.path))) == head.record.digest


def test_a_table_with_an_empty_key_holds_one_row(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("one"), ONE)
    head = table.ensure(CommitRecord(epoch=0))
    old: tuple[int, tuple[int]] | None = None
    steps: list[tuple[int, tuple[int]] | None] = [(1, (1,)), (5, (2,)), (5, (3,)), None, (2, (1,))]
    for epoch, new in enumerate(steps, start=1):
        row = (*(new or (None, None)), new is not None, old)
        settled = spark.createDataFrame(
            [row], f"{ONE.ddl}, __exists BOOLEAN, __old STRUCT<{ONE.ddl.replace('` ', '`: ')}>"
        )
        after = table.apply(placed(settled, table, "TRUE"), CommitRecord(epoch=epoch))
        assert after is not None
        assert after.version == head.version + 1
        head, old = after, new
        rows = reader.read_rows(table.path)
        assert rows["total"].to_pylist() == ([new[0]] if new else [])
        assert str(digest_of_table(rows.to_batches())) == head.record.digest
        assert table.read(head.version).count() == rows.num_rows
    feed = [(r["_commit_version"], r["__weight"], r["total"]) for r in reader.read_changes(table.path).to_pylist()]
    assert feed == [(1, 1, 1), (2, -1, 1), (2, 1, 5), (4, -1, 5), (5, 1, 2)]
    weights = table.changes(0, head.version).groupBy("total").sum("__weight").collect()
    assert {r[0]: r[1] for r in weights} == {1: 0, 5: 0, 2: 1}
