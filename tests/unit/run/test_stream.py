"""A pipeline at work: it stops when the file of its lock is taken from under it, and wakes for what is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, View
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.spark import Session
from strandline.jobs.run.stream import PipelineStream
from strandline.state_store.errors import LockLost
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import writer_lock
from tests.support.on_disk import on_disk


@pytest.fixture
def stream(lake: LakeLayout, settings: Settings) -> Iterator[PipelineStream]:
    with writer_lock(on_disk(lake.lock("p")), "run/1") as lock:
        yield PipelineStream(Session(settings, lake, lock), RunContext(None, lake, "p/1"), settings, "p", [], [], lock)


@pytest.mark.parametrize(
    "step",
    [
        lambda stream: stream.refresh(),
        lambda stream: stream.drain(),
        lambda stream: stream._micro_batch(lambda _targets: []),
    ],
    ids=["refresh", "drain", "micro-batch"],
)
def test_no_step_goes_on_without_the_lock(
    stream: PipelineStream, lake: LakeLayout, step: Callable[[PipelineStream], None]
) -> None:
    stream.refresh()
    on_disk(lake.lock("p")).unlink()
    with pytest.raises(LockLost):
        step(stream)


def test_a_replacement_in_another_pipeline_wakes_nobody(
    stream: PipelineStream, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may stand for long: whoever began it was killed, and its pipeline has not run since."""
    view = View(
        name="other",
        kind="table",
        columns=(Column("id", t.BIGINT, key=True),),
        query="SELECT id FROM events",
        inputs=("events",),
        pipeline="another",
        sql="CREATE TABLE other AS SELECT id FROM events;",
        fingerprint="f1",
    )
    intents.put_replacement(Replacement(view), lake)
    assert len(intents.begun_replacements(lake)) == 1
    looks = iter([False, False, True])
    stop = Event()
    monkeypatch.setattr(stop, "wait", lambda _seconds: next(looks))
    refreshes: list[PipelineStream] = []
    monkeypatch.setattr(PipelineStream, "refresh", lambda stream, **_: refreshes.append(stream))
    stream.follow(stop)
    assert len(refreshes) == 1, "the one that every run begins with"


def test_an_idle_run_notices_it_too(stream: PipelineStream, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    monkeypatch.setattr(stop, "wait", lambda _seconds: on_disk(lake.lock("p")).unlink())
    with pytest.raises(LockLost):
        stream.follow(stop)


def test_a_commit_of_another_pipeline_during_the_first_refresh_is_news(
    stream: PipelineStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, commits, refreshed = Event(), [1], []

    def refresh(_self: PipelineStream, **_: bool) -> None:
        refreshed.append(commits[-1])
        if len(refreshed) == 1:
            commits.append(2)

    monkeypatch.setattr(PipelineStream, "refresh", refresh)
    monkeypatch.setattr("strandline.jobs.run.stream.foreign_heads", lambda *_: {"theirs": commits[-1]})
    looks = [True, False, False]
    monkeypatch.setattr(stop, "wait", lambda _seconds: len(refreshed) > 1 or looks.pop())
    stream.follow(stop)
    assert refreshed == [1, 2]
