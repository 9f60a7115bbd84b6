"""One drill at work: a copy in a scratch folder, the rehearsal on it, and what it came to."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.jobs.operate.drills.ground import DrillNotApplicable, Recovery, copied
from strandline.jobs.operate.drills.history import DrillResult
from strandline.jobs.operate.drills.scenarios import scenario
from strandline.state_store.errors import StrandlineError
from strandline.state_store.files import remove_left_behind
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.drills.plan import Drill
    from strandline.state_store.paths import LakePath


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
