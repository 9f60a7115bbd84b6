"""A topic that was removed and made again is never taken for the first one, however many records it holds."""

from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record, TopicIdentity
from strandline.jobs.ingest.offsets import committed_offsets, start_offsets
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.ingest.topics import check_all_same, current_ids
from strandline.jobs.model import tables
from strandline.jobs.model.errors import OffsetsVanished, TopicMissing, TopicReplaced, revive
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.spark import Session
from strandline.jobs.run.stream import PipelineStream
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import writer_lock
from tests.support.on_disk import on_disk
from tests.unit.ingest.committed import EVENTS, commit


def _made(lake: LakeLayout, records: int, partitions: int = 1) -> LocalLog:
    """The topic, made anew, with that many records in partition 0."""
    shutil.rmtree(on_disk(lake.topic("events")), ignore_errors=True)
    log = LocalLog(lake)
    log.ensure_topic("events", partitions)
    log.produce("events", [Record(None, b"{}", 1, partition=0)] * records)
    return log


def test_a_topic_keeps_its_id_and_a_new_one_has_another(lake: LakeLayout) -> None:
    first = _made(lake, 1).identity("events")
    assert LocalLog(lake).identity("events") == first
    assert len(first.id) == 32
    assert first.leader_epochs == {}
    assert _made(lake, 1).identity("events") != first


def test_a_replaced_topic_with_more_records_stops_the_run_before_it_reads(settings: Settings, lake: LakeLayout) -> None:
    """Its first records would be taken for those that were read. The run stops before it needs a session."""
    commit(lake, {"0": 3}, _made(lake, 3).identity("events").id)
    old, new = current_ids([EVENTS], lake, LocalLog(lake))["events"], _made(lake, 10).identity("events").id
    context: Any = SimpleNamespace(lake=lake, session=None, writer="p/1", functions=None, duckdb_engine=None)
    with writer_lock(on_disk(lake.lock("p")), "a test") as lock:
        stream = PipelineStream(Session(settings, lake, lock), context, settings, "p", [EVENTS], (), lock)
        with pytest.raises(TopicReplaced, match=f"'events'.* {old}.* {new}") as caught:
            stream.drain()
    assert "DROP" in cast("str", caught.value.hint)
    assert isinstance(revive(f"Traceback …\n{caught.value}\nat org.apache…"), TopicReplaced)


def test_dead_letters_of_a_topic_that_was_replaced_stop_the_run_too(lake: LakeLayout) -> None:
    """They are committed first: after a kill they may be all that there is of the old topic."""
    commit(lake, {"0": 3}, _made(lake, 3).identity("events").id, "events__dead_letters")
    with pytest.raises(TopicReplaced):
        current_ids([EVENTS], lake, _made(lake, 10))


def test_an_unknown_id_is_no_other_id(lake: LakeLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers before Kafka 2.8 give none."""
    log = _made(lake, 3)
    commit(lake, {"0": 3}, "")
    assert current_ids([EVENTS], lake, log) == {"events": log.identity("events").id}
    monkeypatch.setattr(LocalLog, "identity", lambda *_: TopicIdentity(""))
    commit(lake, {"0": 3}, "a" * 32, "events__dead_letters")
    assert current_ids([EVENTS], lake, log) == {"events": ""}


def test_a_topic_replaced_during_a_run_is_seen_at_the_next_look(lake: LakeLayout) -> None:
    wanted = {"events": _made(lake, 3).identity("events").id}
    check_all_same(wanted, LocalLog(lake))
    with pytest.raises(TopicReplaced):
        check_all_same(wanted, _made(lake, 10))
    shutil.rmtree(on_disk(lake.topic("events")))
    with pytest.raises(TopicMissing):
        check_all_same(wanted, LocalLog(lake))


def test_a_partition_that_is_gone_is_named(lake: LakeLayout) -> None:
    """A topic made again with fewer partitions, where ids are unknown."""
    commit(lake, {"0": 3, "2": 7}, "")
    committed = {"events": committed_offsets(EVENTS, lake)}
    with pytest.raises(OffsetsVanished, match="no partition 2 any more, and 7 records"):
        start_offsets([EVENTS], committed, _made(lake, 3, partitions=2))


def test_a_topic_that_was_read_and_is_gone_was_deleted(lake: LakeLayout) -> None:
    """To make it again is not enough then: that would be another one."""
    with pytest.raises(TopicMissing) as never_there:
        current_ids([EVENTS], lake, LocalLog(lake))
    assert "CREATE" in (never_there.value.hint or "")
    commit(lake, {"0": 3}, _made(lake, 3).identity("events").id)
    shutil.rmtree(on_disk(lake.topic("events")))
    with pytest.raises(TopicMissing, match="events were read from it: it was deleted") as deleted:
        current_ids([EVENTS], lake, LocalLog(lake))
    assert "type: strandline rebuild events" in (deleted.value.hint or "")


@pytest.mark.parametrize("read", [tables.event_log(EVENTS), "events__dead_letters"])
def test_an_insert_makes_no_topic_anew_that_was_read(lake: LakeLayout, settings: Settings, read: str) -> None:
    rows = [{"n": 1}]
    insert_rows(EVENTS, rows, settings, lake)
    commit(lake, {"0": 1}, LocalLog(lake).identity("events").id, read)
    assert insert_rows(EVENTS, rows, settings, lake) == 1
    shutil.rmtree(on_disk(lake.topic("events")))
    with pytest.raises(TopicMissing, match="it was deleted") as deleted:
        insert_rows(EVENTS, rows, settings, lake)
    assert "give the CREATE of 'events' once more" in (deleted.value.hint or "")
    assert not LocalLog(lake).exists("events")
    log = _made(lake, 0)
    with pytest.raises(TopicReplaced) as replaced:
        insert_rows(EVENTS, rows, settings, lake)
    assert "nothing was written; type: strandline rebuild events" in (replaced.value.hint or "")
    assert log.end_offsets("events") == {0: 0}
