"""Operations on the lake as jobs: compaction with retention, and the commands for a lake's whole life.

| job | runs |
| --- | --- |
| `compact` | merges, cleans up and folds, in the step itself |
| `backup`, `restore`, `verify`, `rebuild`, `backfill` | the command of that name |
| `backfill_days` | `backfill`, a partition a day |
| `replace` | `apply`, of a file with CREATE OR REPLACE |
| `thin_history` | deletes old events of Dagster's own, in the step itself |
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import dagster as dg
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
from pydantic import Field

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.maintenance import TableResult, execute_maintenance, plan_maintenance
from strandline.jobs.run.orphans import LIFELINE_FD
from strandline.orchestration.history import delete_runs, thin
from strandline.orchestration.launch import GRACE_SECONDS, Echo, ProcessGroup, lifeline

# Runs a `strandline` command as a child process of a step: what a person would type, with its code, hints and JSON.
#
# A child of its own, since a rebuild may start a JVM, and so that a cancel ends all of it. Its standard error goes to
# the run's compute logs; the objects that it prints are returned. When the step's process is killed, the child's
# lifeline ends it (`jobs.run.orphans`).

# The exit code of a command that worked, and found something that is not as it must be.
_FOUND_BROKEN = 1
# An error of ours is a line and its hint.
_SAID_LINES = 3


def run_command(
    context: dg.OpExecutionContext, settings: Settings, arguments: Sequence[str], *, as_json: bool = True
) -> list[dict[str, Any]]:
    """Run `strandline ARGUMENTS --json` over the lake of `settings` to its end.

    Args:
        as_json: the command prints objects; otherwise each of its lines is one, under `said`.

    Returns:
        the objects that it printed.

    Raises:
        Failure: it ended with another code than 0. What it printed is in the failure's metadata.
    """
    command = [sys.executable, "-m", "strandline.jobs.cli.main", *arguments, *(["--json"] if as_json else [])]
    with tempfile.TemporaryFile("w+") as output, lifeline() as descriptor:
        environment = {
            **os.environ,
            LIFELINE_FD: str(descriptor),
            "STRANDLINE_LAKE": str(settings.lake),
            "PYTHONUNBUFFERED": "1",
        }
        child = ProcessGroup(command, env=environment, stdout=output, stderr=subprocess.PIPE, pass_fds=[descriptor])
        echo = Echo(child.stderr)
        try:
            context.log.info("started process %d: strandline %s", child.pid, " ".join(arguments))
            code = child.wait()
        finally:
            child.stop(GRACE_SECONDS)
            tail = echo.finish()
        output.seek(0)
        lines = [line.rstrip() for line in output]
        if as_json:
            printed = [json.loads(line) for line in lines if line.startswith("{")]
        else:
            printed = [{"said": line} for line in lines if line]
    if code != 0:
        told = "found what is not as it must be" if code == _FOUND_BROKEN else f"failed with exit code {code}"
        shown = {"standard error (end)": dg.MetadataValue.md(f"```\n{tail.rstrip()}\n```")}
        if printed:
            shown["printed"] = dg.MetadataValue.md(f"```json\n{_lines(printed)}\n```")
        last = "\n".join(tail.rstrip().splitlines()[-_SAID_LINES:])
        raise dg.Failure(f"strandline {arguments[0]} {told}:\n{last}", metadata=shown, allow_retries=False)
    return printed


def told(printed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What a command printed, as metadata: the numbers of a single object by name, so that Dagster plots them."""
    numbers = printed[0] if len(printed) == 1 else {}
    shown = {label: value for label, value in numbers.items() if isinstance(value, int | float | str)}
    return {**shown, "printed": dg.MetadataValue.md(f"```json\n{_lines(printed)}\n```")}


