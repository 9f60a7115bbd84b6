"""The report of a run: numbers with stable names, for people, scripts and Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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

    def told(self, table: str) -> str:
        """In words, for people who call the table so."""
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
    """One micro-batch of a run, when it is committed and its views are fresh.

    Attributes:
        number: from 1, in this run.
        events: rows taken into the event logs; an event that two sources read counts twice.
        seconds: wall clock from the first record read to the last view committed.
    """

    number: int
    events: int
    seconds: float
