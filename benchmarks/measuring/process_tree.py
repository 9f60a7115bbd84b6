"""The processes that a process started, and the processor time of all of them, by Linux's /proc."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Final, Self

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Places among the fields after the process's name: parent, then user and system time of itself and of ended children.
_PARENT, _FIRST_TIME, _LAST_TIME = 1, 11, 15
# Often enough for a chart in seconds; a look at the few hundred processes of a machine takes some milliseconds.
_SAMPLE_SECONDS: Final = 1.0


def processes_below(root: int) -> dict[int, float]:
    """{pid: seconds of processor time, ended children included} of a process and of all that it started."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended a moment ago
            fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            ticks[int(folder.name)] = sum(int(each) for each in fields[_FIRST_TIME:_LAST_TIME])
            children[int(fields[_PARENT])].append(int(folder.name))
    found, waiting = {}, [root]
    while waiting:
        process = waiting.pop()
        found[process] = ticks.get(process, 0) / _TICKS
        waiting += children[process]
    return found


def processor_seconds(root: int) -> float:
    """Seconds of processor time that a process has used with all that it started, ended children included."""
    return sum(processes_below(root).values())


class Looks:
    """Looks at something now and then, in a thread, for as long as its `with` lasts."""

    def __init__(self, look: Callable[[], None], seconds: float) -> None:
        self._look, self._seconds = look, seconds
        self._stop = Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(self._seconds):
            self._look()


class ProcessorWatch(Looks):
    """Samples (seconds since the epoch, processor seconds so far) of a process tree, once a second. Used by `with`."""

    def __init__(self, root: int) -> None:
        self.samples: list[tuple[float, float]] = []
        super().__init__(lambda: self.samples.append((time.time(), processor_seconds(root))), _SAMPLE_SECONDS)

    def share(self, begin: float, end: float) -> float:
        """Processor seconds for each second between two moments; 0 when fewer than two samples lie between them."""
        inside = [sample for sample in self.samples if begin <= sample[0] <= end]
        if len(inside) < 2:
            return 0.0
        (first, before), (last, after) = inside[0], inside[-1]
        return (after - before) / (last - first)
