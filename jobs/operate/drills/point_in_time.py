"""Drill: the table is taken back to what it was at a time, as a restore from yesterday does, and catches up."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.jobs.operate.drills.refreshed import refreshed
from strandline.jobs.operate.drills.rollback import midway, readable, rolled_back
from strandline.jobs.operate.drills.scenario import Recovery
from strandline.jobs.operate.verify.reach import reach
from strandline.state_store.errors import VersionGone

if TYPE_CHECKING:
    from strandline.jobs.operate.drills.ground import Ground
    from strandline.state_store.delta.log import Commit


def rehearse(ground: Ground) -> Recovery:
    """Take the view back, and refresh it from the vector that it had then.

    Raises:
        Unrehearsable: the view has but one version.
        Others: as `refreshed`; an input no longer has the changes since, or has them broken.
    """
    refreshed(ground.settings, ground.view, ground.catalog)
    expected = ground.rows()
    then = taken_back(ground)
    began = time.monotonic()
    refreshed(ground.settings, ground.view, ground.catalog)
    fault = ground.differing(expected)
    what = f"taken back to version {then.version}, caught up from the vector in its record"
    return Recovery(time.monotonic() - began, expected.num_rows, what, fault)


def taken_back(ground: Ground) -> Commit:
    """Take the view's table back to the middle of its readable history: the commit that is its head now.

    Raises:
        Unrehearsable: it has but one version.
        VersionGone: its history has a gap.
    """
    table = ground.table()
    start = reach(table)
    if start.fault is not None:
        raise VersionGone(start.fault.what, where=start.fault.where)
    commits = readable(ground.path, start.version)
    if any(each.record.gone for each in ground.tables()):
        # Before its first refresh it is a new view: it would be computed from the events that retention has left.
        commits = [each for each in commits if each.record is not None and each.record.vector]
    then = midway(commits)
    rolled_back(ground.path, then.version)
    return then
