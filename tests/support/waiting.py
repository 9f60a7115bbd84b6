"""Waiting for what another thread or process does, with a limit that only a fault reaches.

A machine that tests run on may stand still for seconds, be several times slower than this one, or have other work: no
test may count on how soon something comes. A wait that succeeds costs nothing, whatever its limit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PATIENCE_SECONDS: Final = 300.0
"""The limit of every wait, also for the end of a command with its JVM: that takes 20 s on two idle cores, and was seen
to take 150 on busy ones."""
_POLL_SECONDS: Final = 0.01


def wait_until(condition: Callable[[], object], what: str | Callable[[], object], poll: float = _POLL_SECONDS) -> None:
    """Return as soon as the condition holds.

    Args:
        what: the words of the failure, or what gives them when it is time: what was seen instead.
        poll: seconds between two looks.

    Raises:
        AssertionError: it does not hold in time.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() >= deadline:
            raise AssertionError(what if isinstance(what, str) else what())
        time.sleep(poll)