def _lines(printed: Sequence[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(each) for each in printed)


# The schedules of a lake: what is checked, compacted and rehearsed without anybody asking. All are on from the start.
#
# | job | when (UTC) | what |
# | --- | --- | --- |
# | `health_checks` | every hour | state, freshness, dead letters, late rows of every view; also after each drain |
# | `expectations` | every hour, at a quarter past | what EXPECT says; fails where a blocking one does |
# | `compact` | every hour, at half past | plans, then does what is due; nothing due costs one look at each log |
# | `backup` | 02:00 | an incremental backup, where the settings name a destination |
# | `proofs` | 03:00 | every view against its SQL, its changelog and its digest: reads all rows |
# | `drills` | 04:00 | every recovery of every view, on copies |
# | `thin_history` | 05:00 | deletes what Dagster keeps for ever of what streams told |

_CRON = {
    "health_checks": "0 * * * *",
    "expectations": "15 * * * *",
    "compact": "30 * * * *",
    "proofs": "0 3 * * *",
    "drills": "0 4 * * *",
    "thin_history": "0 5 * * *",
}
_HOURLY: Final = ("health_checks", "expectations", "compact")
_DONE: Final[Mapping[str, Mapping[str, Any]]] = {
    "compact": {"ops": {"compact_tables": {"config": {"dry_run": False}}}},
    "thin_history": {"ops": {"thin_events": {"config": {"dry_run": False}}}},
}
"""{job that deletes: the configuration of its scheduled runs}. Launched by a person it says first what it would do."""
# Before the drills, which restore what it has made.
_BACKUP = {"backup": "0 2 * * *"}


def check_job(
    name: str, checks: Iterable[dg.AssetChecksDefinition], description: str
) -> UnresolvedAssetJobDefinition | None:
    """A job that makes some checks of all pipelines; None when there are none."""
    found = list(checks)
    if not found:
        return None
    return dg.define_asset_job(name, selection=made_by(found), description=description)


def made_by(checks: Iterable[dg.AssetChecksDefinition]) -> dg.AssetSelection:
    """The selection of checks alone, without the assets that they look at."""
    return dg.AssetSelection.checks(*(key for each in checks for key in each.check_keys))


def schedules(
    jobs: Sequence[dg.JobDefinition | UnresolvedAssetJobDefinition], *, backed_up: bool
) -> list[dg.ScheduleDefinition]:
    """The schedules of those jobs that have one.

    Args:
        backed_up: the settings say where backups go.
    """
    crons = {**_CRON, **(_BACKUP if backed_up else {})}
    return [
        dg.ScheduleDefinition(
            name=f"{job.name}_schedule",
            job=job,
            description=job.description,
            cron_schedule=crons[job.name],
            run_config=_DONE.get(job.name),
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for job in jobs
        if job.name in crons
    ]


# The launchpad shows the description of each field beside it.

_DRY: Final = "Print the plan and change nothing."
_BY: Final = "The column with the time of a row; empty: the begin of its window."


class Compaction(dg.Config):
    """What the job `compact` does."""

    tables: list[str] = Field(default_factory=list, description="Definitions or tables; none: the whole lake.")
    dry_run: bool = Field(default=True, description=f"{_DRY} The schedule does what is planned.")


class Thinning(dg.Config):
    """What the job `thin_history` does."""

    whole_days: float = Field(default=1.0, gt=0, description="Every event is kept for so long.")
    days: float = Field(default=30.0, gt=0, description="The last of each hour is kept for so long; then the last one.")
    runs_days: float = Field(default=7.0, gt=0, description="Runs of hourly jobs are kept for so long.")
    dry_run: bool = Field(default=True, description="Count what would be deleted. The schedule deletes it.")


class Backup(dg.Config):
    """What the job `backup` does."""

    destination: str = Field(
        default="",
        description="A path or URL: a new folder, or one with older backups; empty: that of the settings.",
    )
    dry_run: bool = Field(default=False, description="Print the plan and copy nothing.")


class Restoration(dg.Config):
    """What the job `restore` does."""

    lake: str = Field(description="A path or URL with nothing in it.")
    source: str = Field(default="", description="Where the backups are; empty: the destination of the settings.")
    number: int | None = Field(default=None, description="Of an older backup; none: the newest.")
    dry_run: bool = Field(default=False, description="Print the plan and restore nothing.")


class Verification(dg.Config):
    """What the job `verify` does."""

    names: list[str] = Field(default_factory=list, description="Definitions or tables; none: the whole lake.")
    deep: bool = Field(default=True, description="Read all rows, and compute every view anew.")


class Rebuilding(dg.Config):
    """What the job `rebuild` does. A dry run by default, since what is stored is replaced."""

    names: list[str] = Field(
        default_factory=list,
        description="Streams, tables or views; none: all that `strandline verify` finds broken.",
    )
    dry_run: bool = Field(default=True, description=_DRY)


class Backfilling(dg.Config):
    """What the job `backfill` does. A dry run by default, since rows are replaced."""

    view: str = Field(description="The view.")
    begin: str = Field(default="", description="The first moment, in UTC; empty: without bound.")
    end: str = Field(default="", description="The first moment after the range, in UTC; empty: without bound.")
    by: str = Field(default="", description=_BY)
    dry_run: bool = Field(default=True, description=_DRY)


class Replacing(dg.Config):
    """What the job `replace` does. A dry run by default, since definitions are replaced."""

    file: str = Field(description="The path of the pipeline's file, FILE.sql, as the Dagster process sees it.")
    dry_run: bool = Field(default=True, description=_DRY)


class BackfillingDays(dg.Config):
    """What the job `backfill_days` does, for the days of its partitions. A dry run by default."""

    view: str = Field(description="The view.")
    by: str = Field(default="", description=_BY)
    dry_run: bool = Field(default=True, description=_DRY)


_DAYS = dg.DailyPartitionsDefinition(start_date="2010-01-01", timezone="UTC", end_offset=1)
"""From before any event that a lake of today has, to the present day."""


def compact_job(settings: Settings, shown: Mapping[str, dg.AssetKey]) -> dg.JobDefinition:
    """The job that merges small files, removes what nobody needs, folds old changes, and proves that no row changed.

    Args:
        shown: {table: the asset that shows its rows}.
    """

    @dg.op(pool="compact", out=dg.Out(dg.Nothing), description="Merges, cleans up and folds; then proves the rows.")
    def compact_tables(context: dg.OpExecutionContext, config: Compaction) -> Iterator[Any]:
        plan = plan_maintenance(settings, config.tables)
        context.log.info("the plan:\n%s", plan)
        if not config.dry_run:
            done = execute_maintenance(settings, plan)
            for table in done.tables:
                if table.table in shown and _worked_on(table):
                    yield dg.AssetObservation(shown[table.table], metadata=_maintained(table))
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


def thin_job() -> dg.JobDefinition:
    """The job that deletes old events of Dagster's own storage that belong to no run."""

    @dg.op(pool="history", description="Thins what was told outside of runs: see its configuration.")
    def thin_events(context: dg.OpExecutionContext, config: Thinning) -> None:
        now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
        done = thin(context.instance, now, config.whole_days, config.days, dry_run=config.dry_run)
        runs = delete_runs(context.instance, now, _HOURLY, config.runs_days, dry_run=config.dry_run)
        context.add_output_metadata(
            {"events deleted": done.events, "results deleted": done.results, "runs deleted": runs}
        )

    return _job("thin_history", thin_events, "What streams told Dagster: whole for a day, then an event an hour.")


def lake_jobs(settings: Settings) -> list[dg.JobDefinition]:
    """The jobs that run a command over the lake: backup, restore, verify, rebuild, backfill, replace."""

    @dg.op(pool="backup", description="Copies what the destination lacks, and reads again some of what it has.")
    def back_up(context: dg.OpExecutionContext, config: Backup) -> None:
        destination = [config.destination] if config.destination else []
        _run(context, settings, "backup", *destination, *_dry(config.dry_run))

    @dg.op(pool="backup", description="Restores a backup into an empty lake, and proves every digest there.")
    def restore_lake(context: dg.OpExecutionContext, config: Restoration) -> None:
        source = config.source or settings.backup.destination
        if source is None:
            told = "no source is given, and the settings name no destination of backups"
            raise dg.Failure(f"{told}: set STRANDLINE_BACKUP__DESTINATION", allow_retries=False)
        number = [] if config.number is None else [f"--number={config.number}"]
        _run(context, settings, "restore", source, config.lake, *number, *_dry(config.dry_run))

    @dg.op(pool="verify", description="Proves tables: logs, files, digests, and with `deep` every row.")
    def verify_tables(context: dg.OpExecutionContext, config: Verification) -> None:
        _run(context, settings, "verify", *config.names, *(["--deep"] if config.deep else []))

    @dg.op(pool="rebuild", description="Computes the rows of a definition anew, whatever is stored.")
    def rebuild_rows(context: dg.OpExecutionContext, config: Rebuilding) -> None:
        _run(context, settings, "rebuild", *(config.names or ["--all-broken"]), *_dry(config.dry_run))

    @dg.op(pool="rebuild", description="Computes the rows of a range of time anew, and puts what differs in place.")
    def backfill_rows(context: dg.OpExecutionContext, config: Backfilling) -> None:
        said = {"--from": config.begin, "--to": config.end, "--by": config.by}
        options = [f"{option}={value}" for option, value in said.items() if value]
        _run(context, settings, "backfill", config.view, *options, *_dry(config.dry_run))

    @dg.op(pool="rebuild", description="Computes the rows of one day anew, and puts what differs in place.")
    def backfill_day(context: dg.OpExecutionContext, config: BackfillingDays) -> None:
        day = context.partition_time_window
        options = [
            f"--from={day.start.date()}",
            f"--to={day.end.date()}",
            *([f"--by={config.by}"] if config.by else []),
        ]
        _run(context, settings, "backfill", config.view, *options, *_dry(config.dry_run))

    @dg.op(pool="rebuild", description="Applies a pipeline's file: makes, alters and replaces its definitions.")
    def replace_definitions(context: dg.OpExecutionContext, config: Replacing) -> None:
        done = ["--dry-run"] if config.dry_run else ["--yes"]
        _run(context, settings, "apply", config.file, *done, as_json=False)

    return [
        _job("backup", back_up, "An incremental, verified backup of the lake."),
        _job("restore", restore_lake, "A backup, restored into an empty lake and proved there."),
        _job("verify", verify_tables, "Proves every table of the lake, or those that are named."),
        _job("rebuild", rebuild_rows, "The rows of a definition, computed anew; a dry run unless told otherwise."),
        _job("backfill", backfill_rows, "A range of a view, computed anew; a dry run unless told otherwise."),
        _job("backfill_days", backfill_day, "Days of a view, a partition each: for Dagster's own backfills.", _DAYS),
        _job("replace", replace_definitions, "A pipeline's file, applied; a dry run unless told otherwise."),
    ]


def _job(
    name: str, op: dg.OpDefinition, description: str, partitions: dg.PartitionsDefinition[str] | None = None
) -> dg.JobDefinition:
    graph = dg.GraphDefinition(name=name, node_defs=[op])
    return graph.to_job(
        name=name, description=description, executor_def=dg.in_process_executor, partitions_def=partitions
    )


def _run(context: dg.OpExecutionContext, settings: Settings, *arguments: str, as_json: bool = True) -> None:
    printed = run_command(context, settings, arguments, as_json=as_json)
    context.log.info("strandline %s:\n%s", " ".join(arguments), "\n".join(map(str, printed)))
    context.add_output_metadata(told(printed))


def _dry(dry_run: bool) -> list[str]:
    return ["--dry-run"] if dry_run else []


def _worked_on(table: TableResult) -> bool:
    """False for a table with nothing to do: an hour in which nothing happened leaves no event."""
    merged = table.files_before != table.files_after
    folded = table.restore_rows_before != table.restore_rows_after
    return bool(merged or folded or table.removed or table.freed or table.trimmed or table.note)


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
