"""A table of the lake in Spark: its rows at a version, its changes between versions, one commit per epoch."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import Staged, data_file, stage
from strandline.state_store.delta.entry import rebuild_hint
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest
from strandline.state_store.errors import NegativeWeight, VersionGone
from strandline.state_store.tablespec import FILE, POSITION, VERSION, WEIGHT, TableSpec, schema_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from strandline.state_store.paths import LakePath
    from strandline.state_store.spark.rows import TableFiles

# One file per epoch while epochs are small: every file is a task for later reads. Above this, several tasks write the
# files in parallel.
_ROWS_PER_FILE = 500_000


class SparkTable(StoredTable):
    """One Delta table in a session; see `StoredTable`."""

    def __init__(self, spark: SparkSession, path: LakePath, spec: TableSpec) -> None:
        super().__init__(path, spec)
        self.spark = spark

    def read(self, version: int) -> DataFrame:
        """All stored columns of the rows at `version`, and their places: `__file` STRING and `__position` BIGINT.

        Raises:
            VersionGone: the version is not there, or is older than the table's retention.
        """
        self.check_version(version)
        with self._gone(version):
            return self._files.rows(self._snapshot(version))

    def changes(self, after: int | None, upto: int) -> DataFrame:
        """The changes in the versions after `after`, up to and including `upto`.

        Stored columns, `__weight` BIGINT and `_commit_version` BIGINT. Without `after`, the rows at `upto`, each with
        weight 1. The changes of several commits are not consolidated: a row may have +1 and −1.

        Raises:
            VersionGone: the log or a file no longer reaches back to `after`, or `upto` is not there yet.
            CorruptState: rows were deleted from an append table.
        """
        from pyspark.sql import functions as F

        self.check_version(upto)
        if after is None:
            weight, version = F.lit(1).cast("bigint").alias(WEIGHT), F.lit(upto).cast("bigint").alias(VERSION)
            return self.read(upto).drop(FILE, POSITION).select("*", weight, version)
        with self._gone(after + 1):
            return self._files.changes(self.commits(after, upto))

    def append(self, rows: DataFrame, record: CommitRecord) -> Head:
        """Insert rows (the stored columns, in any order), in one commit. `rows` is computed once.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = self.next(record)
        return self._add(head, record, self._staged(rows, record))

    def append_if_any(self, rows: DataFrame, record: CommitRecord) -> Head | None:
        """`append`, but without rows no commit is made: None. The rows are counted while they are written."""
        head = self.next(record)
        staged = self._staged(rows, record)
        if staged.totals["rows"] == 0:
            staged.discard()
            return None
        return self._add(head, record, staged)

    def apply(self, upserts: DataFrame, record: CommitRecord, after: Head | None = None) -> Head | None:
        """Commit the upserts of the touched keys; None, and no commit, when no row changes.

        Args:
            upserts: a frame of them, see `spark.upserts`. It is computed once.
            after: as of `advance`.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            NegativeWeight: more rows would be deleted than there are.
            CommitConflict: another writer committed first.
            CorruptState: a row stored before is not where the frame says.
        """
        from strandline.state_store.spark.upserts import measured

        head = after or self.next(record)
        with measured(upserts, self.spec, self._schema) as changes:
            if not changes.written and not changes.retracted:
                return None
            digest = Digest.parse(head.record.digest) + changes.digest
            if digest.count < 0:
                raise NegativeWeight(f"'{self.spec.name}' would have {digest.count} rows", where=str(self.path))
            retracted = {data_file(self.path, url): places for url, places in changes.retracted.items()}
            taken = {data_file(self.path, url): each for url, each in changes.taken.items()}
            staged = None
            if changes.written:
                files = -(-changes.written // _ROWS_PER_FILE)
                rows = changes.rows.coalesce(files)
                staged = stage(rows, self.path, record.epoch, self.spec.indexed)
                staged = self._tagged(staged, changes.came)
        record = replace(record, inserted=changes.inserted, deleted=changes.deleted, digest=str(digest))
        return self.commit(head, record, RowChanges(staged, retracted, taken))

    def _tagged(self, staged: Staged, digest: Digest) -> Staged:
        """With what the rows come to, if one file holds all of them: of several, Spark does not say it of each."""
        return staged.tagged([digest], schema_json(self.spec.stored)) if len(staged.files) == 1 else staged

    def _staged(self, rows: DataFrame, record: CommitRecord) -> Staged:
        from strandline.state_store.spark.upserts import conformed, row_totals

        totals = row_totals(self.spec, self._schema)
        return stage(conformed(rows, self._schema), self.path, record.epoch, self.spec.indexed, totals)

    def _add(self, head: Head, record: CommitRecord, staged: Staged) -> Head:
        from strandline.state_store.spark.upserts import lane_digest

        count = int(staged.totals["rows"])
        came = lane_digest(staged.totals, "new", count)
        digest = Digest.parse(head.record.digest) + came
        record = replace(record, inserted=count, deleted=0, digest=str(digest))
        return self.commit(head, record, RowChanges(self._tagged(staged, came)))

    @cached_property
    def _files(self) -> TableFiles:
        from strandline.state_store.spark.rows import TableFiles

        return TableFiles(self.spark, self.path, self._schema)

    @cached_property
    def _schema(self) -> StructType:
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(self.spec.ddl)
        assert isinstance(schema, StructType)
        return schema

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
