"""Recovery drills as asset checks: one for each scenario of each view, run on copies of the lake.

What a recovery took and lost, and whether its digest was equal, goes out as an observation of the view's asset as well,
so that Dagster plots it over time.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of the functions it wraps.
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.backup.image import numbers
from strandline.jobs.operate.drills.history import DrillResult, record
from strandline.jobs.operate.drills.scenarios import SCENARIOS, plan_drills, run_drill
from strandline.orchestration.roles import identifier
from strandline.orchestration.translator import Translator
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from strandline.state_store.storage.open import lake_path


def pipeline_drills(
    pipeline: str, views: Sequence[View], translator: Translator, settings: Settings
) -> dg.AssetChecksDefinition | None:
    """The drills of a pipeline's views; None when it has none."""
    if not views:
        return None
    keys = {translator.key_of(view.name): view.name for view in views}
    names = {check_of(each.name): each.name for each in SCENARIOS}

    @dg.multi_asset_check(
        name=f"{identifier(pipeline)}__drills",
        specs=[
            dg.AssetCheckSpec(
                check_of(each.name),
                asset=key,
                description=f"Lost on a copy, and won back within {each.target_seconds:g} s: {each.what}.",
            )
            for key in keys
            for each in SCENARIOS
        ],
        can_subset=True,
        # One after the other: drills that run side by side measure each other.
        pool="drills",
    )
    def drills(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        selected = sorted(context.op_execution_context.selected_asset_check_keys)
        backup = _standing_backup(settings)
        for key in selected:
            (drill,) = plan_drills(settings, [keys[key.asset_key]], [names[key.name]])
            done = run_drill(settings, drill, backup=backup)
            record(LakeLayout(settings.lake), [done])
            if done.rto_seconds is not None:
                observed: dict[str, float] = {
                    f"recovery seconds: {done.drill}": done.rto_seconds,
                    f"lost versions: {done.drill}": done.rpo_versions,
                    f"lost rows: {done.drill}": done.rpo_rows,
                    # As a number, so that it is plotted: a line that falls to 0.
                    f"digest equal: {done.drill}": float(done.digest_equal is True),
                }
                context.op_execution_context.log_event(dg.AssetObservation(key.asset_key, metadata=observed))
            yield _result(done, key)

    return drills


def _standing_backup(settings: Settings) -> LakePath | None:
    """The backups that the schedule makes, for the drill that restores one; None where there are none yet."""
    if settings.backup.destination is None:
        return None
    found = lake_path(settings.backup.destination, settings.storage.options())
    return found if numbers(found) else None


def check_of(scenario: str) -> str:
    """The name of the check that drills a scenario."""
    return f"drill_{identifier(scenario.replace('-', '_'))}"


def _result(done: DrillResult, key: dg.AssetCheckKey) -> dg.AssetCheckResult:
    """The result in Dagster's form. A loss that could not be staged is not green: it warns, and says why."""
    metadata: dict[str, Any] = {
        "target seconds": done.target_seconds,
        "lost versions": done.rpo_versions,
        "lost rows": done.rpo_rows,
        "rows": done.rows,
    }
    if done.rto_seconds is not None:
        metadata["recovery seconds"] = done.rto_seconds
    if done.digest_equal is not None:
        metadata["digest equal"] = done.digest_equal
    return dg.AssetCheckResult(
        passed=done.passed is True,
        asset_key=key.asset_key,
        check_name=key.name,
        severity=dg.AssetCheckSeverity.WARN if done.passed is None else dg.AssetCheckSeverity.ERROR,
        description=done.why,
        metadata=metadata,
    )
