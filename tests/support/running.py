"""A run of a pipeline at work in this process, and readers beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import follow
from strandline.jobs.serve.results import Rows as Answered
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import Action, StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.support.waiting import PATIENCE_SECONDS, wait_until

Rows = list[tuple[Any, ...]]


@contextmanager
def running(settings: Settings, lake: LakeLayout, pipeline: str) -> Iterator[None]:
    """A run of the pipeline that goes on until the body ends."""
    stop = Event()
    run = Thread(target=follow, args=(settings, pipeline, stop))
    run.start()
    try:
        wait_until(lambda: _is_held(lake, pipeline), "the run takes no lock")
        yield
    finally:
        stop.set()
        run.join(PATIENCE_SECONDS)
    assert not run.is_alive()


@contextmanager
def polled(settings: Settings, query: str) -> Iterator[list[Rows]]:
    """The states that a reader sees who asks again and again for the columns that it knows."""
    seen: list[Rows] = []
    errors: list[BaseException] = []
    stop = Event()

    def poll() -> None:
        try:
            while not stop.is_set():
                seen.extend(read())
        except BaseException as error:
            errors.append(error)

    def read() -> list[Rows]:
        try:
            [found] = Interpreter(settings).run(query)
            assert isinstance(found, Answered)
            return [[tuple(row) for row in found.rows]]
        except StrandlineError as error:
            if error.action is not Action.RETRY:
                raise
            return []  # what it read was moved on from while it read: it reads again

    reading = Thread(target=poll)
    reading.start()
    try:
        wait_until(lambda: seen or errors, "the reader sees nothing")
        yield seen
    finally:
        stop.set()
        reading.join(PATIENCE_SECONDS)
    assert errors == []


def _is_held(lake: LakeLayout, pipeline: str) -> bool:
    """True while a run holds the lock: its note is there. To try the lock would take it from the run."""
    return lake.lock(pipeline).exists() and lake.lock(pipeline).read_bytes() != b""
