"""Base of the tables that an engine maintains: head, its first version, and one commit per epoch.

Every commit carries its `CommitRecord`, so the last commit alone says what the table reflects. A commit is refused
unless it is the next epoch after the head's: a repeated or late epoch writes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges, commit, create_table, new_table_id
from strandline.state_store.delta.entry import rebuild_hint
from strandline.state_store.delta.merging import maintain_files
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState, VectorMismatch, VersionGone
from strandline.state_store.tablespec import TableSpec, schema_json
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.delta.merging import BackgroundMerges
    from strandline.state_store.delta.snapshot import Snapshot, Snapshots
    from strandline.state_store.paths import LakePath


class StoredTable:
    """One Delta table. Writers must hold the pipeline's lock; one object is used by one thread at a time.

    Args:
        path: its folder, `Lake.table(name)`.
        spec: its columns and key.
        snapshots: those that the process keeps; without them the table is opened anew each time.
        merges: those of the process; without them its files are merged in line.
    """

    def __init__(
        self,
        path: LakePath,
        spec: TableSpec,
        snapshots: Snapshots | None = None,
        merges: BackgroundMerges | None = None,
    ) -> None:
        self.path = path
        self.spec = spec
        self._snapshots = snapshots
        self._merges = merges

    def ensure(self, record: CommitRecord) -> Head:
        """Create the table, empty, at version 0 with `record`, unless it exists; returns its head."""
        if log.newest_version(self.path) is None:
            first = replace(record, epoch=0, mode="create", inserted=0, deleted=0, digest=str(Digest()))
            made = first.identified(new_table_id())
            create_table(self.path, schema_json(self.spec.stored), self.spec.properties, made)
        return self.head()

    def head(self) -> Head:
        """The head of the table.

        Raises:
            TableMissing: the table is not there.
            CorruptState: its last commit is broken.
        """
        head = reader.head(self.path)
        if head is None:
            raise log.missing(self.path)
        return head

    def advance(self, record: CommitRecord, after: Head | None = None) -> Head:
        """Make an empty commit: the same rows reflect `record.vector`.

        Args:
            after: the head as it was found, where a rebuild takes it as it stands; otherwise it is looked up.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = after or self.next(record)
        return self.commit(head, replace(record, inserted=0, deleted=0, digest=head.record.digest), RowChanges())

    def next(self, record: CommitRecord) -> Head:
        """Check that `record` is the epoch after the head, and return the head.

        Raises:
            VectorMismatch: it is not.
        """
        head = self.head()
        if head.record.epoch + 1 != record.epoch:
            raise VectorMismatch(
                sentence(
                    "'{}' is at epoch {}; epoch {} does not follow it",
                    Name(self.spec.name),
                    head.record.epoch,
                    record.epoch,
                ),
                where=str(self.path),
                hint="plan the refresh again from the table's head",
            )
        return head

    def commit(self, head: Head, record: CommitRecord, rows: RowChanges) -> Head:
        """The head after the epoch's commit, or after the compaction that followed it; with the epoch's counts.

        Raises: as `state_store.delta.commit.commit`.
        """
        return self.maintained(commit(self.path, head, record, rows, self._snapshots))

    def maintained(self, made: Head) -> Head:
        """The head after the epoch's commit, which is this one, and after the compaction that its files call for."""
        compacted = maintain_files(self.path, self.spec, made, self._snapshots, self._merges)
        if compacted is None:
            return made
        counts = replace(compacted.record, inserted=made.record.inserted, deleted=made.record.deleted)
        return Head(compacted.version, counts, compacted.stated)

    def commits(self, after: int, upto: int) -> list[Commit]:
        """The commits after `after` up to and including `upto`.

        Raises:
            VersionGone: the log no longer reaches back to `after`, or the table was made anew since.
            CorruptState: rows were deleted from an append table.
        """
        if after > upto:
            raise VersionGone(
                sentence(
                    "'{}' is at version {}, but version {} was read before: it was made anew",
                    Name(self.spec.name),
                    upto,
                    after,
                ),
                where=str(self.path),
                hint="drop the views that read it and create them again",
            )
        found = log.read_history(self.path, after, upto)
        wrong = next((made for made in found if self.spec.storage == "append" and not made.only_adds), None)
        if wrong is not None:
            raise CorruptState(
                sentence(
                    "version {} of '{}' takes rows away, but its rows are only ever added",
                    wrong.version,
                    Name(self.spec.name),
                ),
                where=str(self.path),
                hint=rebuild_hint(self.spec.name),
            )
        return found

    def _snapshot(self, version: int) -> Snapshot:
        """The files of a version. Raises VersionGone, CorruptState."""
        if self._snapshots is not None:
            return self._snapshots.at(self.path, version)
        return read_snapshot(self.path, version)

    def check_version(self, version: int) -> None:
        """Raise VersionGone if that version is not there, TableMissing if there is no table."""
        newest = log.newest_version(self.path)
        if newest is None:
            raise log.missing(self.path)
        if version > newest:
            raise VersionGone(
                sentence("version {} of '{}' is not there; the newest is {}", version, Name(self.spec.name), newest),
                where=str(self.path),
            )
