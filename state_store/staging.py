"""Staged commits: Spark writes plain Parquet files, and delta-rs adds them to the log.

For rows that are only added (and for a table of one row, which is replaced whole) this is the same commit at a quarter
of the cost: no statistics job, no snapshot computation, no second pass for the digest, since the totals are observed
while the files are written. The measurements are in docs/design/0002-apply.md.
"""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from state_store.errors import CommitConflict

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame

    from state_store.commits import CommitRecord, Head


@dataclass(frozen=True)
class Staged:
    """Data files below a table that no commit names yet. After a kill, vacuum removes them."""

    folder: Path
    totals: dict[str, Any]

    def discard(self) -> None:
        """Remove the files: no commit will name them."""
        shutil.rmtree(self.folder, ignore_errors=True)


def stage(rows: DataFrame, path: Path, epoch: int, totals: Sequence[Column] = ()) -> Staged:
    """Write `rows` to files below the table at `path`, and add up `totals` (named aggregates) on the way."""
    from pyspark.sql import Observation

    folder = path / f"epoch-{epoch:09d}-{uuid.uuid4().hex[:8]}"
    observed = Observation()
    output = (rows.observe(observed, *totals) if totals else rows).write
    # The default, INT96, holds no dates after 2262 when read as nanoseconds, and has no statistics.
    output = output.option("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    output = output.option("mapreduce.fileoutputcommitter.marksuccessfuljobs", "false")
    try:
        output.parquet(str(folder))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return Staged(folder, observed.get if totals else {})


def commit(
    path: Path, head: Head, record: CommitRecord, app_id: str, staged: Staged | None, *, replacing: bool = False
) -> None:
    """Make version `head.version + 1` of the staged files, or of none; with `replacing`, they replace all rows.

    Raises:
        CommitConflict: another writer made that version.
    """
    from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties, Transaction
    from deltalake.exceptions import CommitFailedError

    table = DeltaTable(path)
    try:
        if table.version() != head.version:
            raise conflict(path, head)
        table.create_write_transaction(
            _add_actions(path, staged) if staged else [],
            "overwrite" if replacing else "append",
            table.schema(),
            commit_properties=CommitProperties(
                custom_metadata={"userMetadata": record.to_json()},
                # Never rebase onto another writer's commit: the digest and the vector were computed from `head`.
                max_commit_retries=0,
                app_transactions=[Transaction(app_id, record.epoch)],
            ),
            # History is removed by retention, on a schedule and with regard to its readers, never by a commit.
            post_commithook_properties=PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False),
        )
    except CommitFailedError as error:
        raise conflict(path, head) from error


def conflict(path: Path, head: Head) -> CommitConflict:
    """The error of a writer that was not the first to commit after `head`."""
    return CommitConflict(
        f"another writer has committed to '{path.name}' since version {head.version}",
        where=str(path),
        hint="run the refresh again; two pipelines must not write one table",
    )


def _add_actions(path: Path, staged: Staged) -> list[Any]:
    import pyarrow.parquet as pq
    from deltalake.transaction import AddAction

    actions = []
    for file in sorted(staged.folder.glob("*.parquet")):
        rows = pq.read_metadata(file).num_rows
        if rows:
            stat = file.stat()
            # Deletion vectors need the number of records; other statistics would not help any reader.
            stats = json.dumps({"numRecords": rows})
            name = str(file.relative_to(path))
            actions.append(AddAction(name, stat.st_size, {}, stat.st_mtime_ns // 1_000_000, True, stats))
    return actions
