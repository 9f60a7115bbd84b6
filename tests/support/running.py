"""A run of a pipeline at work in this process, and readers beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread

from jobs.model.settings import Settings
from jobs.run.pipeline import follow
from jobs.serve.results import Rows as Answered
from jobs.session.interpreter import Interpreter
from state_store.layout import Lake

Rows = list[tuple[object, ...]]


@contextmanager
def running(settings: Settings, lake: Lake, pipeline: str) -> Iterator[None]:
    """A run of the pipeline that goes on until the body ends."""
    stop = Event()
    run = Thread(target=follow, args=(settings, pipeline, stop))
    run.start()
    try:
        until(lambda: _is_held(lake, pipeline))
        yield
    finally:
        stop.set()
        run.join(60)
    assert not run.is_alive()


@contextmanager
def polled(settings: Settings, query: str) -> Iterator[list[Rows]]:
    """The states that a reader sees who asks again and again for the columns that it knows."""
    seen: list[Rows] = []
    stop = Event()

    def poll() -> None:
        while not stop.is_set():
            [found] = Interpreter(settings).run(query)
            assert isinstance(found, Answered)
            seen.append([tuple(row) for row in found.rows])

    reading = Thread(target=poll)
    reading.start()
    try:
        until(lambda: len(seen) > 0)
        yield seen
    finally:
        stop.set()
        reading.join(60)


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; a minute at most, since what takes longer hangs."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


def _is_held(lake: Lake, pipeline: str) -> bool:
    """True while a run holds the lock: its note is there. To try the lock would take it from the run."""
    return lake.lock(pipeline).exists() and lake.lock(pipeline).read_bytes() != b""
