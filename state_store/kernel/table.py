"""A table of the lake in the kernel: its rows at a version, its changes between versions, one commit per epoch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.delta.commit import Instead, Rows
from strandline.state_store.delta.rows import CHANGE_TYPE
from strandline.state_store.delta.schema import arrow_schema
from strandline.state_store.delta.staging import stage_files
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.errors import CorruptState, NegativeWeight
from strandline.state_store.hashing.digest import Digest
from strandline.state_store.kernel.rows import TableRows
from strandline.state_store.kernel.settle import BATCH_ROWS, Settled, Tally, conformed, streamed
from strandline.state_store.tablespec import WEIGHT, schema_json
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import duckdb

    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.delta.staging import Staged
    from strandline.state_store.kernel.kept import Kept
    from strandline.state_store.kernel.rows import PlacedRows
    from strandline.state_store.paths import LakePath
    from strandline.state_store.tablespec import TableSpec


# Changes as a file lists them: rows of Delta's change data feed, made of rows with weights.


@dataclass
class Counts:
    """The rows that came and went in all batches so far."""

    inserted: int = 0
    deleted: int = 0


def change_schema(stored: pa.Schema) -> pa.Schema:
    """The columns of a file that lists changes: the stored ones, and whether the row came or went."""
    return stored.append(pa.field(CHANGE_TYPE, pa.string()))


def listed_changes(batch: pa.RecordBatch, schema: pa.Schema, counts: Counts) -> pa.Table:
    """The rows of a batch in that schema, counted on the way.

    Args:
        batch: the stored columns and `__weight`.
    """
    came = pc.greater(batch[WEIGHT], 0)
    inserted = pc.sum(came.cast(pa.int64())).as_py() or 0
    counts.inserted += inserted
    counts.deleted += batch.num_rows - inserted
    stored = conformed(batch, pa.schema(list(schema)[:-1]))
    return pa.Table.from_batches([stored]).append_column(
        schema.field(CHANGE_TYPE), pc.if_else(came, "insert", "delete")
    )


_GROUPS_PER_FILE: Final = 500_000 // BATCH_ROWS
"""Row groups of a data file: it has half a million rows at most, as one that Spark writes."""


class KernelTable(StoredTable):
    """One Delta table on a connection of the kernel; see `StoredTable`.

    Args:
        kept: what the kernel keeps of tables.
        name: what relations of it on the connection are named by: `<name>_…`.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, kept: Kept, path: LakePath, spec: TableSpec, name: str
    ) -> None:
        super().__init__(path, spec, kept.snapshots)
        self._connection = connection
        self._recent = kept.recent
        self._rows = TableRows(connection, kept.local, path, self._schema, name)

    def read(self, version: int | None) -> PlacedRows:
        """The rows at `version` with their places; none without a version.

        Raises:
            VersionGone: the version is not there, or is older than the table's retention.
            CorruptState: a file of it is broken.
        """
        return self._rows.none() if version is None else self._rows.at(self._snapshot(version))

    def changes(self, after: int | None, upto: int) -> str:
        """SELECT of the changes in the versions after `after`, up to and including `upto`.

        Stored columns, `__weight` BIGINT and `_commit_version` BIGINT. Without `after`, the rows at `upto`, each with
        weight 1. The changes of several commits are not consolidated: a row may have +1 and −1.

        Raises:
            VersionGone: the log or a file no longer reaches back to `after`, or `upto` is not there yet.
            CorruptState: a file is broken, or rows were deleted from an append table.
        """
        self.check_version(upto)
        if after is None:
            return self._rows.as_changes(self._snapshot(upto))
        return self._rows.changes(self.commits(after, upto), self._recent)

    def append(self, rows: pa.Table, record: CommitRecord) -> Head:
        """Insert rows (the stored columns, in any order), in one commit.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = self.next(record)
        tally = Tally()
        # Rows may come in many pieces, and each batch becomes a row group.
        batches = rows.combine_chunks().to_batches(BATCH_ROWS)
        return self._add(head, record, self._staged(self._counted(batches, tally), record), tally)

    def append_if_any(self, text: str, record: CommitRecord) -> Head | None:
        """Insert the rows that a SELECT gives, in one commit; without rows no commit is made: None.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
            duckdb.Error: the text fails.
        """
        head = self.next(record)
        tally = Tally()
        staged = self._staged(self._given(text, tally), record)
        if tally.inserted == 0:
            staged.discard()
            return None
        return self._add(head, record, staged, tally)

    def apply(self, text: str, stored: PlacedRows, record: CommitRecord, after: Head | None = None) -> Head | None:
        """Commit the settled rows of the touched keys; None, and no commit, when no row changes.

        Args:
            text: a SELECT that gives a settled relation, see `settle`.
            stored: the rows before, as the text read them.
            after: as of `advance`.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            NegativeWeight: more rows would be deleted than there are.
            CommitConflict: another writer committed first.
            CorruptState: a row stored before is not where the relation says.
            duckdb.Error: the text fails.
        """
        head = after or self.next(record)
        settled = Settled(self._connection, text, self.spec, self._schema)
        tally = Tally()
        settled.count_old_rows(tally, stored)
        rows = settled.new_rows(tally)
        first = next(rows, None)
        if first is None and not tally.retracted:
            return None
        staged = None if first is None else self._staged(chain([first], rows), record)
        return self._add(head, record, staged, tally)

    def replace_all(self, rows: str, changes: str, record: CommitRecord, head: Head) -> Head:
        """Put other rows, of the columns of this `spec`, in the place of all that are stored, in one commit.

        The table stays the same one, and its change feed says the difference only.

        Args:
            rows: a SELECT of all stored columns.
            changes: a SELECT of the stored columns and `__weight`, +1 or −1: what differs from the rows before, which
                have NULL in a column that they did not have.
            head: the table as the two were planned from.

        Raises:
            CommitConflict: another writer committed first.
            CorruptState: the rows are not those of `record.digest`, where it states one.
            duckdb.Error: a text fails.
        """
        tally = Tally()
        staged = self._staged(self._given(rows, tally), record)
        said, listed = record.digest, Counts()
        try:
            if said and Digest.parse(said) != tally.digest:
                raise CorruptState(
                    sentence("the rows for '{}' have the digest {}, not {}", Name(self.spec.name), tally.digest, said)
                )
            differing = self._listed(changes, listed, record)
        except BaseException:
            staged.discard()
            raise
        instead = Instead(schema_json(self.spec.stored), differing)
        counted = replace(record, inserted=listed.inserted, deleted=listed.deleted, digest=str(tally.digest))
        return self.commit(head, counted, Rows(self._tagged(staged, tally), instead=instead))

    def _given(self, text: str, tally: Tally) -> Iterator[pa.Table]:
        return self._counted(streamed(self._connection, text), tally)

    def _counted(self, batches: Iterable[pa.RecordBatch], tally: Tally) -> Iterator[pa.Table]:
        for batch in batches:
            rows = pa.Table.from_batches([conformed(batch, self._schema)])
            tally.insert(rows, self.spec.visible)
            yield rows

    def _listed(self, changes: str, counts: Counts, record: CommitRecord) -> Staged:
        """Files that list the changes of a SELECT, counted on the way; one without rows where there are none."""
        feed = change_schema(self._schema)
        files = _by_file(listed_changes(batch, feed, counts) for batch in streamed(self._connection, changes))
        first: Iterator[pa.Table] = next(files, iter(()))
        return stage_files(chain([first], files), feed, self.path, record.epoch)

    def _staged(self, rows: Iterator[pa.Table], record: CommitRecord) -> Staged:
        return stage_files(_by_file(rows), self._schema, self.path, record.epoch, self.spec.indexed)

    def _tagged(self, staged: Staged, tally: Tally) -> Staged:
        return staged.tagged(tally.by_file(_GROUPS_PER_FILE), schema_json(self.spec.stored))

    def _add(self, head: Head, record: CommitRecord, staged: Staged | None, tally: Tally) -> Head:
        try:
            digest = Digest.parse(head.record.digest) + tally.digest
            if digest.count < 0:
                raise NegativeWeight(
                    sentence("'{}' would have {} rows", Name(self.spec.name), digest.count), where=str(self.path)
                )
        except BaseException:
            if staged is not None:
                staged.discard()
            raise
        counted = replace(record, inserted=tally.inserted, deleted=tally.deleted, digest=str(digest))
        staged = None if staged is None else self._tagged(staged, tally)
        made = self.commit(head, counted, Rows(staged, tally.retracted, tally.taken))
        # After a compaction the head is another commit than the epoch's, whose nonce is then not known here.
        if made.version == head.version + 1:
            changes = tally.changes()
            if changes is not None:
                self._recent.put(self.path, made.record.nonce, changes)
        return made

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(schema_json(self.spec.stored))


def _by_file(groups: Iterator[pa.Table]) -> Iterator[Iterator[pa.Table]]:
    """Row groups by data file; each file's are taken before the next one's."""
    for first in groups:
        yield chain([first], islice(groups, _GROUPS_PER_FILE - 1))
