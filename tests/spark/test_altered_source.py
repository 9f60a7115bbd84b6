"""Sources that get columns, as Spark reads them: plans over old and new files, Delta's own reader, a live run."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import IngestSettings, Settings
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.run.pipeline import drain
from strandline.state_store.delta import log
from strandline.state_store.layout import LakeLayout
from strandline.state_store.spark.table import SparkTable
from tests.support.altered_lake import AFTER, ALTER, PIPELINE, made, rows, run
from tests.support.invariants import assert_correct
from tests.support.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [("a", 1, None), ("a", 3, "x"), ("a", 5, None), ("b", 2, None), ("c", 4, None)]


def test_a_live_run_takes_the_columns_and_spark_reads_both_forms(settings: Settings, spark: SparkSession) -> None:
    """The change comes after the first micro-batch of a backlog: the query begins anew, and each event comes once."""
    given = settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=1)})
    lake = LakeLayout(settings.lake)
    made(settings)
    before = log.newest_version(lake.table("sales"))
    assert before is not None
    run(settings, "INSERT INTO sales (shop, qty) VALUES ('d', 1), ('d', 2), ('d', 3), ('d', 4);")
    changing = Thread(target=run, args=(settings, ALTER))

    def watch(batch: MicroBatch) -> None:
        if batch.number == 1:
            changing.start()
            wait_until(lambda: intents.begun_replacements(lake), "the intent does not come")

    drain(given, PIPELINE, spark, watch=watch)
    changing.join(PATIENCE_SECONDS)
    newest = log.newest_version(lake.table("sales"))
    assert newest is not None
    records = [
        commit.record for commit in log.read_history(lake.table("sales"), before, newest) if commit.record is not None
    ]
    modes = [record.mode for record in records]
    assert (modes[0], modes[-1], modes.count("columns")) == ("ingest", "ingest", 1)
    assert {record.writer for record in records} == {records[0].writer}, "the run did it"
    assert len(rows(lake, "sales")) == 7
    run(settings, AFTER)
    drain(settings.model_copy(update={"engine": "spark"}), PIPELINE, spark)
    assert rows(lake, "sales") == [*ALL, *(("d", qty, None) for qty in range(1, 5))]
    assert rows(lake, "shops") == [("a", "Anna", None, None), ("b", "Bert", "Ulm", 3), ("c", "Cleo", None, 4)]
    assert rows(lake, "by_shop") == [("a", 3, 9), ("b", 1, 2), ("c", 1, 4), ("d", 4, 10)]
    assert_correct(lake, PIPELINE)
    path = lake.table("sales")
    theirs = spark.read.format("delta").load(str(path)).select("shop", "qty", "coupon").collect()
    assert sorted((tuple(row) for row in theirs), key=str) == rows(lake, "sales")
    table = SparkTable(spark, path, spec_of_input(relation("sales", Catalog(lake))))
    ours = table.read(table.head().version).select("shop", "qty", "coupon").collect()
    changes = table.changes(0, table.head().version).select("shop", "qty", "coupon").collect()
    assert sorted(map(tuple, ours), key=str) == sorted(map(tuple, changes), key=str) == rows(lake, "sales")
