"""Spark's Python workers begin with the engine imported."""

from __future__ import annotations

import gc
import sys

from pyspark.sql import SparkSession


def test_workers_have_the_engine_and_do_not_walk_through_it_after_each_task(spark: SparkSession) -> None:
    found = spark.sparkContext.parallelize([0], 1).map(
        lambda _: ("strandline.jobs.run.refresh_views" in sys.modules, gc.get_freeze_count())
    )
    ((imported, frozen),) = found.collect()
    assert imported
    assert frozen > 50_000
