"""The scenarios that are drilled, as data; the plan of drills, scenario × view; and one drill at work.

A drill at work is a copy in a scratch folder, the rehearsal on it, and what it came to.
"""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.model.forecast import UNKNOWN, Forecast, Forecasts
from strandline.jobs.operate.recovery import rehearsals
from strandline.jobs.operate.recovery.drill_history import DrillResult
from strandline.jobs.operate.recovery.ground import DrillNotApplicable, Recovery, Scenario, copied, drillable
from strandline.state_store.errors import StrandlineError
from strandline.state_store.files import remove_left_behind
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.settings import Settings
    from strandline.state_store.paths import LakePath


_REBUILT: Final = 60.0
"""Seconds for whatever reads all rows: the goal for ten million of them."""
_RESTARTED: Final = 20.0
"""Seconds from a killed driver to fresh rows, with the start of a JVM: the goal for it."""

SCENARIOS: Final = (
    Scenario(
        "changelog",
        "the table, rebuilt from its changelog to a version and to a time",
        _REBUILT,
        rehearsals.rehearse_from_changelog,
    ),
    Scenario(
        "recompute",
        "the trust in the rows: computed again from the event logs",
        _REBUILT,
        rehearsals.rehearse_recomputed,
    ),
    Scenario("local-state", "checkpoints and the replica's folder", _REBUILT, rehearsals.rehearse_local_state),
    Scenario(
        "killed-driver",
        "the driver, by SIGKILL in the middle of an epoch",
        _RESTARTED,
        rehearsals.rehearse_killed_driver,
    ),
    Scenario(
        "point-in-time",
        "the newest versions: taken back to a time, and caught up",
        _REBUILT,
        rehearsals.rehearse_point_in_time,
    ),
    Scenario("feed-gap", "a version of the change feed, where a reader stands", _REBUILT, rehearsals.rehearse_feed_gap),
    Scenario("backup", "the lake, restored from a backup", _REBUILT, rehearsals.rehearse_from_backup),
    Scenario("short-topic", "the topic behind the event log", _REBUILT, rehearsals.rehearse_short_topic),
)


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownName."""
    found = next((each for each in SCENARIOS if each.name == name), None)
    if found is None:
        raise UnknownName.among("scenario", name, [each.name for each in SCENARIOS])
    return found


def chosen(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of those names; without names all of them. Raises UnknownName."""
    return [scenario(name) for name in names] if names else [*SCENARIOS]


@dataclass(frozen=True)
class Drill:
    """One rehearsal.

    Attributes:
        scenario: its name.
        target_seconds: that the recovery may take.
        forecast: what all of it will take, with the copy.
    """

    scenario: str
    view: str
    target_seconds: float
    forecast: Forecast = UNKNOWN

    def as_json(self) -> dict[str, Any]:
        """The drill as values of JSON."""
        return asdict(self)


def with_forecasts(plan: Sequence[Drill], lake: LakeLayout) -> list[Drill]:
    """The drills of a plan, each with what it will take."""
    forecasts = Forecasts(lake)
    return [replace(each, forecast=forecasts.of(each.scenario, each.view)) for each in plan]


def plan_drills(
    settings: Settings, views: Sequence[str] = (), scenarios: Sequence[str] = (), target_seconds: float | None = None
) -> tuple[Drill, ...]:
    """The drills of some views.

    Args:
        views: names of views and keyed sources; default: all in the lake.
        scenarios: default: all there are.
        target_seconds: of every drill; default: each scenario's own.

    Raises:
        UnknownName: there is no such view or scenario.
    """
    catalog = Catalog(LakeLayout(settings.lake))
    known = drillable(catalog)
    for view in views:
        if view not in known:
            raise UnknownName.among("view or keyed table", view, map(catalog.name_map.of, known))
    return tuple(
        Drill(each.name, view, each.target_seconds if target_seconds is None else target_seconds)
        for view in views or known
        for each in chosen(scenarios)
    )


_PREFIX: Final = "strandline-drill-"


def run_drill(
    settings: Settings, drill: Drill, *, scratch: Path | None = None, backup: LakePath | None = None
) -> DrillResult:
    """Run one drill. The live lake is only read; the copy is removed at the end, after a kill by the next drill.

    Args:
        scratch: an existing folder for the copy; best on the lake's own disk, where files need no copying. Default:
            the system's temporary folder.
        backup: the backup that the scenario `backup` restores; default: one made of the copy.

    Raises:
        UnknownName: there is no such scenario or view.
    """
    began = time.monotonic()
    done = _rehearsed(settings, drill, scratch, backup)
    return replace(done, seconds=round(time.monotonic() - began, 3))


def _rehearsed(settings: Settings, drill: Drill, scratch: Path | None, backup: LakePath | None) -> DrillResult:
    at = time.time_ns() // 1_000_000
    rehearse = scenario(drill.scenario).rehearse
    where = scratch or Path(tempfile.gettempdir())
    remove_left_behind(where, _PREFIX)
    with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{os.getpid()}-", dir=where) as folder:
        try:
            return _judged(drill, at, rehearse(copied(settings, drill.view, Path(folder), backup)))
        except DrillNotApplicable as reason:
            return DrillResult(
                drill.scenario, drill.view, at, None, 0, 0, 0, None, drill.target_seconds, None, str(reason)
            )
        except StrandlineError as error:
            return _failed(drill, at, sentence("[{}] {}", error.code, error.message))


def _judged(drill: Drill, at: int, done: Recovery) -> DrillResult:
    late = done.seconds > drill.target_seconds
    why = done.fault or (f"took {done.seconds:.1f} s, the target is {drill.target_seconds:g} s" if late else done.what)
    return DrillResult(
        drill=drill.scenario,
        view=drill.view,
        at=at,
        rto_seconds=round(done.seconds, 3),
        rpo_versions=done.lost_versions,
        rpo_rows=done.lost_rows,
        rows=done.rows,
        digest_equal=not done.fault,
        target_seconds=drill.target_seconds,
        passed=not done.fault and not late,
        why=why,
    )


def _failed(drill: Drill, at: int, why: str) -> DrillResult:
    return DrillResult(drill.scenario, drill.view, at, None, 0, 0, 0, False, drill.target_seconds, False, why)
