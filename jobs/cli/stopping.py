"""Ctrl-C and SIGTERM during a run: a stop after the present micro-batch, or within seconds without it.

Breaking off costs nothing that was committed: an epoch is one atomic commit, so the next run goes on from the last one.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from threading import Event, Timer
from typing import TYPE_CHECKING

from strandline.jobs.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# A stop is to be over in five seconds: what a container's or a person's patience is at least. An epoch of DuckDB
# takes tenths of one; stopping Spark about one.
_GRACE_SECONDS = 4.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop(Event):
    """Set when the run is to end. `code` is the exit code that goes with it: 128 and the signal's number."""

    code: int = 0


@contextmanager
def stopped_by_signal() -> Iterator[Stop]:
    """A stop that the first signal sets. Whoever does not end in time is ended, JVM and all."""
    stop = Stop()
    # It ends with the process: a daemon.
    timer = Timer(_GRACE_SECONDS, _abandon, [stop])
    timer.daemon = True

    def heard(number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            return
        stop.code = 128 + number
        stop.set()
        say(f"{signal.Signals(number).name}: stopping; what was committed stays")
        timer.start()

    before = {number: signal.signal(number, heard) for number in _SIGNALS}
    try:
        yield stop
    finally:
        timer.cancel()
        for number, handler in before.items():
            signal.signal(number, handler)


def _abandon(stop: Stop) -> None:
    """End this process at once. The JVM ends with it: it watches the pipe from its parent."""
    say("the work at hand was abandoned: the next run goes on from the last commit")
    sys.stdout.flush()
    os._exit(stop.code)
