"""One commit per epoch, whatever the way it is made: rows, digest, record, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from state_store import changelog, deltalog, reader
from state_store.commits import CommitRecord, Head
from state_store.digest import digest_of_table
from state_store.errors import CommitConflict, CorruptState, TableMissing, VectorMismatch, VersionGone
from state_store.layout import Lake
from state_store.table import Table
from state_store.tablespec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPEC = TableSpec(
    "t",
    (("k", "STRING"), ("v", "BIGINT"), ("tags", "MAP<STRING, BIGINT>")),
    "keyed",
    ("__state.__k0", "k"),
    "STRUCT<__k0: INT, __n: BIGINT>",
)
LOG = TableSpec("log", (("id", "BIGINT"), ("note", "STRING"), ("at", "TIMESTAMP")), "append")
ONE = TableSpec("one", (("total", "BIGINT"),), "keyed", (), "STRUCT<__n: BIGINT>")

# (hidden key, key) -> (value, tags, state)
Key = tuple[int | None, str | None]
Row = tuple[int | None, dict[str, int] | None, int]


def _settled(spark: SparkSession, changes: dict[Key, tuple[Row | None, Row | None]]) -> DataFrame:
    """A settled frame of {key: (row before, row after)}."""
    row = "STRUCT<k: STRING, v: BIGINT, tags: MAP<STRING, BIGINT>, __state: STRUCT<__k0: INT, __n: BIGINT>>"
    data = []
    for (hidden, key), (old, new) in changes.items():
        value, tags, n = new or (None, None, None)
        before = (key, old[0], old[1], (hidden, old[2])) if old else None
        data.append((key, value, tags, (hidden, n), new is not None, before))
    return spark.createDataFrame(data, f"{SPEC.ddl}, __exists BOOLEAN, __old {row}")


class Model:
    """A table beside the dictionary that it must equal."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark = spark
        self.table = Table(spark, lake.table("t"), SPEC)
        self.head = self.table.ensure(CommitRecord(epoch=0, vector={"log": 0}, writer="test"))
        self.rows: dict[Key, Row] = {}

    def apply(self, changes: dict[Key, Row | None]) -> Head | None:
        settled = {key: (self.rows.get(key), row) for key, row in changes.items()}
        record = CommitRecord(epoch=self.head.record.epoch + 1, vector={"log": self.head.version + 1}, mode="delta")
        head = self.table.apply(_settled(self.spark, settled), record)
        self.rows |= {key: row for key, row in changes.items() if row}
        for key in [key for key, row in changes.items() if not row]:
            self.rows.pop(key, None)
        self.head = head or self.head
        return head

    def check(self) -> None:
        """Spark, delta-rs, the digest and the change feed agree with the dictionary."""
        path = self.table.path
        expected = sorted(((h, k, *row[:2], row[2]) for (h, k), row in self.rows.items()), key=repr)
        frame = self.table.read(self.head.version).select("__state.__k0", "k", "v", "tags", "__state.__n")
        assert sorted((tuple(r) for r in frame.collect()), key=repr) == expected
        assert self.table.head() == self.head == reader.head(path)
        rows = reader.read_rows(path)
        assert str(digest_of_table(rows.to_batches())) == self.head.record.digest
        folded = changelog.fold(reader.read_changes(path))
        assert digest_of_table(folded.to_batches()) == digest_of_table(rows.to_batches())


def _operation(model: Model) -> str:
    return deltalog.read_commit(model.table.path, model.head.version).operation


@pytest.fixture
def model(spark: SparkSession, lake: Lake) -> Model:
    model = Model(spark, lake)
    model.apply({(1, "a"): (1, {"x": 1}, 1), (1, "b"): (2, None, 1), (None, "a"): (3, {}, 1), (2, None): (4, None, 1)})
    return model


