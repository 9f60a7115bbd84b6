"""How far a restore has come, and when it will be done."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """A moment of a restore.

    Attributes:
        version: the version that is being restored.
        rows: rows that are loaded, by this process or one that was killed before.
        total: rows to load; 0 if it is not known.
        seconds: how long this process has been at it.
        resumed: the rows that were there when it began.
    """

    version: int
    rows: int
    total: int
    seconds: float
    resumed: int = 0

    @property
    def share(self) -> float:
        """From 0 to 1."""
        return min(1.0, self.rows / self.total) if self.total else 1.0

    @property
    def rows_per_second(self) -> float:
        return (self.rows - self.resumed) / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """The expected time to the end, at the speed so far; None until there is one."""
        speed = self.rows_per_second
        return max(0, self.total - self.rows) / speed if speed else None

    def __str__(self) -> str:
        left = self.seconds_left
        when = "" if left is None else f", {left:.0f} s left"
        return f"version {self.version}: {self.rows:,} of {self.total:,} rows ({self.share:.0%}){when}"


Report = Callable[[Progress], None]


class Clock:
    """The measure of one restore.

    Args:
        rows: rows that are loaded already.
    """

    def __init__(self, version: int, total: int, rows: int) -> None:
        self._version, self._total, self._rows = version, total, rows
        self._since = time.monotonic()

    def progress(self, rows: int) -> Progress:
        """The progress when so many rows are loaded."""
        return Progress(self._version, rows, self._total, time.monotonic() - self._since, self._rows)
