"""Drill: the driver is killed in the middle of an epoch: a child process, by SIGKILL, with its files written and the
log entry not. Another one is started, and must come to the same rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.operate.drills.point_in_time import taken_back
from strandline.jobs.operate.drills.refreshed import refreshed
from strandline.jobs.operate.drills.scenario import Recovery
from strandline.state_store.delta import log

if TYPE_CHECKING:
    from strandline.jobs.operate.drills.ground import Ground

_FAILPOINT: Final = "before-log-entry"
"""All files of the epoch are flushed, and no commit names them: the most that a kill can leave behind."""

_PATIENCE: Final = 300.0
"""Seconds after which a child is taken to hang."""

_SAID: Final = 300
"""Characters of a child's last words: an error with its hint."""


def rehearse(ground: Ground) -> Recovery:
    """Take the view back to a version, kill the process that brings it forward, start another.

    Raises:
        Unrehearsable: the view has but one version.
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
