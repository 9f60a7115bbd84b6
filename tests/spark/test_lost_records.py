"""Topics and records that are gone before they were read: the run stops and says which."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.ingest import source
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.errors import OffsetsVanished, TopicMissing, TopicReplaced, revive
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.spark.event_sources import EVENTS, fill
from tests.support.drain_sources import drain, small_epochs
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_missing_topic_stops_at_the_start(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    with pytest.raises(TopicMissing, match="'events'"):
        drain(spark, settings, lake, [EVENTS])


def test_records_removed_before_they_were_read_stop_the_run(
    spark: SparkSession, settings: Settings, lake: LakeLayout
) -> None:
    log = LocalLog(lake)
    log.ensure_topic("events", 1)
    for _ in range(3):
        log.produce("events", [Record(None, b"{}", 1)] * 2)
    drain(spark, small_epochs(settings, 2), lake, [replace(EVENTS, name="first")])
    log.produce("events", [Record(None, b"{}", 1)] * 2)
    files = sorted(on_disk(lake.topic("events")).glob("*.log"))
    source.register(spark)
    for path in files[:2]:
        path.unlink()
    # Read up to 6, kept from 4 on: fine. A source that had read up to 2 has lost 2 and 3.
    drain(spark, settings, lake, [replace(EVENTS, name="first")])
    with pytest.raises(OffsetsVanished, match="records 2 to 3 were removed"):
        source.IntakeRange.after({"events": {"0": 2}}, settings, lake, [EVENTS], {})


def test_a_topic_made_anew_stops_the_run(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    fill(settings, lake, 2)
    with pytest.raises(OffsetsVanished, match="deleted and created again"):
        source.IntakeRange.after({"events": {"0": 99}}, settings, lake, [EVENTS], {})


def test_a_topic_made_anew_with_more_records_stops_the_run(
    spark: SparkSession, settings: Settings, lake: LakeLayout
) -> None:
    """Its offsets fit those that were read; its id does not."""
    fill(settings, lake, 2)
    drain(spark, settings, lake, [EVENTS])
    shutil.rmtree(on_disk(lake.topic("events")))
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    log.produce("events", [Record(None, b"{}", 1000)] * 10)
    with pytest.raises(TopicReplaced, match="'events'"):
        drain(spark, settings, lake, [EVENTS])


def test_an_error_of_ours_comes_back_typed_from_the_workers(
    spark: SparkSession, settings: Settings, lake: LakeLayout
) -> None:
    """Spark hands over text; code, message and hint are found in it."""
    for first in range(0, 20, 4):
        fill(settings, lake, 4, first)

    def lose(_batch: DataFrame) -> None:
        *earlier, _newest = sorted(on_disk(lake.topic("events")).glob("*.log"))
        for path in earlier:
            path.unlink()

    with pytest.raises(Exception, match="vanished") as caught:
        drain(spark, small_epochs(settings, 4), lake, [EVENTS], each=lose)
    error = revive(str(caught.value))
    assert isinstance(error, OffsetsVanished)
    assert "were removed unread" in error.message
    assert error.hint is not None
