"""One epoch of one table: its single commit, made by the cheapest method that its changes allow.

| change | commit |
| --- | --- |
| nothing, or only rows with new keys | files staged by Spark, committed by delta-rs |
| the row of a table of one row | the same, replacing everything |
| rows of known keys | Delta's `replaceOn`: deletion vectors for the old rows, files for the new ones |
| keys are deleted | `MERGE` |

The measurements are in docs/design/0002-apply.md.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from state_store import deltalog, staging
from state_store.columns import EXISTS
from state_store.commits import CommitRecord, Head
from state_store.errors import CommitConflict
from state_store.tablespec import TableSpec, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from state_store.settle import Changes

# One file per epoch while epochs are small: every file is a task for later reads and replacements. Above this, several
# tasks write the files in parallel.
_ROWS_PER_FILE = 500_000

# Aliases that no column has: Spark would read `s.k` as the field `k` of a column `s`.
_STORED, _SETTLED = "__stored", "__settled"

# As in `staging`: never INT96.
_TIMESTAMPS = ("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")


@dataclass(frozen=True)
class Epoch:
    """The next commit after `head`, which carries `record`.

    Attributes:
        merge_session: returns the session in which MERGE runs; nothing else uses it at the time.
    """

    path: Path
    spec: TableSpec
    schema: StructType
    head: Head
    record: CommitRecord
    merge_session: Callable[[], SparkSession]

    def add(self, staged: staging.Staged | None, *, replacing: bool = False) -> Head:
        """Commit staged files, or the record alone; with `replacing`, they replace all rows."""
        try:
            staging.commit(self.path, self.head, self.record, self._app_id, staged, replacing=replacing)
        except CommitConflict:
            if staged:
                staged.discard()
            raise
        return self._committed()

    def settle(self, changes: Changes) -> Head:
        """Commit the new rows of the changed keys."""
        files = -(-max(changes.written, 1) // _ROWS_PER_FILE)
        rows = changes.rows.coalesce(files)
        stored = rows.where(EXISTS).drop(EXISTS)
        only_new = changes.written == changes.fresh and not changes.gone
        if only_new or not self.spec.key:
            return self.add(staging.stage(stored, self.path, self.record.epoch), replacing=not only_new)
        return self._merge(rows) if changes.gone else self._replace(stored)

    def _replace(self, rows: DataFrame) -> Head:
        options = {
            "replaceOn": self._on_key,
            "targetAlias": _STORED,
            "userMetadata": self.record.to_json(),
            "txnAppId": self._app_id,
            "txnVersion": str(self.record.epoch),
            _TIMESTAMPS[0]: _TIMESTAMPS[1],
        }
        with self._conflicts():
            rows.alias(_SETTLED).write.format("delta").mode("overwrite").options(**options).save(str(self.path))
        return self._committed()

    def _merge(self, rows: DataFrame) -> Head:
        from delta.tables import DeltaTable

        session = self.merge_session()
        session.conf.set(*_TIMESTAMPS)
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", self.record.to_json())
        session.conf.set("spark.databricks.delta.write.txnAppId", self._app_id)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(self.record.epoch))
        values: dict[str, str | Column] = {
            quoted(field.name): f"{_SETTLED}.{quoted(field.name)}" for field in self.schema.fields
        }
        target = DeltaTable.forPath(session, str(self.path)).alias(_STORED)
        merge = target.merge(rows.alias(_SETTLED), self._on_key).whenMatchedDelete(f"NOT {_SETTLED}.{EXISTS}")
        with self._conflicts():
            merge.whenMatchedUpdate(set=values).whenNotMatchedInsert(f"{_SETTLED}.{EXISTS}", values=values).execute()
        return self._committed()

    @property
    def _app_id(self) -> str:
        return f"strandline/{self.spec.name}"

    @property
    def _on_key(self) -> str:
        return " AND ".join(f"{_STORED}.{quoted(name)} <=> {_SETTLED}.{quoted(name)}" for name in self.spec.key)

    def _committed(self) -> Head:
        """The new head, read back: Delta silently ignores a transaction id that it has seen."""
        newest = deltalog.newest_version(self.path) or 0
        for version in range(self.head.version + 1, newest + 1):
            if deltalog.read_commit(self.path, version).record == self.record:
                return Head(version, self.record)
        raise staging.conflict(self.path, self.head)

    @contextmanager
    def _conflicts(self) -> Iterator[None]:
        """Turns Delta's conflict errors into ours."""
        from delta.exceptions import DeltaConcurrentModificationException

        try:
            yield
        except DeltaConcurrentModificationException as error:
            raise staging.conflict(self.path, self.head) from error
