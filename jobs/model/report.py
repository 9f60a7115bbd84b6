"""The report of a run, as numbers with stable names, and the steps that an operation reports while it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from strandline.jobs.model.costs import RefreshCosts


@dataclass(frozen=True)
class EarlyEvents:
    """The events of a stream that looked up a table as of a time before its first row.

    Attributes:
        stream, table: whose events, and what they looked up.
        events: so many of all `of` events.
    """

    stream: str
    table: str
    events: int
    of: int

    def in_words(self, table: str) -> str:
        """Describe them, with the name that people see of the table."""
        return f"{self.events} of {self.of} events found no row of {table} that early"


@dataclass(frozen=True)
class TableReport:
    """The state of a table after a run, and the changes that the run made.

    Attributes:
        rows: visible rows at `version`.
        bytes: size of the data files of `version`.
        inserted: rows added by this run (a changed row counts here and in `deleted`).
        deleted: rows removed by this run.
        seconds: wall clock spent on this table in this run.
        mode, reason: of the last commit.
        late: rows of the inputs that came too late for their window and are left out, up to `version`, in all stages of
            the view; None where no row is ever late.
        early: the events that looked up a table before it had a row.
        costs: of a view's refreshes by changes; None where there were none.
    """

    name: str
    version: int
    epoch: int
    rows: int
    bytes: int
    inserted: int
    deleted: int
    seconds: float
    vector: dict[str, int]
    offsets: dict[str, dict[str, int]]
    mode: str
    reason: str
    digest: str
    late: int | None = None
    early: tuple[EarlyEvents, ...] = ()
    costs: RefreshCosts | None = None


@dataclass(frozen=True)
class RunReport:
    """One run of a pipeline: a drain, or a continuous run up to its stop.

    Attributes:
        held: {table: what is wrong with its newest rows, from which nothing is computed}.
    """

    pipeline: str
    epochs: int
    seconds: float
    tables: tuple[TableReport, ...]
    held: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch of a run, after its commit and the refresh of its views.

    Attributes:
        number: from 1, in this run.
        events: rows taken into the event logs; an event that two sources read counts twice.
        seconds: wall clock from the first record read to the last view committed.
    """

    number: int
    events: int
    seconds: float


# Steps of an operation that may take minutes, for whoever waits for it.
#
# begin ── micro_batch ── micro_batch ── … ──> done ──> begin of the next


class Steps(Protocol):
    """Listener to the steps of an operation."""

    def begin(self, what: str, rows: int = 0) -> None:
        """Begin a step; the one before has ended.

        Args:
            what: it does, in words: `computing 'by_shop'`.
            rows: that it reads; 0: it is not known, or none.
        """

    def micro_batch(self, batch: MicroBatch) -> None:
        """Report a part of the events of the step."""

    def done(self, what: str) -> None:
        """End the last step with a summary in words."""


class _Unwatched:
    """Listener that does nothing."""

    def begin(self, what: str, rows: int = 0) -> None:
        """Do nothing."""

    def micro_batch(self, batch: MicroBatch) -> None:
        """Do nothing."""

    def done(self, what: str) -> None:
        """Do nothing."""


UNWATCHED: Final[Steps] = _Unwatched()
"""The steps of an operation that nobody waits for."""
