"""A table of the store in Spark beside the dictionary that it must equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import quoted
from tests.support.table_model import BEGIN, SPEC, Changes, Key, Row, TableModel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, SparkSession


def settled_frame(table: SparkTable, changes: dict[Key, tuple[Row | None, Row | None]]) -> DataFrame:
    """A settled frame of {key: (row before, row after)}; the rows before are at the places where they are stored."""
    row = "STRUCT<k: STRING, v: BIGINT, tags: MAP<STRING, BIGINT>, __state: STRUCT<__k0: INT, __n: BIGINT>>"
    data = []
    for (hidden, key), (old, new) in changes.items():
        value, tags, n = new or (None, None, None)
        before = (key, old[0], old[1], (hidden, old[2])) if old else None
        data.append((key, value, tags, (hidden, n), new is not None, before))
    frame = table.spark.createDataFrame(data, f"{SPEC.ddl}, __exists BOOLEAN, __old {row}")
    return placed(frame, table, "__s.__state.__k0 <=> __n.__state.__k0 AND __s.k <=> __n.k")


def placed(settled: DataFrame, table: SparkTable, same_key: str) -> DataFrame:
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


class Model(TableModel):
    """A table of the store in Spark."""

    def __init__(self, spark: SparkSession, lake: LakeLayout) -> None:
        self.spark = spark
        self.table = SparkTable(spark, lake.table("t"), SPEC)
        super().__init__(self.table.path, self.table.ensure(BEGIN))

    def commit(self, changes: Changes, record: CommitRecord, times: int) -> Head | None:
        settled = settled_frame(self.table, {key: (self.rows.get(key), row) for key, row in changes.items()})
        for _ in range(times - 1):
            settled = settled.unionAll(settled)
        return self.table.apply(settled, record)

    def advance(self, record: CommitRecord) -> Head:
        return self.table.advance(record)

    def stored(self) -> Iterable[tuple[Any, ...]]:
        frame = self.table.read(self.head.version).select("__state.__k0", "k", "v", "tags", "__state.__n")
        return [tuple(row) for row in frame.collect()]

    def newest(self) -> Head:
        return self.table.head()
