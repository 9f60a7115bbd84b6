"""What a run tells those who observe it: its rounds, and its heartbeats.

    stream ── each round ──────┐
                               ├─> observers: metrics, traces, lineage, as the settings ask for
    heartbeat ── each beat ────┘

An observer never holds up or ends a run: what it raises is logged and no more. Its libraries are loaded only when the
settings ask for it.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from strandline.state_store.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.jobs.run.stream import PipelineStream, Round

log = logging.getLogger("strandline")


class Observer(Protocol):
    """One who observes the runs of a pipeline, from before the lock is held until the run is over."""

    def begun(self, stream: PipelineStream) -> None:
        """The run has its lock, and begins."""

    def round(self, done: Round) -> None:
        """A round is over. In the thread of the run: what takes long is for another one."""

    def beat(self, beat: Heartbeat) -> None:
        """A heartbeat was made. In the thread of the heartbeats."""

    def ended(self, error: BaseException | None) -> None:
        """The run is over, by that error if there is one."""


class Observers:
    """All who observe one run."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = observers

    @contextmanager
    def of(self, stream: PipelineStream) -> Iterator[None]:
        """Observe the rounds of this stream while the body runs."""
        self._tell(lambda each: each.begun(stream))
        stream.observer = lambda done: self._tell(lambda each: each.round(done))
        error: BaseException | None = None
        try:
            yield
        except BaseException as fault:
            error = fault
            raise
        finally:
            ended_by = error
            self._tell(lambda each: each.ended(ended_by))

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
    """The observers that the settings ask for, while the body runs.

    Raises:
        SettingsError: they ask for one whose libraries are not installed.
    """
    found: list[Observer] = []
    with ExitStack() as opened:
        if settings.metrics.port is not None:
            from strandline.jobs.run.metrics import PipelineMetrics, answering

            metrics = PipelineMetrics(pipeline)
            opened.enter_context(answering(settings.metrics, metrics))
            found.append(metrics)
        if settings.tracing.endpoint is not None:
            with _installed("tracing.endpoint", "otel"):
                from strandline.jobs.run.tracing import tracing
            found.append(opened.enter_context(tracing(settings.tracing, pipeline)))
        if settings.openlineage.url is not None:
            with _installed("openlineage.url", "openlineage"):
                from strandline.jobs.run.open_lineage import lineage_events
            found.append(opened.enter_context(lineage_events(settings.openlineage, pipeline)))
        yield Observers(found)


@contextmanager
def _installed(setting: str, extra: str) -> Iterator[None]:
    """Import in the body what an extra brings. Raises SettingsError."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise SettingsError(
            f"setting '{setting}' needs '{error.name}', which is not installed",
            hint=f"type: pip install 'strandline[{extra}]', or unset it",
        ) from error
