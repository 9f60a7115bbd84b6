"""Drills of recoveries: back to a time, rows computed again that are not believed, a driver that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.operate.drills.ground import DrillNotApplicable, Recovery, midway, readable, refreshed, rolled_back
from strandline.jobs.operate.verify.files import check_digest
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.operate.verify.reach import reach
from strandline.jobs.operate.verify.recompute import check_recompute, has_sql
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import VersionGone
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.operate.drills.ground import Ground
    from strandline.state_store.delta.log import Commit


# Drill: the table is taken back to what it was at a time, as a restore from yesterday does, and catches up.


def rehearse_point_in_time(ground: Ground) -> Recovery:
    """Take the view back, and refresh it from the vector that it had then.

    Raises:
        DrillNotApplicable: the view has but one version.
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
        DrillNotApplicable: it has but one version.
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


# Drill: the rows are not believed, and computed again from the event logs by none of the rules that maintain them.
#
# Every table between the view and its event logs is compared with its SQL over its own inputs, so by induction the
# view equals its SQL over the event logs.


def rehearse_recomputed(ground: Ground) -> Recovery:
    """Compute the view, and all that it reads, again.

    Raises:
        DrillNotApplicable: the view's SQL cannot be run again.
        CorruptState, VersionGone: an input does not read.
    """
    began = time.monotonic()
    checked = 0
    fault = unread = ""
    for table in ground.tables():
        outcome = check_digest(table, reader.digest_of_rows(table.path, table.snapshot))
        if outcome.ok and has_sql(table.subject, ground.catalog):
            outcome = check_recompute(table, ground.catalog, ground.lake, ground.library)
            checked += 1
        if outcome.ok is None and table.subject.table == ground.view:
            unread = outcome.what
        if outcome.ok is False:
            fault = fault or sentence("'{}': {}", Name(table.subject.table), outcome.what)
    if unread and not fault:
        raise DrillNotApplicable(unread)
    rows = ground.table().record.rows
    return Recovery(time.monotonic() - began, rows, f"{counted(checked, 'table')} computed again by its SQL", fault)


# Drill: the driver is killed in the middle of an epoch: a child process, by SIGKILL, with its files written and the
# log entry not. Another one is started, and must come to the same rows.

_FAILPOINT: Final = "before-log-entry"
"""All files of the epoch are flushed, and no commit names them: the most that a kill can leave behind."""

_PATIENCE: Final = 300.0
"""Seconds after which a child is taken to hang."""

_SAID: Final = 300
"""Characters of a child's last words: an error with its hint."""


def rehearse_killed_driver(ground: Ground) -> Recovery:
    """Take the view back to a version, kill the process that brings it forward, start another.

    Raises:
        DrillNotApplicable: the view has but one version.
        RefreshFailed: the first process was not killed, or the second one failed.
        Others: as `refreshed`.
    """
    refreshed(ground.settings, ground.view, ground.catalog)
    expected = ground.rows()
    then = taken_back(ground).version
    killed = _child(ground, f"{_FAILPOINT}:1")
    if killed.returncode != -signal.SIGKILL:
        raise RefreshFailed(f"the driver was not killed, but ended: {_last_words(killed)}", where=ground.view)
    half = log.newest_version(ground.path)
    began = time.monotonic()
    again = _child(ground, "")
    seconds = time.monotonic() - began
    if again.returncode != 0:
        raise RefreshFailed(f"the second driver failed: {_last_words(again)}", where=ground.view)
    fault = ground.differing(expected)
    if half != then:
        fault = f"the killed epoch left version {half}, where {then} was the head"
    return Recovery(seconds, expected.num_rows, f"killed in the epoch after version {then}, started again", fault)


def _last_words(child: subprocess.CompletedProcess[str]) -> str:
    return child.stderr.strip()[-_SAID:] or f"exit code {child.returncode}"


def _child(ground: Ground, failpoint: str) -> subprocess.CompletedProcess[str]:
    settings = ground.settings
    environment = {
        **os.environ,
        "STRANDLINE_LAKE": str(settings.lake),
        "STRANDLINE_FUNCTIONS__MODULES": json.dumps(settings.functions.modules),
        "STRANDLINE_KERNEL_MEMORY_MB": str(settings.kernel_memory_mb),
        "STRANDLINE_FAILPOINT": failpoint,
    }
    command = [sys.executable, "-m", "strandline.jobs.operate.drills.child", ground.view]
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise RefreshFailed(f"a driver did not end within {_PATIENCE:g} s", where=ground.view) from error
