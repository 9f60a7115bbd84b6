"""What one epoch of a keyed table costs to store: our own commit against Delta's `replaceOn` and `MERGE`, in one run.

    python -m benchmarks.commit_ways [--rows 1000000] [--changes 1000] [--epochs 7]

Tables hold the same rows. In each epoch the same keys get new values, by

    ours        Table.apply: one job counts, hashes and finds the places, one writes the rows; then the commit
    commit      of that the commit alone: deletion vectors, log entry, flushes
    replaceOn   Delta's writer with deletion vectors, as we stored changed rows before
    merge       Delta's MERGE, as we stored them when keys went away
    append      Table.append: as many new rows, as an event log gets them
    delta       the same by Delta's own writer, as we stored events before

The new rows are computed and kept in memory before the clock starts. Printed are the medians after the warm-up, in
seconds, and how many times as long the old ways take.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.spark import spark_session
from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import stored_table
from strandline.state_store.delta.commit import commit
from strandline.state_store.spark.table import SparkTable
from strandline.state_store.tablespec import TableSpec

# The first epochs pay for code that the JVM has not compiled yet.
WARM_UP = 2

COLUMNS = (("k", "BIGINT"), ("v", "BIGINT"), ("word", "STRING"))
SPEC = TableSpec("ours", COLUMNS, "keyed", ("k",))
LOG = TableSpec("log", COLUMNS, "append")
OLD = "STRUCT<k: BIGINT, v: BIGINT, word: STRING, __file: STRING, __position: BIGINT>"

Seconds = dict[str, list[float]]


def main() -> None:
    """Make the tables, play the epochs, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--epochs", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, spark_session(load_settings().spark, "bench-commits") as spark:
        bench = Bench(spark, Path(folder), asked.rows)
        for epoch in range(asked.epochs + WARM_UP):
            bench.epoch(epoch, asked.changes)
        report(bench.seconds, asked.rows, asked.changes)


class Bench:
    """Tables with the same rows, an event log by each way, and the seconds of their epochs."""

    def __init__(self, spark: SparkSession, folder: Path, rows: int) -> None:
        self.spark, self.rows = spark, rows
        self.seconds: Seconds = defaultdict(list)
        self.table = SparkTable(spark, folder / "ours", SPEC)
        self.log = SparkTable(spark, folder / "log", LOG)
        self.log.ensure(CommitRecord(epoch=0))
        self.theirs = {way: str(folder / way) for way in ("replaceOn", "merge", "delta")}
        first = spark.range(rows).selectExpr("id AS k", "id * 2 AS v", "concat('word ', id) AS word").coalesce(1)
        self.table.ensure(CommitRecord(epoch=0))
        new = first.selectExpr("*", "TRUE AS __exists", f"CAST(NULL AS {OLD}) AS __old")
        self.table.apply(new, CommitRecord(epoch=1))
        properties = "'delta.enableDeletionVectors' = 'true', 'delta.enableChangeDataFeed' = 'true'"
        for path in self.theirs.values():
            spark.sql(f"CREATE TABLE delta.`{path}` ({SPEC.ddl}) USING delta TBLPROPERTIES ({properties})")
            first.write.format("delta").mode("append").save(path)

    def epoch(self, number: int, changes: int) -> None:
        """New values for `changes` keys spread over the table."""
        step = self.rows // changes
        keys = self.spark.range(changes).selectExpr(f"id * {step} + {number} % {step} AS k", f"{number}L AS new_v")
        stored = self.table.read(self.table.head().version)
        joined = stored.join(F.broadcast(keys), "k")
        old = "struct(k, v, word, __file, __position) AS __old"
        settled = joined.selectExpr("k", "new_v AS v", "word", "TRUE AS __exists", old).persist()
        settled.count()
        rows = settled.select("k", "v", "word").coalesce(1)
        with self.clock("ours"), patch.object(stored_table, "commit", self._commit):
            self.table.apply(settled, CommitRecord(epoch=number + 2))
        with self.clock("replaceOn"):
            self._replace(rows)
        with self.clock("merge"):
            self._merge(rows)
        with self.clock("append"):
            self.log.append(rows, CommitRecord(epoch=number + 1))
        with self.clock("delta"):
            rows.write.format("delta").mode("append").save(self.theirs["delta"])
        settled.unpersist()

    def _commit(self, *given: Any) -> Head:
        with self.clock("commit"):
            return commit(*given)

    def _replace(self, rows: DataFrame) -> None:
        options = {"replaceOn": "__s.k <=> __n.k", "targetAlias": "__s"}
        rows.alias("__n").write.format("delta").mode("overwrite").options(**options).save(self.theirs["replaceOn"])

    def _merge(self, rows: DataFrame) -> None:
        from delta.tables import DeltaTable

        target = DeltaTable.forPath(self.spark, self.theirs["merge"]).alias("__s")
        merge = target.merge(rows.alias("__n"), "__s.k <=> __n.k")
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    @contextmanager
    def clock(self, way: str) -> Iterator[None]:
        """Add the seconds of the block."""
        began = time.perf_counter()
        yield
        self.seconds[way].append(time.perf_counter() - began)


def report(seconds: Seconds, rows: int, changes: int) -> None:
    """Print the medians and the ratios."""
    medians = {way: statistics.median(taken[WARM_UP:]) for way, taken in seconds.items()}
    print(f"{changes} changed keys of {rows}, medians of {len(seconds['ours']) - WARM_UP} epochs")
    print(f"{'way':12}{'seconds':>10}{'/ ours':>10}{'/ commit':>10}")
    for way, median in medians.items():
        print(f"{way:12}{median:10.4f}{median / medians['ours']:10.1f}{median / medians['commit']:10.1f}")
    print(f"delta / append {medians['delta'] / medians['append']:.1f}")


if __name__ == "__main__":
    main()
