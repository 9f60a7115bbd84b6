"""What a careful user of Spark writes by hand: foreachBatch over the files of an epoch, and Delta's MERGE.

The tables have deletion vectors and a change feed, as ours have. W2 takes all categories from the join anew, since
every epoch touches all of them. An epoch is a file that lies there before the query starts.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workload_data import Measured, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

_PROPERTIES = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"


def run(spark: SparkSession, workload: Workload, epochs: int, folder: Path) -> Measured:
    """The workload by hand, its answer checked after each epoch.

    Raises:
        AssertionError: the answer is wrong.
    """
    epoch_rows = _write_epochs(workload, epochs, folder / "in")
    step = _w1(spark, folder) if workload.name == "W1" else _w2(spark, folder)
    measured = Measured()
    last = time.monotonic()

    def batch(rows: DataFrame, number: int) -> None:
        nonlocal last
        step(rows)
        measured.seconds.append(time.monotonic() - last)
        measured.events.append(epoch_rows[number])
        workload.check(spark.read.format("delta").load(str(folder / "result")).toArrow(), number + 1)
        last = time.monotonic()

    source = spark.readStream.schema(spark.read.parquet(str(folder / "in")).schema).option("maxFilesPerTrigger", 1)
    query = source.parquet(str(folder / "in")).writeStream.foreachBatch(batch)
    query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    return measured


def _write_epochs(workload: Workload, epochs: int, folder: Path) -> list[int]:
    """One Parquet file an epoch, read in the order of their times; `source` says of which table a change is."""
    folder.mkdir(parents=True)
    counts = []
    for number, changes in enumerate(workload.epochs(), 1):
        if number > epochs:
            break
        named = [rows.append_column("source", pa.repeat(name, rows.num_rows)) for name, rows in changes.items()]
        pq.write_table(pa.concat_tables(named, promote_options="default"), folder / f"{number:03}.parquet")
        counts.append(sum(rows.num_rows for rows in changes.values()))
    return counts


def _table(spark: SparkSession, path: Path, columns: str) -> str:
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta TBLPROPERTIES ({_PROPERTIES})")
    return f"delta.`{path}`"


def _w1(spark: SparkSession, folder: Path) -> Callable[[DataFrame], None]:
    result = _table(spark, folder / "result", "key BIGINT, n BIGINT, total BIGINT")

    def step(rows: DataFrame) -> None:
        rows.createOrReplaceTempView("batch")
        rows.sparkSession.sql(
            f"MERGE INTO {result} AS t USING "
            "(SELECT key, COUNT(*) AS n, SUM(value) AS total FROM batch GROUP BY key) AS c ON t.key = c.key "
            "WHEN MATCHED THEN UPDATE SET n = t.n + c.n, total = t.total + c.total WHEN NOT MATCHED THEN INSERT *"
        )

    return step


def _w2(spark: SparkSession, folder: Path) -> Callable[[DataFrame], None]:
    info = _table(spark, folder / "info", "product BIGINT, category BIGINT, length BIGINT")
    visit = _table(spark, folder / "visit", "id BIGINT, product BIGINT")
    result = _table(spark, folder / "result", "category BIGINT, longest BIGINT")

    def step(rows: DataFrame) -> None:
        rows.persist().createOrReplaceTempView("batch")
        _take_in(rows.sparkSession, info, "info", ("product", "category", "length"))
        _take_in(rows.sparkSession, visit, "visit", ("id", "product"))
        rows.sparkSession.sql(
            f"MERGE INTO {result} AS t USING (SELECT category, MAX(length) AS longest FROM {info} AS i "
            f"JOIN {visit} AS v ON i.product = v.product GROUP BY category) AS c ON t.category = c.category "
            "WHEN MATCHED AND t.longest <> c.longest THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT * "
            "WHEN NOT MATCHED BY SOURCE THEN DELETE"
        )
        rows.unpersist()

    return step


def _take_in(spark: SparkSession, table: str, source: str, columns: tuple[str, ...]) -> None:
    """Bring one table up to the batch, by its key, the first column."""
    key = columns[0]
    came = f"SELECT {', '.join(columns)}, _tombstone AS gone FROM batch WHERE source = '{source}'"
    gone = f"SELECT {key} FROM batch WHERE source = '{source}' AND _tombstone"
    spark.sql(
        # What comes and goes within a batch was never there.
        f"MERGE INTO {table} AS t USING ({came} AND (_tombstone OR {key} NOT IN ({gone}))) AS c ON t.{key} = c.{key} "
        "WHEN MATCHED AND c.gone THEN DELETE WHEN NOT MATCHED AND NOT c.gone "
        f"THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(f'c.{name}' for name in columns)})"
    )
