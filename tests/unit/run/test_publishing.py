"""The changelog topics of a run: published when there is a commit, and once more at the end of a drain."""

from __future__ import annotations

from threading import Event

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.settings import Settings
from strandline.jobs.publish.publisher import Published
from strandline.jobs.publish.topic import PublisherFenced, TopicTaken
from strandline.jobs.run.publishing import publishing
from strandline.jobs.serve import watch
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.published_lake import PublishedLake
from tests.support.waiting import PATIENCE_SECONDS


def ignored(done: Published) -> None:
    """Nobody listens."""


def test_each_commit_is_published_when_it_is_made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The threads look every five seconds by themselves; here they are told."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    made = PublishedLake(settings)
    told, versions = Event(), []

    def heard(done: Published) -> None:
        versions.append(done.version)
        told.set()

    published = publishing(settings, [made.view("by_town")], heard, drained=True)
    with DuckDBEngine("500MB", 1) as duckdb_engine, published as failures:
        for _ in range(2):
            told.clear()
            made.epoch(duckdb_engine)
            assert told.wait(PATIENCE_SECONDS)
        made.epoch(duckdb_engine)
    assert (failures, versions) == ({}, [1, 2, 3])


def test_a_topic_that_stands_still_is_told_of_at_the_end(settings: Settings) -> None:
    """The others go on."""
    made = PublishedLake(settings)
    with DuckDBEngine("500MB", 1) as duckdb_engine:
        made.epoch(duckdb_engine)
    log = LocalLog(made.lake)
    log.ensure_topic("by_town")
    log.produce("by_town", [Record(b"k", b"v", 0)])
    views = [made.view("by_town"), made.view("by_both")]
    with publishing(settings, views, ignored, drained=True) as failures:
        pass
    assert {topic: type(error) for topic, error in failures.items()} == {"by_town": TopicTaken}
    assert made.publish("by_both").way == "nothing"


def test_who_is_fenced_does_not_fence_back(settings: Settings) -> None:
    made = PublishedLake(settings)
    told = Event()
    with (
        DuckDBEngine("500MB", 1) as duckdb_engine,
        publishing(settings, [made.view("by_town")], lambda _: told.set(), drained=True) as failures,
    ):
        made.epoch(duckdb_engine)
        assert told.wait(PATIENCE_SECONDS)
        log = LocalLog(made.lake)
        log.produce("by_town", [Record(b'"Rome"', None, 0, (("strandline.view", b"by_town"),))])
        made.epoch(duckdb_engine)
    assert {topic: type(error) for topic, error in failures.items()} == {"by_town": PublisherFenced}