def test_a_table_is_created_once_and_spark_reads_what_was_created(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("t"), SPEC)
    with pytest.raises(TableMissing):
        table.head()
    first = table.ensure(CommitRecord(epoch=0, writer="first"))
    assert first == Head(0, CommitRecord(epoch=0, writer="first", digest="0" * 32 + ":0"))
    assert table.ensure(CommitRecord(epoch=0, writer="second")) == first
    assert table.read(0).schema.simpleString() == table.read(0).limit(0).schema.simpleString()
    assert table.read(0).columns == ["k", "v", "tags", "__state"]
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{table.path}`").collect()[0]
    assert detail["properties"]["delta.enableDeletionVectors"] == "true"
    assert "deletionVectors" in detail["tableFeatures"]


def test_new_keys_are_added_and_the_record_says_so(model: Model) -> None:
    model.check()
    record = model.head.record
    assert (record.epoch, record.inserted, record.deleted, record.vector) == (1, 4, 0, {"log": 1})
    assert record.digest.endswith(":4")


def test_changed_rows_replace_the_old_ones_with_null_and_hidden_keys(model: Model) -> None:
    head = model.apply({(None, "a"): (33, {"y": 2}, 2), (2, None): (44, None, 2), (1, "a"): (11, {"x": 1}, 2)})
    assert head is not None
    assert (head.record.inserted, head.record.deleted) == (3, 3)
    assert _operation(model) == "WRITE"
    model.check()


def test_changed_and_new_rows_go_into_one_commit(model: Model) -> None:
    before = model.head.version
    model.apply({(1, "a"): (10, None, 1), (None, None): (9, {"z": 1}, 1)})
    assert model.head.version == before + 1
    assert (model.head.record.inserted, model.head.record.deleted) == (2, 1)
    model.check()


def test_keys_go_away_in_the_same_commit_as_others_change(model: Model) -> None:
    before = model.head.version
    model.apply({(None, "a"): None, (2, None): None, (1, "a"): (7, None, 1), (5, "new"): (5, None, 1)})
    assert model.head.version == before + 1
    assert _operation(model) == "MERGE"
    assert (model.head.record.inserted, model.head.record.deleted) == (2, 3)
    model.check()


def test_only_deletes_can_empty_the_table_and_it_can_be_filled_again(model: Model) -> None:
    model.apply(dict.fromkeys(model.rows))
    assert model.head.record.digest == "0" * 32 + ":0"
    model.check()
    model.apply({(1, "a"): (1, None, 1)})
    model.check()


def test_equal_rows_are_no_commit_and_absent_keys_stay_absent(model: Model) -> None:
    before = model.head
    same = {**model.rows, (8, "never"): None}
    assert model.apply(same) is None
    assert model.table.head() == before


def test_maps_with_the_same_entries_in_another_order_are_equal(model: Model) -> None:
    model.apply({(1, "a"): (1, {"x": 1, "y": 2}, 1)})
    assert model.apply({(1, "a"): (1, {"y": 2, "x": 1}, 1)}) is None
    assert model.apply({(1, "a"): (1, {"y": 2, "x": 3}, 1)}) is not None


def test_only_the_rows_that_change_are_written(model: Model) -> None:
    changed = {key: row if key != (1, "b") else (22, None, 1) for key, row in model.rows.items()}
    model.apply(changed)
    feed = model.table.changes(model.head.version - 1, model.head.version)
    assert [(r["k"], r["v"], r["__weight"]) for r in feed.orderBy("__weight").collect()] == [("b", 2, -1), ("b", 22, 1)]


def test_a_change_of_state_alone_is_stored_and_not_seen(model: Model) -> None:
    digest = model.head.record.digest
    model.apply({(1, "a"): (1, {"x": 1}, 99)})
    assert (model.head.record.inserted, model.head.record.deleted, model.head.record.digest) == (0, 0, digest)
    assert reader.read_changes(model.table.path, model.head.version - 1).num_rows == 0
    model.check()


def test_narrower_types_are_stored_and_hashed_as_the_stored_ones(spark: SparkSession, lake: Lake) -> None:
    spec = TableSpec("wide", (("k", "INT"), ("n", "BIGINT"), ("price", "DECIMAL(20, 2)")), "keyed", ("k",))
    table = Table(spark, lake.table("wide"), spec)
    table.ensure(CommitRecord(epoch=0))
    row = "STRUCT<k: INT, n: INT, price: DECIMAL(10, 2)>"
    for epoch, old in enumerate(("NULL", "named_struct('k', 1, 'n', 1, 'price', 2.50)"), start=1):
        settled = spark.sql(f"SELECT 1 k, {epoch} n, 2.50 price, true __exists, CAST({old} AS {row}) __old")
        head = table.apply(settled, CommitRecord(epoch=epoch))
        assert head is not None
        assert str(digest_of_table(reader.scan(table.path))) == head.record.digest


def test_an_advance_moves_the_vector_and_nothing_else(model: Model) -> None:
    before = model.head
    record = replace(before.record, epoch=2, vector={"log": 42}, mode="advance")
    model.head = model.table.advance(record)
    assert model.head == Head(before.version + 1, replace(record, inserted=0, deleted=0))
    assert model.table.changes(before.version, model.head.version).count() == 0
    model.check()


def test_an_epoch_that_does_not_follow_the_head_is_refused(model: Model, spark: SparkSession) -> None:
    before = model.head
    settled = _settled(spark, {(7, "x"): (None, (1, None, 1))})
    for epoch in (before.record.epoch, before.record.epoch + 2):
        record = CommitRecord(epoch=epoch)
        calls: list[Callable[[], Any]] = [
            lambda r=record: model.table.apply(settled, r),
            lambda r=record: model.table.append(settled, r),
            lambda r=record: model.table.advance(r),
        ]
        for call in calls:
            with pytest.raises(VectorMismatch, match=f"epoch {epoch} does not follow"):
                call()
    assert model.table.head() == before


def _late(table: Table, monkeypatch: pytest.MonkeyPatch) -> Table:
    """A writer that planned from the present head, and commits after somebody else has."""
    late = Table(table.spark, table.path, table.spec)
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
    files = set(model.table.path.glob("epoch-*"))
    settled = None if way == "advance" else _settled(spark, changes[way])
    with pytest.raises(CommitConflict):
        _ = late.advance(record) if settled is None else late.apply(settled, record)
    assert set(model.table.path.glob("epoch-*")) == files
    model.check()


def test_a_table_with_an_empty_key_holds_one_row(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("one"), ONE)
    head = table.ensure(CommitRecord(epoch=0))
    old: tuple[int, tuple[int]] | None = None
    steps: list[tuple[int, tuple[int]] | None] = [(1, (1,)), (5, (2,)), (5, (3,)), None, (2, (1,))]
    for epoch, new in enumerate(steps, start=1):
        row = (*(new or (None, None)), new is not None, old)
        settled = spark.createDataFrame(
            [row], f"{ONE.ddl}, __exists BOOLEAN, __old STRUCT<{ONE.ddl.replace('` ', '`: ')}>"
        )
        after = table.apply(settled, CommitRecord(epoch=epoch))
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


def test_an_event_log_grows_and_gives_each_commit_back(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("log"), LOG)
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
    assert table.changes(None, 3).schema == table.changes(0, 3).schema == table.changes(3, 3).schema
    assert reader.read_changes(table.path, 2)["id"].to_pylist() == list(range(30, 40))


def test_an_append_of_no_rows_moves_the_offsets(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    head = table.append(spark.createDataFrame([], LOG.ddl), CommitRecord(epoch=1, offsets={"t": {"0": 5}}))
    assert (head.record.inserted, head.record.offsets, head.record.digest) == (0, {"t": {"0": 5}}, "0" * 32 + ":0")
    assert table.changes(0, 1).count() == 0
    assert reader.read_changes(table.path).num_rows == 0


def test_appended_rows_are_computed_once(spark: SparkSession, lake: Lake) -> None:
    """They may come from a topic: reading twice costs twice, and could differ."""
    table = Table(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    seen = spark.sparkContext.accumulator(0)

    def count(rows: Any) -> Any:
        for row in rows:
            seen.add(1)
            yield row

    counted = spark.createDataFrame([(n, "x", None) for n in range(50)], LOG.ddl).rdd.mapPartitions(count)
    table.append(spark.createDataFrame(counted, LOG.ddl), CommitRecord(epoch=1))
    assert seen.value == 50


def test_compaction_changes_neither_digest_nor_changes(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("log"), LOG)
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


def test_history_that_is_gone_is_a_typed_error(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    for epoch in (1, 2):
        table.append(spark.createDataFrame([(epoch, "x", None)], LOG.ddl), CommitRecord(epoch=epoch))
    with pytest.raises(VersionGone, match="version 9"):
        table.read(9)
    with pytest.raises(VersionGone, match="made anew"):
        table.changes(2, 1)
    (folder,) = table.path.glob("epoch-000000001-*")
    shutil.rmtree(folder)
    with pytest.raises(VersionGone, match="a file of 'log' is gone"):
        table.changes(0, 2)
    (table.path / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(VersionGone, match="version 1"):
        table.changes(0, 2)


def test_an_append_table_that_lost_rows_is_not_read_on(spark: SparkSession, lake: Lake) -> None:
    table = Table(spark, lake.table("log"), LOG)
    table.ensure(CommitRecord(epoch=0))
    table.append(spark.createDataFrame([(1, "x", None)], LOG.ddl), CommitRecord(epoch=1))
    spark.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.appendOnly' = 'false')")
    spark.sql(f"DELETE FROM delta.`{table.path}`")
    with pytest.raises(CorruptState, match="takes rows away"):
        table.changes(1, table.head().version)


def test_a_table_may_be_dropped_and_made_again_in_one_session(spark: SparkSession, lake: Lake) -> None:
    for _ in range(2):
        table = Table(spark, lake.table("t"), SPEC)
        table.ensure(CommitRecord(epoch=0))
        table.apply(_settled(spark, {(1, "a"): (None, (1, None, 1))}), CommitRecord(epoch=1))
        table.apply(_settled(spark, {(1, "a"): ((1, None, 1), (2, None, 1))}), CommitRecord(epoch=2))
        assert [r["v"] for r in table.read(2).collect()] == [2]
        assert [r["v"] for r in table.changes(1, 2).orderBy("__weight").collect()] == [1, 2]
        shutil.rmtree(table.path)


def test_two_tables_commit_in_parallel_threads_each_with_its_own_record(spark: SparkSession, lake: Lake) -> None:
    """MERGE takes its metadata from the session: two at once must not mix them up."""
    from concurrent.futures import ThreadPoolExecutor

    def work(name: str) -> Table:
        table = Table(spark, lake.table(name), replace(SPEC, name=name))
        table.ensure(CommitRecord(epoch=0))
        table.apply(
            _settled(spark, {(n, "a"): (None, (1, None, 1)) for n in range(6)}), CommitRecord(epoch=1, writer=name)
        )
        for n in range(3):
            changes: dict[Key, tuple[Row | None, Row | None]] = {(n, "a"): ((1, None, 1), None)}
            table.apply(_settled(spark, changes), CommitRecord(epoch=n + 2, writer=name))
        return table

    with ThreadPoolExecutor(2) as pool:
        for table in pool.map(work, ["left", "right"]):
            commits = [deltalog.read_commit(table.path, version) for version in range(1, 5)]
            assert [c.operation for c in commits] == ["WRITE", "MERGE", "MERGE", "MERGE"]
            assert [(c.record.epoch, c.record.writer) for c in commits if c.record] == [
                (epoch, table.spec.name) for epoch in range(1, 5)
            ]
            assert str(digest_of_table(reader.scan(table.path))) == table.head().record.digest
