"""An idle query waits at the log: a micro-batch begins with its first record, not after a pause."""

from __future__ import annotations

import time
from threading import Timer
from typing import Any

import pytest

from jobs.ingest import source
from jobs.ingest.logs.local_log import LocalLog
from jobs.ingest.logs.log import Record
from jobs.ingest.source import Reading, TopicsReader
from jobs.model.errors import TopicMissing, TopicReplaced
from jobs.model.settings import Settings
from state_store.layout import Lake
from tests.unit.ingest.committed import EVENTS

# Of waits of a minute that end early: longer than a busy machine needs, much shorter than the wait.
SOON = 10.0


def _record(partition: int) -> Record:
    return Record(None, b"{}", 0, (), partition)


@pytest.fixture
def log(lake: Lake) -> LocalLog:
    log = LocalLog(lake)
    log.ensure_topic("events", partitions=2)
    return log


def _reader(settings: Settings, lake: Lake) -> TopicsReader:
    topic_ids = {"events": LocalLog(lake).identity("events").id}
    schema: Any = None
    return TopicsReader(Reading(settings, lake, (EVENTS,), topic_ids, {"events": {"0": 0, "1": 0}}), schema)


def _seconds_of_wait(log: LocalLog, offsets: dict[int, int], seconds: float) -> float:
    began = time.monotonic()
    log.wait({"events": offsets}, seconds)
    return time.monotonic() - began


def test_a_wait_ends_with_the_first_record_of_any_partition(log: LocalLog, lake: Lake) -> None:
    timer = Timer(0.2, lambda: LocalLog(lake).produce("events", [_record(1)]))
    timer.start()
    assert 0.1 < _seconds_of_wait(log, {0: 0, 1: 0}, 60) < SOON
    assert log.end_offsets("events") == {0: 0, 1: 1}
    timer.join()


def test_a_record_that_is_there_needs_no_wait_and_one_before_the_offset_is_not_waited_for(log: LocalLog) -> None:
    log.produce("events", [_record(1)])
    assert _seconds_of_wait(log, {0: 0, 1: 0}, 60) < SOON
    assert _seconds_of_wait(log, {0: 0, 1: 1}, 0.2) >= 0.2


def test_waiting_at_a_topic_that_is_not_there_is_an_error(lake: Lake) -> None:
    with pytest.raises(TopicMissing):
        LocalLog(lake).wait({"events": {0: 0}}, 60)


def test_a_query_that_goes_on_waits_and_then_takes_what_came(
    settings: Settings, lake: Lake, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_WAIT_SECONDS", 60.0)
    reader = _reader(settings, lake)
    timer = Timer(0.2, lambda: LocalLog(lake).produce("events", [_record(0)]))
    timer.start()
    began = time.monotonic()
    reached = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert 0.1 < time.monotonic() - began < SOON
    assert reached == {"topics": {"events": {"0": 1, "1": 0}}}
    assert reader.reportLatestOffset() == reached
    timer.join()


def test_a_query_that_drains_does_not_wait(
    settings: Settings, lake: Lake, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_WAIT_SECONDS", 60.0)
    reader = _reader(settings, lake)
    reader.prepareForTriggerAvailableNow()
    began = time.monotonic()
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()) == reader.initialOffset()
    assert time.monotonic() - began < SOON


def test_a_topic_that_is_replaced_during_the_wait_is_not_read(
    settings: Settings, lake: Lake, log: LocalLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The records that end the wait are those of the new topic."""
    monkeypatch.setattr(source, "_WAIT_SECONDS", 60.0)
    reader = _reader(settings, lake)

    class _Replacing(LocalLog):
        def wait(self, offsets: Any, seconds: float) -> None:
            for file in sorted(lake.topic("events").iterdir()):  # type: ignore[union-attr]
                file.unlink()
            self.ensure_topic("events", partitions=2)
            self.produce("events", [_record(0)])
            super().wait(offsets, seconds)

    reader._log = _Replacing(lake)
    with pytest.raises(TopicReplaced):
        reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
