"""A table of the lake in Spark: its rows at a version, its changes between versions, one commit per epoch.

Every commit carries its `CommitRecord`, so the last commit alone says what the table reflects. A commit is refused
unless it is the next epoch after the head's: a repeated or late epoch writes nothing.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from state_store import deltalog, reader, staging
from state_store.columns import VERSION, WEIGHT
from state_store.commits import CommitRecord, Head
from state_store.digest import Digest
from state_store.epoch import Epoch
from state_store.errors import CorruptState, NegativeWeight, VectorMismatch, VersionGone
from state_store.tablespec import TableSpec, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Table:
    """One Delta table. Writers must hold the pipeline's lock; one `Table` is used by one thread at a time.

    Args:
        path: its folder, `Lake.table(name)`.
        spec: its columns and key.
    """

    def __init__(self, spark: SparkSession, path: Path, spec: TableSpec) -> None:
        self.spark = spark
        self.path = path
        self.spec = spec

    def ensure(self, record: CommitRecord) -> Head:
        """Create the table, empty, at version 0 with `record`, unless it exists; returns its head."""
        if deltalog.newest_version(self.path) is None:
            first = replace(record, epoch=0, mode="create", inserted=0, deleted=0, digest=str(Digest()))
            deltalog.create_table(self.path, self._schema.json(), self.spec.properties, first)
        return self.head()

    def head(self) -> Head:
        """The head of the table.

        Raises:
            TableMissing: the table is not there.
            CorruptState: its last commit is broken.
        """
        head = reader.head(self.path)
        if head is None:
            raise deltalog.missing(self.path)
        return head

    def read(self, version: int) -> DataFrame:
        """All stored columns of the rows at `version`.

        Raises:
            VersionGone: the version is not there, or is older than the table's retention.
        """
        self._check_version(version)
        with self._gone(version):
            return self.spark.read.format("delta").option("versionAsOf", version).load(str(self.path))

    def changes(self, after: int | None, upto: int) -> DataFrame:
        """The changes in the versions after `after`, up to and including `upto`: stored columns and `__weight` BIGINT.

        Without `after`, the rows at `upto`, each with weight 1. The changes are not
        consolidated: a row may have +1 and −1. Those of a keyed table have their commit too: `_commit_version` BIGINT.

        Raises:
            VersionGone: the log or a file no longer reaches back to `after`, or `upto` is not there yet.
            CorruptState: rows were deleted from an append table.
        """
        from pyspark.sql import functions as F

        self._check_version(upto)
        if after is None:
            rows = self.read(upto).withColumn(WEIGHT, F.lit(1).cast("bigint"))
            return rows if self.spec.storage == "append" else rows.withColumn(VERSION, F.lit(upto).cast("bigint"))
        if after > upto:
            raise VersionGone(
                f"'{self.spec.name}' is at version {upto}, but version {after} was read before: it was made anew",
                where=str(self.path),
                hint="drop the views that read it and create them again",
            )
        if self.spec.storage == "append":
            return self._added_rows(after, upto).withColumn(WEIGHT, F.lit(1).cast("bigint"))
        return self._change_feed(after, upto)

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

    def advance(self, record: CommitRecord) -> Head:
        """Make an empty commit: the same rows reflect `record.vector`.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = self._next(record)
        return self._epoch(head, replace(record, inserted=0, deleted=0, digest=head.record.digest)).add(None)

    def apply(self, settled: DataFrame, record: CommitRecord) -> Head | None:
        """Commit the settled rows of the touched keys; None, and no commit, when no row changes.

        Args:
            settled: a settled frame, see `settle`. It is computed once.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            NegativeWeight: more rows would be deleted than there are.
            CommitConflict: another writer committed first.
        """
        from state_store.settle import measured

        head = self._next(record)
        with measured(settled, self.spec, self._schema) as changes:
            if not changes.written and not changes.gone:
                return None
            digest = Digest.parse(head.record.digest) + changes.digest
            if digest.count < 0:
                raise NegativeWeight(f"'{self.spec.name}' would have {digest.count} rows", where=str(self.path))
            record = replace(record, inserted=changes.inserted, deleted=changes.deleted, digest=str(digest))
            return self._epoch(head, record).settle(changes)

    def _staged(self, rows: DataFrame, record: CommitRecord) -> staging.Staged:
        from state_store.settle import conformed, row_totals

        totals = row_totals(self.spec, self._schema)
        return staging.stage(conformed(rows, self._schema), self.path, record.epoch, totals)

    def _add(self, head: Head, record: CommitRecord, staged: staging.Staged) -> Head:
        from state_store.settle import lane_digest

        count = int(staged.totals["rows"])
        digest = Digest.parse(head.record.digest) + lane_digest(staged.totals, "new", count)
        return self._epoch(head, replace(record, inserted=count, deleted=0, digest=str(digest))).add(staged)

    @cached_property
    def _schema(self) -> StructType:
        from pyspark.sql.types import StructType

        schema = StructType.fromDDL(self.spec.ddl)
        assert isinstance(schema, StructType)
        return schema

    @cached_property
    def _merge_session(self) -> SparkSession:
        # MERGE takes its metadata from the session's settings only, and views refresh in parallel threads.
        return self.spark.newSession()

    def _epoch(self, head: Head, record: CommitRecord) -> Epoch:
        return Epoch(self.path, self.spec, self._schema, head, record, lambda: self._merge_session)

    def _next(self, record: CommitRecord) -> Head:
        head = self.head()
        if head.record.epoch + 1 != record.epoch:
            raise VectorMismatch(
                f"'{self.spec.name}' is at epoch {head.record.epoch}; epoch {record.epoch} does not follow it",
                where=str(self.path),
                hint="plan the refresh again from the table's head",
            )
        return head

    def _added_rows(self, after: int, upto: int) -> DataFrame:
        """The rows of the files that the commits added: an append table needs no change feed."""
        files: list[Path] = []
        for version in range(after + 1, upto + 1):
            commit = deltalog.read_commit(self.path, version)
            if not commit.only_adds:
                raise CorruptState(
                    f"version {version} of '{self.spec.name}' takes rows away, but its rows are only ever added",
                    where=str(self.path),
                    hint="restore the table from history",
                )
            files += [file.path for file in commit.added]
        lost = next((file for file in files if not file.exists()), None)
        if lost is not None:
            raise VersionGone(f"a file of '{self.spec.name}' is gone: {lost.name}", where=str(self.path))
        if not files:
            return self.spark.createDataFrame([], self._schema)
        return self.spark.read.schema(self._schema).parquet(*map(str, files))

    def _change_feed(self, after: int, upto: int) -> DataFrame:
        from pyspark.sql import functions as F

        if after == upto:
            nothing = self.spark.createDataFrame([], self._schema).withColumn(WEIGHT, F.lit(1).cast("bigint"))
            return nothing.withColumn(VERSION, F.lit(upto).cast("bigint"))
        for version in range(after + 1, upto + 1):
            deltalog.read_commit(self.path, version)  # a gap in the log must be an error, not a shorter answer
        source = self.spark.read.format("delta").option("readChangeFeed", "true")
        with self._gone(after + 1):
            feed = source.option("startingVersion", after + 1).option("endingVersion", upto).load(str(self.path))
        inserted = F.col("_change_type").isin("insert", "update_postimage")
        weight = F.when(inserted, F.lit(1)).otherwise(F.lit(-1)).cast("bigint").alias(WEIGHT)
        return feed.select(*(quoted(field.name) for field in self._schema.fields), weight, VERSION)

    def _check_version(self, version: int) -> None:
        newest = deltalog.newest_version(self.path)
        if newest is None:
            raise deltalog.missing(self.path)
        if version > newest:
            raise VersionGone(
                f"version {version} of '{self.spec.name}' is not there; the newest is {newest}", where=str(self.path)
            )

    @contextmanager
    def _gone(self, version: int) -> Iterator[None]:
        """Turns Delta's refusal to read `version` into VersionGone."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            raise VersionGone(
                f"version {version} of '{self.spec.name}' cannot be read: {error.getCondition() or 'see the cause'}",
                where=str(self.path),
                hint="rebuild from the table as it is now",
            ) from error
