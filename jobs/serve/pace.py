"""The pace of a table: how many rows it has, and how many of them changed in each of the last seconds.

Read from the records of the newest commits, so it costs the same at any size of the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath

WINDOW_SECONDS: Final = 10
"""Long enough to hold several epochs of a second each, short enough that a view that has stopped is seen to stand."""
MOST_COMMITS: Final = 20
"""Each is a file to read. A table that commits more than twice a second has the rate of so many."""


@dataclass(frozen=True)
class Pace:
    """How a table moves.

    Attributes:
        rows: visible rows at its head.
        rows_per_second: rows inserted and deleted per second, over the last `WINDOW_SECONDS`; a row that changed counts
            twice.
    """

    rows: int
    rows_per_second: float


def pace(table: LakePath, now_ms: int) -> Pace | None:
    """The pace of a table; None where it is not there or its commits cannot be read.

    Args:
        now_ms: milliseconds since the epoch.
    """
    newest = log.newest_version(table)
    if newest is None:
        return None
    try:
        return Pace(reader.record_at(table, newest).rows, _rate(table, newest, now_ms))
    except StoreError:
        return None  # what is broken is told by whoever reads the rows; a figure beside others is not the place


def _rate(table: LakePath, newest: int, now_ms: int) -> float:
    changed, since = 0, now_ms - WINDOW_SECONDS * 1000
    for version in range(newest, -1, -1):
        try:
            commit = log.read_commit(table, version)
        except VersionGone:
            break
        if commit.timestamp <= since:
            break
        if newest - version == MOST_COMMITS:
            since = commit.timestamp
            break
        # Compaction repeats the record of the epoch before it, and changes no row.
        if commit.record is not None and commit.changes_rows:
            changed += commit.record.inserted + commit.record.deleted
    return round(changed * 1000 / max(now_ms - since, 1), 1)
