"""A table of the store beside the dictionary that it must equal, and an event log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from state_store import changelog
from state_store.commits import CommitRecord, Head, TableVersion
from state_store.delta import reader
from state_store.hashing.digest import digest_of_table
from state_store.layout import Lake
from state_store.spark.table import Table
from state_store.tablespec import TableSpec, quoted

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
# (hidden key, key) -> (value, tags, state)
Key = tuple[int | None, str | None]
Row = tuple[int | None, dict[str, int] | None, int]


def settled_frame(table: Table, changes: dict[Key, tuple[Row | None, Row | None]]) -> DataFrame:
    """A settled frame of {key: (row before, row after)}; the rows before are at the places where they are stored."""
    row = "STRUCT<k: STRING, v: BIGINT, tags: MAP<STRING, BIGINT>, __state: STRUCT<__k0: INT, __n: BIGINT>>"
    data = []
    for (hidden, key), (old, new) in changes.items():
        value, tags, n = new or (None, None, None)
        before = (key, old[0], old[1], (hidden, old[2])) if old else None
        data.append((key, value, tags, (hidden, n), new is not None, before))
    frame = table.spark.createDataFrame(data, f"{SPEC.ddl}, __exists BOOLEAN, __old {row}")
    return placed(frame, table, "__s.__state.__k0 <=> __n.__state.__k0 AND __s.k <=> __n.k")


def placed(settled: DataFrame, table: Table, same_key: str) -> DataFrame:
    """The settled frame with the places of the stored rows in `__old`, as a rule carries them along.

    Args:
        same_key: the condition that the row `__n` and the stored row `__s` have one key.
    """
    # The frame before may be of other types than the stored ones, and still be the same row.
    stored = table.read(table.head().version).alias("__s")
    joined = settled.alias("__n").join(stored, F.expr(same_key), "left")
    old = F.when(
        F.col("__n.__old").isNotNull(),
        F.struct("__n.__old.*", F.col("__s.__file"), F.col("__s.__position")),
    )
    return joined.select(
        *(F.col(f"__n.{quoted(name)}") for name, _ in table.spec.stored), "__exists", old.alias("__old")
    )


class Model:
    """A table beside the dictionary that it must equal."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self.spark = spark
        self.table = Table(spark, lake.table("t"), SPEC)
        self.head = self.table.ensure(CommitRecord(epoch=0, vector={"log": TableVersion(0)}, writer="test"))
        self.rows: dict[Key, Row] = {}

    def apply(self, changes: dict[Key, Row | None]) -> Head | None:
        settled = {key: (self.rows.get(key), row) for key, row in changes.items()}
        record = CommitRecord(epoch=self.head.record.epoch + 1, mode="delta")
        head = self.table.apply(settled_frame(self.table, settled), record)
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
