"""Runs of a pipeline's sources without its views: what the tests of ingest share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest import in_tasks, source
from strandline.jobs.ingest.event_logs import Ingested, Target
from strandline.jobs.ingest.in_driver import SmallBatches
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.ingest.source import IntakeRange
from strandline.jobs.ingest.topics import current_ids, open_log
from strandline.jobs.model.settings import IngestSettings, Settings
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from strandline.jobs.model.definitions import Source
    from strandline.state_store.duckdb.engine import DuckDBEngine

WRITER = "test/1"


def drain(
    spark: SparkSession,
    settings: Settings,
    lake: LakeLayout,
    sources: Sequence[Source],
    each: Callable[[DataFrame], None] | None = None,
    duckdb_engine: DuckDBEngine | None = None,
) -> list[Ingested]:
    """One drain from what the lake says, as a pipeline does it; the commits.

    Args:
        duckdb_engine: with it the driver takes in the micro-batches that are small, and tasks the others.
    """
    commits: list[Ingested] = []

    def epoch(batch: DataFrame, number: int) -> None:
        targets = Target.of_all(sources, lake, WRITER, ids)
        small = None if duckdb_engine is None else SmallBatches(reading, checkpoint, duckdb_engine)
        assert small is None or small.bounds(number) is not None, "Spark notes offsets in another way"
        commits.extend(in_tasks.ingest(batch, number, small, targets))
        if each is not None:
            each(batch)

    source.register(spark)
    ids = current_ids(sources, lake, open_log(settings, lake))
    committed = {s.name: committed_offsets(s, lake) for s in sources}
    reading = IntakeRange.after(committed, settings, lake, sources, ids)
    checkpoint = Path(str(lake.root)) / "checkpoints" / f"run-{len(list(Path(str(lake.root)).glob('checkpoints/*')))}"
    writer = reading.frame(spark).writeStream.foreachBatch(epoch).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return commits


def rows_of(lake: LakeLayout, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = reader.read_rows(lake.table(table)).to_pylist()
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def small_epochs(settings: Settings, rows: int, in_driver: int = 20_000) -> Settings:
    """Epochs of at most so many rows, the driver's of at most `in_driver`."""
    return settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=rows, driver_rows=in_driver)})
