"""Broken records on their way into event logs: kept apart with a reason, never lost, never twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from strandline.jobs.ingest import event_logs
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.offsets import committed_offsets
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.spark.event_sources import EVENTS, fill
from tests.support.drain_sources import drain, rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_broken_records_become_dead_letters(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """Log + dead letters = topic, in one batch; the raw bytes and a reason that names the column are kept."""
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    good, bad = b'{"name": "ok"}', [b"{", b"[]", b'{"price": 1.234}', None, b'{"name": "\xff"}', b'{"price": NaN}']
    values = [value for broken in bad for value in (good, broken)]
    key = b"\0" * 8
    log.produce("events", [Record(key, value, 10, partition=0) for value in values])
    log.produce("events", [Record(b"short", good, 20, partition=1)])
    commits = drain(spark, settings, lake, [EVENTS])
    assert {commit.table: commit.rows for commit in commits} == {"events": 6, "events__dead_letters": 7}
    letters = rows_of(lake, "events__dead_letters")
    assert [letter["_value"] for letter in letters] == [*bad, good]
    assert [letter["_key"] for letter in letters] == [key] * 6 + [b"short"]
    assert {letter["_topic"] for letter in letters} == {"events"}
    reasons = [str(letter["reason"]) for letter in letters]
    assert "column 'price': number has more than 2 decimal places" in reasons
    assert "no value" in reasons
    assert "column 'id': 5 bytes, a BIGINT has 8" in reasons
    places = {(row["_partition"], row["_offset"]) for row in [*rows_of(lake, "events"), *letters]}
    assert places == {(0, n) for n in range(12)} | {(1, 0)}


def test_only_broken_records_still_move_the_log_on(spark: SparkSession, settings: Settings, lake: LakeLayout) -> None:
    """Otherwise every run would read them again, until retention takes them away and the start is lost."""
    log = LocalLog(lake)
    log.ensure_topic("events", 2)
    log.produce("events", [Record(None, b"x", 1, partition=0)] * 3)
    (commit,) = drain(spark, settings, lake, [EVENTS])
    assert commit.dead_letters
    assert committed_offsets(EVENTS, lake)["0"] == 3
    assert drain(spark, settings, lake, [EVENTS]) == []


def test_a_death_between_dead_letters_and_log_is_made_good(
    spark: SparkSession, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The letters are committed, the log is not: the next run writes the rows, and no letter twice."""
    fill(settings, lake, 5)
    LocalLog(lake).produce("events", [Record(None, b"x", 1)])

    def die(name: str) -> None:
        raise RuntimeError(name)

    monkeypatch.setattr(event_logs, "failpoint", die)
    with pytest.raises(Exception, match="before-log-commit"):
        drain(spark, settings, lake, [EVENTS])
    assert len(rows_of(lake, "events__dead_letters")) == 1
    assert rows_of(lake, "events") == []
    monkeypatch.undo()
    drain(spark, settings, lake, [EVENTS])
    assert len(rows_of(lake, "events__dead_letters")) == 1
    assert sorted(row["id"] for row in rows_of(lake, "events")) == [0, 1, 2, 3, 4]
