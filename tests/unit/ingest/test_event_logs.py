"""The record of an event log's commit, without Spark: it says what the next run must know."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from strandline.jobs.ingest.event_logs import Intake, Target
from strandline.jobs.ingest.offsets import Range
from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import TableSpec
from tests.unit.ingest.committed import EVENTS


class _Log:
    """A table with a head, that keeps the record it is moved on with."""

    def __init__(self, before: CommitRecord) -> None:
        self.before = Head(9, before)
        self.records: list[CommitRecord] = []

    def ensure(self, _record: CommitRecord) -> Head:
        return self.before

    def advance(self, record: CommitRecord) -> None:
        self.records.append(record)


class _Intake(Intake):
    """It has no rows to append."""

    def __init__(self, log: _Log, topic_id: str, lake: LakeLayout) -> None:
        self.log = log
        super().__init__(Target(EVENTS, 0, lake, "p/1", topic_id))

    def _table(self, spec: TableSpec) -> Any:
        assert spec.name == "events"
        return self.log

    def _append_events(self, *_: object) -> Head:
        raise AssertionError

    def _append_dead_letters(self, *_: object) -> Head:
        raise AssertionError


def test_a_commit_names_the_last_record_read_and_its_leader_s_term(lake: LakeLayout) -> None:
    """A range without records, or without known terms, leaves what is known; so does one that was committed before."""
    terms = {str(partition): [2, 5] for partition in range(4)}
    before = CommitRecord(4, offsets={"events": dict.fromkeys("0123", 3)}, leader_epochs={"events": terms})
    intake = _Intake(_Log(before), "", lake)
    ranges = [Range("0", 7, None, None, None), Range("2", 4, None, 3, None, None), Range("3", 3, None, 2, None, 4)]
    record = intake._record(Head(9, before), [*ranges, Range("1", 9, 4, 6, None, 8), Range("4", 2, 1, 0, None, 8)])
    assert record.leader_epochs == {"events": terms | {"1": [6, 8], "4": [1, 8]}}
    assert CommitRecord.from_json(record.to_json()) == record
    assert "leader_epochs" not in CommitRecord(4).to_json()


@pytest.mark.parametrize(("now", "committed"), [("b" * 32, "b" * 32), ("", "a" * 32)])
def test_a_commit_names_the_topic_its_offsets_are_of(now: str, committed: str, lake: LakeLayout) -> None:
    """A log that cannot tell the id leaves the one that is known."""
    before = CommitRecord(epoch=4, offsets={"events": {"0": 3}}, topics={"events": "a" * 32})
    log = _Log(before)
    intake = _Intake(log, now, lake)
    assert intake.take([Range("0", 7, None, None, None)]) == []
    expected = replace(before, epoch=5, offsets={"events": {"0": 7}}, topics={"events": committed})
    (record,) = log.records
    assert replace(record, writer="", mode="create", reason="", stream_times={}) == expected
    assert CommitRecord.from_json(record.to_json()) == record
