"""The change feed is the table: folded from version 0 it gives the rows, and what it takes away was there."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store import changelog
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.deletion_vectors import deleted_rows
from strandline.state_store.digest import digest_of_table
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import TableSpec
from tests.spark.table_model import placed
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import Row as SparkRow

SPEC = TableSpec(
    "t",
    (("k", "INT"), ("v", "INT"), ("hist", "MAP<STRING, INT>"), ("last", "ARRAY<INT>")),
    "keyed",
    ("k",),
    "STRUCT<__rows: BIGINT>",
)
Row = tuple[int, dict[str, int] | None, list[int | None], int]


class _History:
    """Random epochs of one table, and the rows after each of them."""

    def __init__(self, spark: SparkSession, table: SparkTable, seed: int) -> None:
        self.spark, self.table, self.draw = spark, table, random.Random(seed)
        self.rows: dict[int | None, Row] = {}
        self.head = table.ensure(CommitRecord(epoch=0))
        self.states = {0: self.visible()}

    def visible(self) -> Counter[str]:
        return Counter(
            repr((k, v, sorted(h.items()) if h is not None else None, tuple(a)))
            for k, (v, h, a, _) in self.rows.items()
        )

    def epoch(self, delete: bool) -> None:
        keys: list[int | None] = [None, *range(12)]
        changes: dict[int | None, Row | None] = {}
        for key in self.draw.sample(keys, self.draw.randrange(1, 6)):
            hist = {c: self.draw.randrange(2) for c in self.draw.sample("xyz", self.draw.randrange(1, 4))}
            row = (
                self.draw.randrange(2),
                self.draw.choice([None, hist]),
                [None, 1][: self.draw.randrange(3)],
                len(hist),
            )
            changes[key] = None if delete and self.draw.random() < 0.4 else row
        record = CommitRecord(epoch=self.head.record.epoch + 1)
        head = self.table.apply(
            placed(self._settled(changes), self.table, "__s.k <=> __n.k"), record
        ) or self.table.advance(record)
        for key, new in changes.items():
            self.rows.pop(key, None)
            if new:
                self.rows[key] = new
        self.head = head
        self.states[head.version] = self.visible()

    def _settled(self, changes: dict[int | None, Row | None]) -> DataFrame:
        data = []
        for key, new in changes.items():
            old = self.rows.get(key)
            before = (key, *old[:3], (old[3],)) if old else None
            after = (*new[:3], (new[3],)) if new else (None, None, None, None)
            data.append((key, *after, new is not None, before))
        old_type = "STRUCT<k: INT, v: INT, hist: MAP<STRING, INT>, last: ARRAY<INT>, __state: STRUCT<__rows: BIGINT>>"
        return self.spark.createDataFrame(data, f"{SPEC.ddl}, __exists BOOLEAN, __old {old_type}").coalesce(1)


def _listed(rows: list[dict[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for r in rows:
        hist = r["hist"]
        entries = sorted(dict(hist).items()) if hist is not None else None
        found[repr((r["k"], r["v"], entries, tuple(r["last"])))] += 1
    return found


def _check(history: _History) -> None:
    path, last = history.table.path, history.head.version
    feed = reader.read_changes(path, -1)
    for version, expected in history.states.items():
        upto = feed.filter(pc.field("_commit_version") <= version)
        assert _listed(changelog.fold(upto).to_pylist()) == expected, f"version {version}"
        assert _listed(reader.read_rows(path, version).to_pylist()) == expected, f"version {version}"
    assert str(digest_of_table(reader.scan(path))) == history.head.record.digest
    _check_spark(history, last)


def _check_spark(history: _History, last: int) -> None:
    """Spark's changes from any version on, added to the rows there, give the rows at the end, state included."""
    table = history.table
    for after in (0, last // 2):
        before = Counter(_stored(r) for r in table.read(after).collect())
        for row in table.changes(after, last).collect():
            before[_stored(row)] += row["__weight"]
        assert +before == Counter(_stored(r) for r in table.read(last).collect())
        assert all(weight >= 0 for weight in before.values())
    for version in range(1, last + 1):
        rows = [_stored(row) for row in table.changes(version - 1, version).collect()]
        assert len(set(rows)) == len(rows), f"version {version} says something of a row twice"


def _check_delta(history: _History, last: int) -> None:
    """Delta's own reader sees the same rows, and its change feed folds to them at every version."""
    spark, path = history.spark, str(history.table.path)
    source = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    feed = source.option("endingVersion", last).load(path).collect()
    for version in history.states:
        if version in (last // 2, last):  # each costs Spark a state of the table of its own
            rows = spark.read.format("delta").option("versionAsOf", version).load(path).collect()
            assert _listed([row.asDict() for row in rows]) == history.states[version], f"version {version}"
        folded: Counter[str] = Counter()
        for row in feed:
            if row["_commit_version"] <= version:
                sign = 1 if row["_change_type"] in ("insert", "update_postimage") else -1
                folded[next(iter(_listed([row.asDict()])))] += sign
        assert +folded == history.states[version], f"version {version}"


def _stored(row: SparkRow) -> str:
    r = row.asDict(recursive=True)
    hist = sorted(r["hist"].items()) if r["hist"] is not None else None
    return repr((r["k"], r["v"], hist, r["last"], r["__state"]))


def test_random_epochs_of_every_kind_fold_to_the_table_at_every_version(spark: SparkSession, lake: LakeLayout) -> None:
    history = _History(spark, SparkTable(spark, lake.table("t"), SPEC), seed=7)
    for number in range(6):
        history.epoch(delete=number % 3 == 2)
    _check(history)
    _check_delta(history, history.head.version)


def test_a_checkpoint_by_either_writer_keeps_rows_deletion_vectors_and_head(
    spark: SparkSession, lake: LakeLayout
) -> None:
    """Commits by delta-rs and by Spark alternate in one log, and so do their checkpoints."""
    table = SparkTable(spark, lake.table("t"), SPEC)
    history = _History(spark, table, seed=11)
    for number in range(4):
        history.epoch(delete=number == 3)
    delta_rs(table.path).create_checkpoint()
    history.epoch(delete=False)
    spark.read.format("delta").load(str(table.path)).count()  # so that Spark knows the newest version
    assert spark._jvm is not None
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog
    log.forTable(spark._jsparkSession, str(table.path)).checkpoint()
    head = table.advance(CommitRecord(epoch=history.head.record.epoch + 1))
    history.head, history.states[head.version] = head, history.visible()
    history.epoch(delete=True)
    assert len({f.name[:20] for f in on_disk(table.path / "_delta_log").glob("*.checkpoint*.parquet")}) == 2
    log.clearCache()
    _check(history)


def test_the_checkpoint_interval_is_kept_by_commits_without_spark(spark: SparkSession, lake: LakeLayout) -> None:
    """A quiet table advances for weeks: its log must not have to be read from the beginning."""
    table = SparkTable(spark, lake.table("t"), SPEC)
    history = _History(spark, table, seed=3)
    history.epoch(delete=False)
    history.epoch(delete=False)
    for epoch in range(history.head.record.epoch + 1, 60):
        history.head = table.advance(CommitRecord(epoch=epoch))
        history.states[history.head.version] = history.visible()
    assert list(on_disk(table.path / "_delta_log").glob("*.checkpoint*.parquet"))
    assert table.head() == history.head
    assert history.head.version == 59
    history.epoch(delete=True)
    _check(history)


def test_deletion_vectors_are_read_as_delta_rs_reads_them(spark: SparkSession, lake: LakeLayout) -> None:
    table = SparkTable(spark, lake.table("t"), SPEC)
    history = _History(spark, table, seed=5)
    for _ in range(5):
        history.epoch(delete=False)
    vectors = pa.table(delta_rs(table.path).deletion_vectors()).to_pylist()
    theirs = {v["filepath"].rpartition("/")[2]: np.flatnonzero(~np.array(v["selection_vector"])) for v in vectors}
    ours: dict[str, list[int]] = {}
    for version in range(1, history.head.version + 1):
        commit = log.read_commit(table.path, version)
        for file in commit.removed:
            ours.pop(file.path.name, None)
        for file in commit.added:
            if file.deletion_vector is not None:
                ours[file.path.name] = list(deleted_rows(table.path, file.deletion_vector))
    assert ours
    assert ours == {name: positions.tolist() for name, positions in theirs.items()}
