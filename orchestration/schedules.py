"""The schedules of a lake: what is checked, compacted and rehearsed without anybody asking. All are on from the start.

| job | when (UTC) | what |
| --- | --- | --- |
| `vital_signs` | every hour | state, freshness, dead letters, late rows of every view; also after each drain |
| `compact` | every hour, at half past | plans, then does what is due; nothing due costs one look at each log |
| `backup` | 02:00 | an incremental backup, where the settings name a destination |
| `proofs` | 03:00 | every view against its SQL, its changelog and its digest: reads all rows |
| `drills` | 04:00 | every recovery of every view, on copies |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

_CRON = {"vital_signs": "0 * * * *", "compact": "30 * * * *", "proofs": "0 3 * * *", "drills": "0 4 * * *"}
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
            cron_schedule=crons[job.name],
            execution_timezone="UTC",
            default_status=dg.DefaultScheduleStatus.RUNNING,
        )
        for job in jobs
        if job.name in crons
    ]
