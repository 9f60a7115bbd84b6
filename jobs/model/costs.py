"""What the refreshes of a view cost, and what they would at another FRESHNESS.

A refresh costs something for being one (its rule is planned, its files and its commit are made), and something for each
changed row that it takes in:

    seconds = fixed + by_row × rows        fitted to the refreshes of a run by least squares

A view that may wait longer takes in the same rows by fewer refreshes: only the first part falls. Rows that cancel each
other while it waits are counted all the same, so what another target would cost is an upper bound of this part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

DAY_SECONDS: Final = 86_400.0
TARGETS: Final = (1.0, 60.0, 600.0, 3_600.0)
"""Seconds of FRESHNESS that people choose between: a second, a minute, ten minutes, an hour."""
LEAST_RUN_SECONDS: Final = 60.0
"""A run of some seconds says little of a day: its first epoch computes what later ones only touch."""


@dataclass
class CostFit:
    """The sums of a least-squares fit of the refreshes of one table: seconds over rows taken in."""

    refreshes: int = 0
    rows: float = 0.0
    rows_squared: float = 0.0
    seconds: float = 0.0
    rows_seconds: float = 0.0

    def add(self, rows: int, seconds: float) -> None:
        """Add a refresh that took in changes."""
        self.refreshes += 1
        self.rows += rows
        self.rows_squared += float(rows) * rows
        self.seconds += seconds
        self.rows_seconds += rows * seconds

    def by_row(self) -> float:
        """The seconds of a row, from 0 to what leaves nothing fixed.

        Refreshes that are all as large tell nothing of it. They are small then, as a rule: all of it counts as fixed.
        """
        if not self.rows:
            return 0.0
        spread = self.rows_squared - self.rows * self.rows / self.refreshes
        if spread <= 1e-9 * self.rows_squared:
            return 0.0
        slope = (self.rows_seconds - self.rows * self.seconds / self.refreshes) / spread
        return min(max(slope, 0.0), self.seconds / self.rows)


@dataclass(frozen=True)
class RefreshCosts:
    """What the refreshes of a view and of its inner stages have cost in a run.

    Attributes:
        refreshes: of the view's own table, by changes.
        fixed_seconds: of one refresh, with those of the inner stages.
        rows_seconds: of all rows that they took in.
    """

    refreshes: int
    fixed_seconds: float
    rows_seconds: float

    @classmethod
    def of(cls, own: CostFit, stages: Iterable[CostFit]) -> RefreshCosts | None:
        """Combine the fits of a view's tables; None as long as the view has not been refreshed by changes."""
        if not own.refreshes:
            return None
        fits = [own, *stages]
        by_rows = sum(each.by_row() * each.rows for each in fits)
        fixed = sum(each.seconds for each in fits) - by_rows
        return cls(own.refreshes, round(fixed / own.refreshes, 6), round(by_rows, 6))

    def seconds_a_day(self, lasted: float, rounds: int) -> dict[str, float]:
        """{FRESHNESS in seconds, `none` for a view that follows each round: the seconds that refreshes cost a day}.

        Args:
            lasted: seconds of the run.
            rounds: of the run: there is nothing to do more often than something comes.
        """
        every = rounds / lasted * DAY_SECONDS
        by_rows = self.rows_seconds / lasted * DAY_SECONDS
        times = {"none": every} | {f"{target:g}": min(every, DAY_SECONDS / target) for target in TARGETS}
        return {target: round(number * self.fixed_seconds + by_rows, 1) for target, number in times.items()}
