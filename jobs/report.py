"""What a run says of itself when it ends: numbers with stable names, for people, scripts and Dagster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from state_store import reader

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class TableReport:
    """Where a table stands after a run, and what the run did to it.

    Attributes:
        rows: visible rows at `version`.
        bytes: size of the data files of `version`.
        inserted: rows added by this run (a changed row counts here and in `deleted`).
        deleted: rows taken away by this run.
        seconds: wall clock spent on this table in this run.
        mode, reason: of the last commit.
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


@dataclass(frozen=True)
class RunReport:
    """One run of a pipeline: a drain, or a continuous run up to its stop."""

    pipeline: str
    epochs: int
    seconds: float
    tables: tuple[TableReport, ...]


@dataclass
class Tally:
    """What a run has done to one table so far."""

    inserted: int = 0
    deleted: int = 0
    seconds: float = 0.0


@dataclass
class Tallies:
    """The tallies of a run, by table."""

    by_table: dict[str, Tally] = field(default_factory=dict)

    def add(self, table: str, inserted: int, deleted: int, seconds: float) -> None:
        tally = self.by_table.setdefault(table, Tally())
        tally.inserted += inserted
        tally.deleted += deleted
        tally.seconds += seconds

    def report(self, table: str, path: Path) -> TableReport | None:
        """The table's report; None while it has no commit."""
        head = reader.head(path)
        if head is None:
            return None
        tally = self.by_table.get(table, Tally())
        record = head.record
        return TableReport(
            name=table,
            version=head.version,
            epoch=record.epoch,
            rows=record.rows,
            bytes=reader.size_bytes(path, head.version),
            inserted=tally.inserted,
            deleted=tally.deleted,
            seconds=round(tally.seconds, 3),
            vector=record.vector,
            offsets=record.offsets,
            mode=record.mode,
            reason=record.reason,
            digest=record.digest,
        )
