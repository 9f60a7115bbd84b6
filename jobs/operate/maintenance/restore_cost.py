"""The cost of a restore from a table's changelog, in rows: known from the records alone, no file is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.state_store.delta import log, reader

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class RestoreCost:
    """What a restore plays that begins with all rows of one version and takes in every change since.

    Attributes:
        base: that version.
        rows: its rows, one per key.
        changes: the rows inserted and retracted after it.
    """

    base: int
    rows: int
    changes: int

    @property
    def plays(self) -> int:
        """The rows to play in all."""
        return self.rows + self.changes


def restore_cost(path: LakePath, base: int | None, upto: int) -> RestoreCost:
    """The cost from one version to another.

    Args:
        base: default: the oldest version in the log.

    Raises:
        VersionGone, CorruptState, ForeignWrite: the log does not read.
    """
    first = log.versions(path)[0] if base is None else base
    records = (commit.record for commit in log.read_history(path, first, upto))
    changes = sum(record.inserted + record.deleted for record in records if record is not None)
    return RestoreCost(first, reader.record_at(path, first).rows, changes)
