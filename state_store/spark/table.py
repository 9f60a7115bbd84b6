"""A table of the lake in Spark: its rows at a version, its changes between versions, one commit per epoch.

Every commit carries its `CommitRecord`, so the last commit alone says what the table reflects. A commit is refused
unless it is the next epoch after the head's: a repeated or late epoch writes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from state_store.columns import FILE, POSITION, VERSION, WEIGHT
from state_store.commits import CommitRecord, Head
from state_store.delta import log, reader
from state_store.delta.commit import Rows, commit
from state_store.delta.create import create_table, new_table_id
from state_store.delta.entry import rebuild_hint
from state_store.delta.file_upkeep import maintain_files
from state_store.delta.snapshot import read_snapshot
from state_store.delta.staging import Staged, data_file, stage
from state_store.digest import Digest
from state_store.errors import CorruptState, NegativeWeight, VectorMismatch, VersionGone
from state_store.tablespec import TableSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from state_store.delta.log import Commit
    from state_store.paths import LakePath
    from state_store.spark.rows import TableFiles

# One file per epoch while epochs are small: every file is a task for later reads. Above this, several tasks write the
# files in parallel.
_ROWS_PER_FILE = 500_000


class Table:
    """One Delta table. Writers must hold the pipeline's lock; one `Table` is used by one thread at a time.

    Args:
        path: its folder, `Lake.table(name)`.
        spec: its columns and key.
    """

    def __init__(self, spark: SparkSession, path: LakePath, spec: TableSpec) -> None:
        self.spark = spark
        self.path = path
        self.spec = spec

    def ensure(self, record: CommitRecord) -> Head:
        """Create the table, empty, at version 0 with `record`, unless it exists; returns its head."""
        if log.newest_version(self.path) is None:
            first = replace(record, epoch=0, mode="create", inserted=0, deleted=0, digest=str(Digest()))
            made = first.identified(new_table_id())
            create_table(self.path, self._schema.json(), self.spec.properties, made)
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

    def read(self, version: int) -> DataFrame:
        """All stored columns of the rows at `version`, and their places: `__file` STRING and `__position` BIGINT.

        Raises:
            VersionGone: the version is not there, or is older than the table's retention.
        """
        self._check_version(version)
        with self._gone(version):
            return self._files.rows(read_snapshot(self.path, version))

    def changes(self, after: int | None, upto: int) -> DataFrame:
        """The changes in the versions after `after`, up to and including `upto`.

        Stored columns, `__weight` BIGINT and `_commit_version` BIGINT. Without `after`, the rows at `upto`, each with
        weight 1. The changes of several commits are not consolidated: a row may have +1 and −1.

        Raises:
            VersionGone: the log or a file no longer reaches back to `after`, or `upto` is not there yet.
            CorruptState: rows were deleted from an append table.
        """
        from pyspark.sql import functions as F

        self._check_version(upto)
        if after is None:
            weight, version = F.lit(1).cast("bigint").alias(WEIGHT), F.lit(upto).cast("bigint").alias(VERSION)
            return self.read(upto).drop(FILE, POSITION).select("*", weight, version)
        if after > upto:
            raise VersionGone(
                f"'{self.spec.name}' is at version {upto}, but version {after} was read before: it was made anew",
                where=str(self.path),
                hint="drop the views that read it and create them again",
            )
        with self._gone(after + 1):
            return self._files.changes(self._commits(after, upto))

    def append(self, rows: DataFrame, record: CommitRecord) -> Head:
        """Insert rows (the stored columns, in any order), in one commit. `rows` is computed once.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = self._next(record)
        return self._add(head, record, self._staged(rows, record))

    def append_if_any(self, rows: DataFrame, record: CommitRecord) -> Head | None:
        """`append`, but without rows no commit is made: None. The rows are counted while they are written."""
        head = self._next(record)
        staged = self._staged(rows, record)
        if staged.totals["rows"] == 0:
            staged.discard()
            return None
        return self._add(head, record, staged)

    def advance(self, record: CommitRecord, after: Head | None = None) -> Head:
        """Make an empty commit: the same rows reflect `record.vector`.

        Args:
            after: the head as it was found, where a rebuild takes it as it stands; otherwise it is looked up.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = after or self._next(record)
        return self._commit(head, replace(record, inserted=0, deleted=0, digest=head.record.digest), Rows())

    def apply(self, settled: DataFrame, record: CommitRecord, after: Head | None = None) -> Head | None:
        """Commit the settled rows of the touched keys; None, and no commit, when no row changes.

        Args:
            settled: a settled frame, see `settle`. It is computed once.
            after: as of `advance`.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            NegativeWeight: more rows would be deleted than there are.
            CommitConflict: another writer committed first.
            CorruptState: a row stored before is not where the frame says.
        """
        from state_store.spark.settle import measured

        head = after or self._next(record)
        with measured(settled, self.spec, self._schema) as changes:
            if not changes.written and not changes.retracted:
                return None
            digest = Digest.parse(head.record.digest) + changes.digest
            if digest.count < 0:
                raise NegativeWeight(f"'{self.spec.name}' would have {digest.count} rows", where=str(self.path))
            retracted = {data_file(self.path, url): places for url, places in changes.retracted.items()}
            staged = None
            if changes.written:
                rows = changes.rows.coalesce(-(-changes.written // _ROWS_PER_FILE))
                staged = stage(rows, self.path, record.epoch, self.spec.indexed)
        record = replace(record, inserted=changes.inserted, deleted=changes.deleted, digest=str(digest))
        return self._commit(head, record, Rows(staged, retracted))

    def _staged(self, rows: DataFrame, record: CommitRecord) -> Staged:
        from state_store.spark.settle import conformed, row_totals

        totals = row_totals(self.spec, self._schema)
        return stage(conformed(rows, self._schema), self.path, record.epoch, self.spec.indexed, totals)

    def _add(self, head: Head, record: CommitRecord, staged: Staged) -> Head:
        from state_store.spark.settle import lane_digest

        count = int(staged.totals["rows"])
        digest = Digest.parse(head.record.digest) + lane_digest(staged.totals, "new", count)
        return self._commit(head, replace(record, inserted=count, deleted=0, digest=str(digest)), Rows(staged))

    def _commit(self, head: Head, record: CommitRecord, rows: Rows) -> Head:
        """The head after the epoch's commit, or after the compaction that followed it; with the epoch's counts."""
        made = commit(self.path, head, record, rows)
        compacted = maintain_files(self.path, self.spec, made)
        if compacted is None:
            return made
        counts = replace(compacted.record, inserted=made.record.inserted, deleted=made.record.deleted)
        return Head(compacted.version, counts)

    @cached_property
    def _files(self) -> TableFiles:
        from state_store.spark.rows import TableFiles

        return TableFiles(self.spark, self.path, self._schema)

    @cached_property
    def _schema(self) -> StructType:
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(self.spec.ddl)
        assert isinstance(schema, StructType)
        return schema

    def _next(self, record: CommitRecord) -> Head:
        head = self.head()
        if head.record.epoch + 1 != record.epoch:
            raise VectorMismatch(
                f"'{self.spec.name}' is at epoch {head.record.epoch}; epoch {record.epoch} does not follow it",
                where=str(self.path),
                hint="plan the refresh again from the table's head",
            )
        return head

    def _commits(self, after: int, upto: int) -> list[Commit]:
        found = log.read_history(self.path, after, upto)
        wrong = next((made for made in found if self.spec.storage == "append" and not made.only_adds), None)
        if wrong is not None:
            raise CorruptState(
                f"version {wrong.version} of '{self.spec.name}' takes rows away, but its rows are only ever added",
                where=str(self.path),
                hint=rebuild_hint(self.spec.name),
            )
        return found

    def _check_version(self, version: int) -> None:
        newest = log.newest_version(self.path)
        if newest is None:
            raise log.missing(self.path)
        if version > newest:
            raise VersionGone(
                f"version {version} of '{self.spec.name}' is not there; the newest is {newest}", where=str(self.path)
            )

    @contextmanager
    def _gone(self, version: int) -> Iterator[None]:
        """Turns Spark's words for a missing file into VersionGone."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            raise VersionGone(
                f"a file of '{self.spec.name}' is gone, which version {version} needs",
                where=str(self.path),
                hint=rebuild_hint(self.spec.name),
            ) from error
