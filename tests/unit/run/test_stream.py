"""A pipeline at work stops when the file of its lock is taken from under it: nothing is read, nothing committed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event

import pytest

from jobs.ivm.refresh.context import RunContext
from jobs.model.settings import Settings
from jobs.run.session import Session
from jobs.run.stream import PipelineStream
from state_store.errors import LockLost
from state_store.layout import Lake
from state_store.lock import writer_lock


@pytest.fixture
def stream(lake: Lake, settings: Settings) -> Iterator[PipelineStream]:
    with writer_lock(lake.lock("p"), "run/1") as lock:
        yield PipelineStream(Session(settings, lake, lock), RunContext(None, lake, "p/1"), settings, "p", [], [], lock)


@pytest.mark.parametrize(
    "step",
    [
        lambda stream: stream.refresh(),
        lambda stream: stream.drain(),
        lambda stream: stream._micro_batch(None, 0, None),
    ],
    ids=["refresh", "drain", "micro-batch"],
)
def test_no_step_goes_on_without_the_lock(
    stream: PipelineStream, lake: Lake, step: Callable[[PipelineStream], None]
) -> None:
    stream.refresh()
    lake.lock("p").unlink()
    with pytest.raises(LockLost):
        step(stream)


def test_an_idle_run_notices_it_too(stream: PipelineStream, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = Event()
    monkeypatch.setattr(stop, "wait", lambda _seconds: lake.lock("p").unlink())
    with pytest.raises(LockLost):
        stream.follow(stop)


def test_a_commit_of_another_pipeline_during_the_first_refresh_is_news(
    stream: PipelineStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, commits, refreshed = Event(), [1], []

    def refresh(_self: PipelineStream) -> None:
        refreshed.append(commits[-1])
        if len(refreshed) == 1:
            commits.append(2)

    monkeypatch.setattr(PipelineStream, "refresh", refresh)
    monkeypatch.setattr(PipelineStream, "_foreign_heads", lambda _self: {"theirs": commits[-1]})
    monkeypatch.setattr(stop, "wait", lambda _seconds: len(refreshed) > 1 or looks.pop())
    looks = [True, False, False]
    stream.follow(stop)
    assert refreshed == [1, 2]
