"""The micro-batches of a run while its Spark session starts, which takes ten seconds: the driver takes in what comes.

    a thread   session starts ……………………………………………………… started ──> Spark's query goes on from there
    driver     micro-batch ── micro-batch ── … ───────────┘

So a stream that was killed is fresh again when its process is there, not when its JVM is. What is not small (see
`jobs.ingest.in_driver`) waits for Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from jobs.ingest.event_logs import Ingested, Target
    from jobs.ingest.in_driver import SmallBatches

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
        self._at = small.start

    def tick(self) -> bool:
        """A micro-batch of what has come, after a moment when nothing has; False when Spark must take it in."""
        bounds = self._small.waiting(self._at)
        if bounds is None:
            return False
        start, self._at = bounds
        if start != self._at:
            self._micro_batch(partial(self._small.ingest, bounds))
            self._stop.wait(self._seconds)
        return True

    def run_while(self, starts: Callable[[], object]) -> None:
        """Start a session in a thread, and tick until it is there, or the run is to stop.

        Raises:
            Whatever either of the two does. Then the session is there, or has failed.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="session") as pool:
            started = pool.submit(starts)
            while not started.done() and not self._stop.is_set() and self.tick():
                pass
            started.result()
