"""What a run has done so far: the rows that it inserts into and deletes from each table, and its micro-batches."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strandline.jobs.run.committed import report_at
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from strandline.jobs.model.report import MicroBatch, TableReport
    from strandline.state_store.paths import LakePath

log = logging.getLogger("strandline")


def logged(batch: MicroBatch) -> None:
    """Log a micro-batch: what a run that nobody watches says of itself."""
    log.info("micro-batch %d: %d events in %.1f s", batch.number, batch.events, batch.seconds)


@dataclass
class Tally:
    """The rows inserted and deleted in one table so far, and the seconds spent."""

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

    def report(self, table: str, path: LakePath, late: int | None) -> TableReport | None:
        """The table's report; None while it has no commit.

        Args:
            late: the rows that came too late for it, in all of its stages.
        """
        head = reader.head(path)
        if head is None:
            return None
        tally = self.by_table.get(table, Tally())
        seconds = round(tally.seconds, 3)
        return report_at(head, table, path, inserted=tally.inserted, deleted=tally.deleted, seconds=seconds, late=late)
