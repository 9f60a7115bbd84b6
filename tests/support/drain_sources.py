"""Runs of a pipeline's sources without its views: what the tests of ingest share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ingest import event_logs, source
from jobs.ingest.identity import current_ids
from jobs.ingest.logs.open import open_log
from jobs.model.settings import IngestSettings, Settings
from state_store.delta import reader
from state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from jobs.model.definitions import Source

WRITER = "test/1"


def drain(
    spark: SparkSession,
    settings: Settings,
    lake: Lake,
    sources: Sequence[Source],
    each: Callable[[DataFrame], None] | None = None,
) -> list[event_logs.Ingested]:
    """One drain from what the lake says, as a pipeline does it; the commits."""
    commits: list[event_logs.Ingested] = []

    def epoch(batch: DataFrame, _number: int) -> None:
        commits.extend(event_logs.ingest(batch.sparkSession, batch, sources, lake, WRITER, ids))
        if each is not None:
            each(batch)

    source.register(spark)
    ids = current_ids(sources, lake, open_log(settings, lake))
    committed = {s.name: event_logs.committed_offsets(s, lake) for s in sources}
    frame = source.read_stream(spark, settings, lake, sources, committed, ids)
    checkpoint = lake.root / "checkpoints" / f"run-{len(list(lake.root.glob('checkpoints/*')))}"
    writer = frame.writeStream.foreachBatch(epoch).option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()
    return commits


def rows_of(lake: Lake, table: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = reader.read_rows(lake.table(table)).to_pylist()
    return sorted(rows, key=lambda row: (row["_partition"], row["_offset"]))


def small_epochs(settings: Settings, rows: int) -> Settings:
    return settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=rows)})
