"""The micro-batches of a run while Spark's query starts, which takes 20 s with its JVM: the driver takes in what comes.

    a thread   session ── query ── its planner, its first micro-batch ──> the query goes on
    driver     micro-batch ── micro-batch ── … ───┘

So a stream that was killed is fresh again when its process is there, not when its JVM is, and a drain of millions of
events begins with the first. What is not small is taken in part by part (see `jobs.ingest.in_parts`). The query begins
where the logs ended when the session was there; what the driver took in since is left out of its first micro-batch, as
after any repetition (see `jobs.ingest.event_logs`).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Final, TypeVar

from strandline.jobs.ingest.in_parts import Backlog

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from strandline.jobs.ingest.event_logs import Ingested, Target
    from strandline.jobs.ingest.in_driver import SmallBatches

_LOOKS_SECONDS: Final = 0.2
"""Between two looks whether what is started is there, where the driver has nothing to do meanwhile."""

Started = TypeVar("Started")
Ingest = Callable[["Sequence[Target]"], "list[Ingested]"]
"""Appends the records of a micro-batch to the event logs; the commits made."""


class DriverClock:
    """The clock of micro-batches that Spark's query has no part in.

    Args:
        micro_batch: makes a micro-batch of the records that its argument takes in.
        seconds: the least distance of two.
    """

    def __init__(self, small: SmallBatches, micro_batch: Callable[[Ingest], None], seconds: float, stop: Event) -> None:
        self._small, self._micro_batch, self._seconds, self._stop = small, micro_batch, seconds, stop
        self._backlog = Backlog(small)
        self._at = small.start

    def close(self) -> None:
        """Give back what taking in parts holds."""
        self._backlog.close()

    def tick(self, *, in_parts: bool = False) -> bool:
        """A micro-batch of what has come, after a moment when nothing has; False when Spark must take it in.

        Args:
            in_parts: of what is not small, a part.
        """
        taking: Backlog | SmallBatches = self._backlog if in_parts else self._small
        bounds = taking.waiting(self._at)
        if bounds is None:
            return False
        start, self._at = bounds
        if start != self._at:
            self._micro_batch(partial(taking.ingest, bounds))
            self._stop.wait(self._seconds)
        return True

    def run_out(self, broken_off: Callable[[], bool], *, in_parts: bool = False) -> bool:
        """Tick until nothing waits, the run is to stop, or it is broken off; False when Spark must take in the rest."""
        while not (self._stop.is_set() or broken_off()):
            before = self._at
            if not self.tick(in_parts=in_parts):
                return False
            if self._at == before:
                return True
        return True

    def run_out_until(self, starts: Callable[[], object], broken_off: Callable[[], bool]) -> bool:
        """Tick in parts until nothing waits, and start something in a thread meanwhile if that takes long; False when
        that is there first.

        Raises:
            Whatever it raises, while something waits.
        """
        if self._backlog.is_soon_done(self._at):
            return self.run_out(broken_off, in_parts=True)
        started = _in_a_thread(starts)
        while not (self._stop.is_set() or broken_off()):
            before = self._at
            if started.done() and started.exception() is None:
                return False
            if started.done() and self._backlog.waiting(before) != (before, before):
                started.result()
            if not self.tick(in_parts=True):
                started.result()
                return False
            if self._at == before:
                return True
        return False

    def run_until(self, starts: Callable[[], Started], at_work: Callable[[Started], bool]) -> Started | None:
        """Start something in a thread, and tick until that is at work.

        Returns:
            What was started; None when the run is to stop, which does not wait for it.

        Raises:
            Whatever either of the two does.
        """
        started = _in_a_thread(starts)
        while not self._stop.is_set() and not (started.done() and _over(started, at_work)):
            if not self.tick(in_parts=True):
                break
        while not (started.done() or self._stop.wait(_LOOKS_SECONDS)):
            pass
        return started.result() if started.done() else None


def _in_a_thread(starts: Callable[[], Started]) -> Future[Started]:
    """What comes of it. The thread is a daemon: a process that ends does not wait for a JVM, which ends with it."""
    future: Future[Started] = Future()

    def work() -> None:
        try:
            future.set_result(starts())
        except BaseException as error:  # whoever asks for the result gets it
            future.set_exception(error)

    Thread(target=work, name="start", daemon=True).start()
    return future


def _over(started: Future[Started], at_work: Callable[[Started], bool]) -> bool:
    """True if it is at work, or has failed."""
    return started.exception() is not None or at_work(started.result())
