"""Ends a child process when the process that started it is gone.

The parent keeps the writing end of a pipe and never writes. Whatever ends the parent, also SIGKILL, closes that end;
the child then reads end-of-file. A drain without a parent would hold the writer's lock unseen.
"""

from __future__ import annotations

import os
import signal
from threading import Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

LIFELINE_FD = "STRANDLINE_LIFELINE_FD"
"""Environment variable that holds the number of the inherited reading end."""


def hold_lifeline(on_lost: Callable[[], None] | None = None) -> bool:
    """Watch the parent from a background thread, if it gave us a lifeline.

    Args:
        on_lost: what to do when the parent is gone; by default this process's whole group is killed, the JVM with
            it. That is safe at any point: an epoch is one atomic commit, and the next run resumes from it.

    Returns:
        False when this process was not started with a lifeline (by hand, from a script).
    """
    number = os.environ.pop(LIFELINE_FD, None)
    if number is None:
        return False
    descriptor = int(number)
    os.set_inheritable(descriptor, False)
    Thread(target=_watch, args=(descriptor, on_lost or _kill_group), name="lifeline", daemon=True).start()
    return True


def _watch(descriptor: int, on_lost: Callable[[], None]) -> None:
    while os.read(descriptor, 1):
        pass
    on_lost()


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)
