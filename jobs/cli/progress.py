"""The progress of a run: a live line on a terminal, one line for each micro-batch in a log.

The live line is drawn when a micro-batch ends and by no thread: nothing of it is left when a run stops.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.cli.output import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.jobs.model.report import MicroBatch
    from strandline.jobs.run.outlook import Outlook


@dataclass
class Progress:
    """The events taken in so far, of those that waited at the start.

    Attributes:
        waiting: events at the start.
        views: the number of views that each micro-batch refreshes; None where that is not known.
        began: monotonic seconds.
    """

    waiting: int
    views: int | None
    began: float
    done: int = 0

    def line(self, batch: MicroBatch, now: float) -> str:
        """What there is to say after a micro-batch; it is counted.

        Args:
            now: monotonic seconds.
        """
        self.done += batch.events
        rate = batch.events / batch.seconds if batch.seconds > 0 else 0.0
        text = f"epoch {batch.number}: {self.done:,} events in, {rate:,.1f} rows/s"
        text += "" if self.views is None else f", {self.views} views fresh"
        left = max(self.waiting - self.done, 0)
        if not left:
            return text
        # By the rate since the start, which holds the start itself: rather too long than too short.
        seconds = left * (now - self.began) / self.done if self.done else 0.0
        return f"{text}, {left:,} to go, about {seconds:,.0f} s left"


@contextmanager
def shown(outlook: Outlook) -> Iterator[Callable[[MicroBatch], None]]:
    """Say what the run will do, and give what is to be told of each micro-batch."""
    say(str(outlook))
    progress = Progress(outlook.events, len(outlook.views), time.monotonic())
    if not sys.stderr.isatty():
        yield lambda batch: say(f"{time.strftime('%H:%M:%S')} {progress.line(batch, time.monotonic())}")
        return
    from rich.console import Console
    from rich.live import Live

    with Live("starting …", console=Console(stderr=True), auto_refresh=False) as live:
        yield lambda batch: live.update(progress.line(batch, time.monotonic()), refresh=True)
