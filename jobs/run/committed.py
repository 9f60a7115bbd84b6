"""The changes of a table since one of its versions, by its commits alone: whoever made them, and whatever was killed.

A run counts what it does itself; what it committed in the moment before it was killed is in no run's count.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.report import TableReport
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta import reader
from strandline.state_store.errors import TableMissing, VersionGone

if TYPE_CHECKING:
    from strandline.state_store.commits import Head
    from strandline.state_store.paths import LakePath

MOST_COMMITS: Final = 500
"""Of a table that nobody has looked at for long the newest commits are counted: reading one takes 0.1 ms, so 50 ms."""


@dataclass(frozen=True)
class Counted:
    """The rows that commits inserted and deleted.

    Attributes:
        commits: how many were counted, of those that change rows.
        whole: False if there were more, which are gone or were too many to count.
    """

    inserted: int
    deleted: int
    commits: int
    whole: bool


def count(path: LakePath, after: int, upto: int) -> Counted:
    """Count the commits after `after` up to and including `upto`, the newest first.

    Raises:
        CorruptState: a commit does not read back.
    """
    inserted = deleted = commits = 0
    for version in range(upto, after, -1):
        if upto - version >= MOST_COMMITS:
            return Counted(inserted, deleted, commits, whole=False)
        try:
            commit = delta_log.read_commit(path, version)
        except (VersionGone, TableMissing):
            return Counted(inserted, deleted, commits, whole=False)
        if commit.record is not None and commit.changes_rows:
            inserted += commit.record.inserted
            deleted += commit.record.deleted
            commits += 1
    return Counted(inserted, deleted, commits, whole=True)


def committed(table: str, path: LakePath, after: int | None) -> TableReport | None:
    """The report of a table at its newest version, with the changes after a version; None while it has no commit.

    Args:
        after: the last version that was reported; None: none was. A version that the table has not reached is one of
            a former table of that name, and counts as none.

    Raises:
        CorruptState: its log does not read back.
    """
    head = reader.head(path)
    if head is None:
        return None
    known = after if after is not None and after <= head.version else -1
    counted = count(path, known, head.version)
    return report_at(head, table, path, inserted=counted.inserted, deleted=counted.deleted, late=head.record.late)


def counted_since(report: TableReport, path: LakePath, told: int | None) -> TableReport:
    """The report with the rows by the commits since the version that was told last; as it is where they cannot be
    counted whole.

    Raises:
        CorruptState: a commit does not read back.
    """
    if told is None or told > report.version:
        return report
    found = count(path, told, report.version)
    return replace(report, inserted=found.inserted, deleted=found.deleted) if found.whole else report


def report_at(
    head: Head, table: str, path: LakePath, *, inserted: int, deleted: int, seconds: float = 0.0, late: int | None
) -> TableReport:
    """The report of a table at its head, with the changes and the seconds that somebody has counted."""
    record = head.record
    return TableReport(
        name=table,
        version=head.version,
        epoch=record.epoch,
        rows=record.rows,
        bytes=reader.size_bytes(path, head.version),
        inserted=inserted,
        deleted=deleted,
        seconds=seconds,
        vector=record.versions,
        offsets=record.offsets,
        mode=record.mode,
        reason=record.reason,
        digest=record.digest,
        late=late,
    )
