"""Operations on the lake as jobs: compaction with retention, and backups. Each prints its plan before it works."""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from jobs.model.settings import Settings
from jobs.operate.backup.execute import execute_backup
from jobs.operate.backup.plan import plan_backup
from jobs.operate.maintenance.execute import TableResult, execute_maintenance
from jobs.operate.maintenance.plan import plan_maintenance
from state_store.storage.open import lake_path


class Compaction(dg.Config):
    """What the job `compact` does.

    Attributes:
        tables: definitions or tables; none: the whole lake.
        dry_run: print the plan and change nothing.
    """

    tables: list[str] = Field(default_factory=list)
    dry_run: bool = False


class Backup(dg.Config):
    """What the job `backup` does.

    Attributes:
        destination: a path or URL: a new folder, or one with older backups.
        dry_run: print the plan and copy nothing.
    """

    destination: str
    dry_run: bool = False


def compact_job(settings: Settings, shown: Mapping[str, Sequence[dg.AssetKey]]) -> dg.JobDefinition:
    """The job that merges small files, removes what nobody needs, folds old changes, and proves that no row changed.

    Args:
        shown: {table: the assets that show it}.
    """

    @dg.op(pool="compact", out=dg.Out(dg.Nothing), description="Merges, cleans up and folds; then proves the rows.")
    def compact_tables(context: dg.OpExecutionContext, config: Compaction) -> Iterator[Any]:
        plan = plan_maintenance(settings, config.tables)
        context.log.info("the plan:\n%s", plan)
        if not config.dry_run:
            done = execute_maintenance(settings, plan)
            for table in done.tables:
                for key in shown.get(table.table, ()):
                    yield dg.AssetObservation(key, metadata=_maintained(table))
            wrong = [table for table in done.tables if table.proved is False]
            if wrong:
                named = ", ".join(f"'{table.table}' ({table.note})" for table in wrong)
                raise dg.Failure(f"not what it was before: {named}; type: strandline verify", allow_retries=False)
        yield dg.Output(None)

    @dg.job(
        name="compact",
        description="Compaction, retention and changelog folding of every table, beside the streams.",
        executor_def=dg.in_process_executor,
    )
    def compact() -> None:
        compact_tables()

    return compact


def backup_job(settings: Settings) -> dg.JobDefinition:
    """The job that backs the lake up: only files that the destination has not yet are copied."""

    @dg.op(pool="backup", description="Copies what the destination lacks, and verifies it.")
    def back_up(context: dg.OpExecutionContext, config: Backup) -> None:
        plan = plan_backup(settings, lake_path(config.destination, settings.storage.options()))
        context.log.info("the plan:\n%s", plan)
        if config.dry_run:
            return
        done = execute_backup(settings, plan)
        context.add_output_metadata(
            {
                "backup": done.number,
                "files": done.files,
                "bytes": done.size,
                "files written": done.written,
                "bytes written": done.written_size,
                "seconds": round(done.seconds, 3),
            }
        )

    @dg.job(
        name="backup",
        description="An incremental, verified backup of the lake.",
        executor_def=dg.in_process_executor,
    )
    def backup() -> None:
        back_up()

    return backup


def _maintained(table: TableResult) -> dict[str, Any]:
    """The metadata of a maintained table. Labels must not change: Dagster plots each over time."""
    metadata: dict[str, Any] = {
        "files": table.files_after,
        "files merged away": max(table.files_before - table.files_after, 0),
        "dagster/size_bytes": table.bytes_after,
        "files removed": table.removed,
        "bytes freed": table.freed,
        "rows a restore plays": table.restore_rows_after,
        "rows a restore played before": table.restore_rows_before,
    }
    if table.proved is not None:
        metadata |= {"proved": table.proved, "seconds to fold the feed": round(table.prove_seconds, 3)}
    if table.trimmed:
        metadata["events trimmed"] = table.trimmed
    if table.note:
        metadata["note"] = table.note
    return metadata
