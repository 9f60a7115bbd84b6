"""One round of a run, as it is told to those who observe the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.jobs.ingest.event_logs import Ingested
    from strandline.jobs.run.refresh_views import Refreshed


@dataclass(frozen=True)
class Round:
    """One round of a run: a micro-batch that is taken in, if there is one, and the refresh of all views after it.

    Attributes:
        began: seconds since the epoch.
        seconds: wall clock of the round.
        micro_batch: its number in the run, from 1; None of a refresh without one.
        taken: the commits of its events, and of those that could not be decoded.
        ingest_seconds: of `seconds`, until the last of those commits.
    """

    pipeline: str
    began: float
    seconds: float
    refreshed: Refreshed
    micro_batch: int | None = None
    taken: tuple[Ingested, ...] = ()
    ingest_seconds: float = 0.0


def unobserved(_round: Round) -> None:
    """Do nothing."""
