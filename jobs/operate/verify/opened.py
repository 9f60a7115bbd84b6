"""A table whose log reads: its head, and the files of that version. All its checks look at the same version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.snapshot import read_snapshot, unproven_snapshot
from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from strandline.jobs.operate.verify.subjects import Subject
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Opened:
    """A table at its head."""

    subject: Subject
    head: Head
    snapshot: Snapshot

    @property
    def path(self) -> LakePath:
        return self.subject.path

    @property
    def version(self) -> int:
        """The version that is verified."""
        return self.head.version

    @property
    def record(self) -> CommitRecord:
        """The newest record at or below that version."""
        return self.head.record


def opened(subject: Subject) -> Opened:
    """The table at its head.

    Raises:
        TableMissing: there is no table.
        VersionGone, CorruptState, ForeignWrite: the log is broken.
    """
    head = reader.head(subject.path)
    if head is None:
        raise log.missing(subject.path)
    try:
        snapshot = read_snapshot(subject.path, head.version)
    except CorruptState:  # the check of the sums says so
        snapshot = unproven_snapshot(subject.path, head.version)
    return Opened(subject, head, snapshot)
