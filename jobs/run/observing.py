"""What a run tells those who observe it: its rounds, and its heartbeats.

    stream ── each round ──────┐
                               ├─> observers: metrics, as the settings ask for
    heartbeat ── each beat ────┘

An observer never holds up or ends a run: what it raises is logged and no more. Its libraries are loaded only when the
settings ask for it.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.jobs.ingest.event_logs import Ingested
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.jobs.run.refresh_views import Refreshed
    from strandline.jobs.run.stream import PipelineStream

log = logging.getLogger("strandline")


@dataclass(frozen=True)
class Round:
    """One round of a run: a micro-batch that is taken in, if there is one, and the refresh of all views after it.

    Attributes:
        began: seconds since the epoch.
        seconds: wall clock of the round.
        micro_batch: its number in the run, from 1; None of a refresh without one.
        taken: the commits of its events, and of those that could not be decoded.
        ingest_seconds: of `seconds`, until the last of those commits.
    """

    pipeline: str
    began: float
    seconds: float
    refreshed: Refreshed
    micro_batch: int | None = None
    taken: tuple[Ingested, ...] = ()
    ingest_seconds: float = 0.0


def unobserved(_round: Round) -> None:
    """Do nothing."""


class Observer(Protocol):
    """One who observes the runs of a pipeline, from before the lock is held until the run is over."""

    def begun(self, stream: PipelineStream) -> None:
        """The run has its lock, and begins."""

    def round(self, done: Round) -> None:
        """A round is over. In the thread of the run: what takes long is for another one."""

    def beat(self, beat: Heartbeat) -> None:
        """A heartbeat was made. In the thread of the heartbeats."""

    def ended(self) -> None:
        """The run is over, and its lock is given back."""


class Observers:
    """All who observe one run."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @contextmanager
    def of(self, stream: PipelineStream) -> Iterator[None]:
        """Observe the rounds of this stream while the body runs."""
        self._tell(lambda each: each.begun(stream))
        stream.observer = lambda done: self._tell(lambda each: each.round(done))
        try:
            yield
        finally:
            self._tell(lambda each: each.ended())

    def beat(self, beat: Heartbeat) -> None:
        """A heartbeat was made."""
        self._tell(lambda each: each.beat(beat))

    def _tell(self, tell: Callable[[Observer], None]) -> None:
        for each in self._observers:
            try:
                tell(each)
            except Exception as fault:  # what is told of a run must never end it
                log.warning("%s could not be told: %s", type(each).__name__, fault)


@contextmanager
def observers(settings: Settings, pipeline: str) -> Iterator[Observers]:
    """The observers that the settings ask for, while the body runs."""
    found: list[Observer] = []
    with ExitStack() as opened:
        if settings.metrics.port is not None:
            from strandline.jobs.run.metrics import PipelineMetrics, answering

            metrics = PipelineMetrics(pipeline)
            opened.enter_context(answering(settings.metrics, metrics))
            found.append(metrics)
        yield Observers(found)
