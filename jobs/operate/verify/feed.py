"""The check of a table's changelog: the changes of the versions kept, applied in order, give the rows at the head.

Rows are told apart by their hashes, the lanes of the digest: 32 bytes a change, so that a feed much larger than the
memory for its rows can be folded. `state_store.changelog.fold` does the same for rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.jobs.operate.verify.findings import counted, failed, passed
from strandline.jobs.operate.verify.reach import reach
from strandline.state_store.changelog import META
from strandline.state_store.commits import COLUMNS, REBUILD, TRIM
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.rows import changes_of
from strandline.state_store.delta.snapshot import unproven_snapshot
from strandline.state_store.delta.trims import what_went
from strandline.state_store.digest import Digest
from strandline.state_store.row_lanes import row_lanes
from strandline.state_store.tablespec import WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.opened import Opened


def check_feed(table: Opened, rows: Digest) -> Outcome:
    """The feed folds to the rows, and to the digest of each record that is over their columns; no row goes that never
    came.

    Raises:
        VersionGone, CorruptState: a file of the feed is gone or broken.
    """
    start = reach(table)
    if start.fault is not None:
        return start.fault
    visible = reader.schema_of(table.snapshot)
    fold = _Fold()
    if start.version >= 0:
        fold.take(start.version, changes_of(table.path, _whole(table, start.version), visible))
    comparable = _comparable(table)
    for version in range(start.version + 1, table.version + 1):
        commit = log.read_commit(table.path, version)
        trims = commit.record is not None and commit.record.mode == TRIM
        changes = what_went(table.path, version, visible) if trims else changes_of(table.path, commit, visible)
        fold.take(version, changes)
        record = commit.record if version >= comparable else None
        if record is not None and fold.digest != Digest.parse(record.digest):
            given = f"give the digest {fold.digest}, its record says {record.digest}"
            return failed(f"the changes up to version {version} {given}")
    negative = fold.first_negative()
    if negative is not None:
        return failed(f"version {negative} takes away a row that is not there")
    if fold.digest != rows:
        return failed(f"the feed folds to the digest {fold.digest}, the rows have {rows}")
    since = "version 0" if start.version < 0 else f"version {start.version}, the oldest that is readable in full"
    return passed(f"{counted(fold.changes, 'change')} since {since}")


@dataclass
class _Fold:
    """The changes taken in so far, as columns: both lanes, version and weight of each."""

    digest: Digest = field(default_factory=Digest)
    changes: int = 0
    _parts: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)

    def take(self, version: int, changes: pa.Table) -> None:
        visible = [name for name in changes.column_names if name not in META]
        for batch in changes.to_batches():
            first, second = row_lanes(batch.select(visible))
            weights = batch.column(WEIGHT).to_numpy()
            self._parts.append((first, second, np.full(len(weights), version), weights))
            self.changes += len(weights)
            for sign in (1, -1):
                chosen = weights == sign
                one, two = (sign * int(lane[chosen].sum(dtype=np.uint64)) for lane in (first, second))
                self.digest += Digest(one, two, sign * int(chosen.sum()))

    def first_negative(self) -> int | None:
        """The first version after which some row is there less than no times; None when there is none."""
        if not self._parts:
            return None
        first, second, versions, weights = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.lexsort((versions, second, first))
        first, second, versions, weights = first[order], second[order], versions[order], weights[order]
        new_row = np.concatenate(([True], (first[1:] != first[:-1]) | (second[1:] != second[:-1])))
        total = np.cumsum(weights)
        starts = np.flatnonzero(new_row)
        before = np.repeat((total - weights)[starts], np.diff(np.append(starts, len(total))))
        # Within a version the order does not count: a row may go from one file and come in another.
        ends = np.concatenate((new_row[1:] | (versions[1:] != versions[:-1]), [True]))
        bad = ends & (total - before < 0)
        return int(versions[bad].min()) if bad.any() else None


def _comparable(table: Opened) -> int:
    """The first version whose record is of rows as they are read today; −1: all are.

    Before a rebuild the records may say otherwise than the rows did, and before further columns the rows lacked them.
    """
    history = log.read_history(table.path, log.versions(table.path)[0] - 1, table.version)
    changed = (c.version for c in history if c.record is not None and c.record.mode in (REBUILD, COLUMNS))
    return max(changed, default=-1)


def _whole(table: Opened, version: int) -> log.Commit:
    """All rows of a version, as one commit that adds them."""
    files = unproven_snapshot(table.path, version).files
    added = tuple(log.DataFile(log.inside(table.path, name), b.get("deletionVector")) for name, b in files.items())
    return log.Commit(version, 0, "", None, added, removed=(), change_files=())
