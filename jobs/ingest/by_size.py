"""A micro-batch of Spark's query, taken in where its size says: by the driver when it is small, else in tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest import by_spark, in_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from strandline.jobs.ingest.event_logs import Ingested, Target
    from strandline.jobs.ingest.in_driver import SmallBatches


def ingest(rows: DataFrame, number: int, small: SmallBatches | None, targets: Sequence[Target]) -> list[Ingested]:
    """Append a micro-batch to the event logs and dead letters of its sources; the commits made, in order.

    Args:
        number: of the micro-batch in its query.
        small: those of the query; None when Spark takes in every one.

    Raises:
        VectorMismatch: another writer has committed to a table; the micro-batch must be read again.
    """
    bounds = small.bounds(number) if small is not None else None
    if small is None or bounds is None:
        return by_spark.ingest(rows, targets)
    if small.is_small(bounds):
        return small.ingest(bounds, targets)
    return in_tasks.ingest(rows.sparkSession, small.reading, small.ranges(bounds), targets, small.duckdb_engine)
