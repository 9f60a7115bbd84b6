"""Failpoints: named places where a test kills the process, at the pass `STRANDLINE_FAILPOINT=name:hit`.

A kill at a named place is repeatable, a kill at a random moment is not. Without the variable a failpoint does
nothing. The names in use are found with `grep -r "failpoint("`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from threading import Lock

_VARIABLE = "STRANDLINE_FAILPOINT"
# Counted per process, since a kill ends the process.
_passes: Counter[str] = Counter()
_lock = Lock()


def failpoint(name: str) -> None:
    """Kill this process (SIGKILL: no handler, no cleanup) if this is the pass that the environment names.

    Args:
        name: a step that comes next or is done, such as `before-log-commit`.
    """
    wanted, _, hit = os.environ.get(_VARIABLE, "").partition(":")
    if wanted != name:
        return
    with _lock:
        _passes[name] += 1
        passes = _passes[name]
    if passes == int(hit or 1):
        os.kill(os.getpid(), signal.SIGKILL)
