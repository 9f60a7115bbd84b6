"""The order of a refresh: a unit begins when what it waits for is done, and not when others of that level are."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest

from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.run import refresh_views
from strandline.jobs.run.refresh_views import Refreshed, refresh_all
from strandline.jobs.run.schedule import Levels, Queue, RefreshUnit
from strandline.state_store.layout import LakeLayout


def unit(name: str, *inputs: str, target: str | None = None) -> RefreshUnit:
    return RefreshUnit(name, target or name, (), inputs, "f")


def names(queue: Queue) -> list[str]:
    return [each.name for each in queue.take()]


def test_a_unit_is_free_when_what_it_reads_is_done() -> None:
    a, b = unit("a", "log"), unit("b", "log")
    queue = Queue([[a, b], [unit("c", "a")], [unit("d", "b", "c")]])
    assert names(queue) == ["a", "b"]
    assert names(queue) == []
    queue.done(a)
    assert names(queue) == ["c"]
    queue.done(b)
    assert names(queue) == []


def test_queries_into_one_stream_go_one_after_the_other_and_their_reader_after_all() -> None:
    first, second, reader = unit("q1", "x", target="s"), unit("q2", "y", target="s"), unit("r", "s")
    queue = Queue([[first, second], [reader]])
    for each in (first, second):
        assert queue.take() == [each]
        queue.done(each)
    assert queue.take() == [reader]


def test_what_is_read_is_not_written_meanwhile() -> None:
    """A later query into a stream that one of the level before reads as it stands."""
    reader, writer = unit("r", "s"), unit("w", "x", target="s")
    queue = Queue([[reader], [writer]])
    assert queue.take() == [reader]
    queue.done(reader)
    assert queue.take() == [writer]


def test_a_unit_that_reads_what_it_writes_waits_for_nobody() -> None:
    assert names(Queue([[unit("a", "a", "log")]])) == ["a"]


@pytest.mark.parametrize("seed", range(20))
def test_every_unit_comes_once_and_after_what_it_reads(seed: int) -> None:
    chance = random.Random(seed)
    levels: list[list[RefreshUnit]] = []
    for number in range(5):
        before = [each.target for level in levels for each in level] or ["log"]
        wanted = [(f"u{number}.{n}", chance.sample(before, min(len(before), 2))) for n in range(chance.randint(1, 5))]
        levels.append([unit(name, *inputs) for name, inputs in wanted])
    queue, running, done = Queue(levels), list[RefreshUnit](), list[str]()
    running += queue.take()
    while running:
        ended = running.pop(chance.randrange(len(running)))
        assert set(ended.inputs) <= {*done, "log"}
        done.append(ended.target)
        queue.done(ended)
        running += queue.take()
    assert sorted(done) == sorted(each.target for level in levels for each in level)


def refreshed(
    monkeypatch: pytest.MonkeyPatch, lake: Path, levels: Levels, refresh: Callable[[RefreshUnit], None]
) -> Refreshed:
    def one(_context: object, _heads: object, item: RefreshUnit, _upto: object, **_: object) -> list[object]:
        refresh(item)
        return []

    monkeypatch.setattr(refresh_views, "_refresh", one)
    monkeypatch.setattr(refresh_views, "_computed_together", lambda *_: {})
    return refresh_all(RunContext(None, LakeLayout(lake), "p/1", engine="duckdb"), levels, frozenset())


def test_a_view_does_not_wait_for_another_one_of_the_level_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    above = Event()

    def refresh(item: RefreshUnit) -> None:
        if item.name == "slow":
            assert above.wait(30), "it waits for what waits for it"
        if item.name == "above":
            above.set()

    levels = [[unit("slow", "log"), unit("fast", "log")], [unit("above", "fast")]]
    assert not refreshed(monkeypatch, tmp_path, levels, refresh).failures


def test_what_depends_on_a_view_that_fails_is_left_alone_and_the_rest_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []

    def refresh(item: RefreshUnit) -> None:
        if item.name == "bad":
            raise RefreshFailed("it fails")
        made.append(item.name)

    levels = [
        [unit("bad", "log", target="s"), unit("good", "log"), unit("into s too", "log", target="s")],
        [unit("of s", "s"), unit("of good", "good")],
        [unit("of both", "of s", "of good")],
    ]
    found = refreshed(monkeypatch, tmp_path, levels, refresh)
    assert [*found.failures] == ["s"]
    assert sorted(made) == ["good", "into s too", "of good"]
