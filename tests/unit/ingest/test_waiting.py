"""An idle query waits at the log: a micro-batch begins with its first record, not after a pause.

Waits of an hour that a record ends: the test hangs, and fails by its own time limit, if it does not.
"""

from __future__ import annotations

import time
from threading import Timer
from typing import Any

import pytest

from strandline.jobs.ingest import source
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.source import IntakeRange, TopicsReader
from strandline.jobs.model.errors import TopicMissing, TopicReplaced
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk
from tests.unit.ingest.committed import EVENTS

AN_HOUR = 3600.0


def _record(partition: int) -> Record:
    return Record(None, b"{}", 0, (), partition)


@pytest.fixture
def log(lake: LakeLayout) -> LocalLog:
    log = LocalLog(lake)
    log.ensure_topic("events", partitions=2)
    return log


def _reader(settings: Settings, lake: LakeLayout) -> TopicsReader:
    topic_ids = {"events": LocalLog(lake).identity("events").id}
    schema: Any = None
    return TopicsReader(IntakeRange(settings, lake, (EVENTS,), topic_ids, {"events": {"0": 0, "1": 0}}), schema)


def test_a_wait_ends_with_the_first_record_of_any_partition(log: LocalLog, lake: LakeLayout) -> None:
    timer = Timer(0.2, lambda: LocalLog(lake).produce("events", [_record(1)]))
    timer.start()
    log.wait({"events": {0: 0, 1: 0}}, AN_HOUR)
    assert log.end_offsets("events") == {0: 0, 1: 1}, "it ended before the record came"
    timer.join()


def test_a_record_that_is_there_needs_no_wait_and_one_before_the_offset_is_not_waited_for(log: LocalLog) -> None:
    log.produce("events", [_record(1)])
    log.wait({"events": {0: 0, 1: 0}}, AN_HOUR)
    began = time.monotonic()
    log.wait({"events": {0: 0, 1: 1}}, 0.2)
    assert time.monotonic() - began >= 0.2


def test_waiting_at_a_topic_that_is_not_there_is_an_error(lake: LakeLayout) -> None:
    with pytest.raises(TopicMissing):
        LocalLog(lake).wait({"events": {0: 0}}, AN_HOUR)


def test_a_query_that_goes_on_waits_and_then_takes_what_came(
    settings: Settings, lake: LakeLayout, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_WAIT_SECONDS", AN_HOUR)
    reader = _reader(settings, lake)
    timer = Timer(0.2, lambda: LocalLog(lake).produce("events", [_record(0)]))
    timer.start()
    reached = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert reached == {"topics": {"events": {"0": 1, "1": 0}}}
    assert reader.reportLatestOffset() == reached
    timer.join()


def test_a_query_that_drains_does_not_wait(
    settings: Settings, lake: LakeLayout, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_WAIT_SECONDS", AN_HOUR)
    reader = _reader(settings, lake)
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()) == reader.initialOffset()


def test_a_topic_that_is_replaced_during_the_wait_is_not_read(
    settings: Settings, lake: LakeLayout, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that end the wait are those of the new topic."""
    monkeypatch.setattr(source, "_WAIT_SECONDS", AN_HOUR)
    reader = _reader(settings, lake)

    class _Replacing(LocalLog):
        def wait(self, offsets: Any, seconds: float) -> None:
            for file in sorted(on_disk(lake.topic("events")).iterdir()):
                file.unlink()
            self.ensure_topic("events", partitions=2)
            self.produce("events", [_record(0)])
            super().wait(offsets, seconds)

    reader._log = _Replacing(lake)
    with pytest.raises(TopicReplaced):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
