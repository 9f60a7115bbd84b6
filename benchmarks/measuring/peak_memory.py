"""The most memory that a process and all that it started held at once, by Linux's /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from benchmarks.measuring.process_tree import Looks, processes_below

# Pages that processes share are counted once: each has its part of them (proportional set size).
_PART: Final = "Pss:"
# A kernel fills two gigabytes in seconds; a look costs some milliseconds for each process.
_SAMPLE_SECONDS: Final = 0.25


class PeakMemory(Looks):
    """Looks four times a second; `megabytes` is the most that it saw. Used by `with`."""

    def __init__(self) -> None:
        self.megabytes = 0.0
        super().__init__(self._note, _SAMPLE_SECONDS)

    def _note(self) -> None:
        self.megabytes = max(self.megabytes, sum(map(_megabytes, processes_below(os.getpid()))))


def _megabytes(process: int) -> float:
    with suppress(OSError):  # it has ended a moment ago
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith(_PART):
                return int(line.split()[1]) / 1024
    return 0.0
