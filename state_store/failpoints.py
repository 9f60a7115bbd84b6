"""Places where a test can kill the process: `STRANDLINE_FAILPOINT=name:hit` ends it with SIGKILL at that pass.

A kill at a named place is repeatable, a kill at a random moment is not. Without the variable a failpoint does
nothing. The names in use are found with `grep -r "failpoint("`.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from threading import Lock

_VARIABLE = "STRANDLINE_FAILPOINT"
# Counted per process: that is what a kill ends.
_passes: Counter[str] = Counter()
_lock = Lock()


def failpoint(name: str) -> None:
    """Die here (SIGKILL: no handler, no cleanup) when this is the pass that the environment asks for.

    Args:
        name: what is about to happen or has just happened: `before-log-commit`.
    """
    wanted, _, hit = os.environ.get(_VARIABLE, "").partition(":")
    if wanted != name:
        return
    with _lock:
        _passes[name] += 1
        passes = _passes[name]
    if passes == int(hit or 1):
        os.kill(os.getpid(), signal.SIGKILL)
