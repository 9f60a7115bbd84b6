"""Waiting for what another thread or process does, with a limit that only a fault reaches."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_SECONDS = 60.0
"""On a machine with other work."""
_POLL_SECONDS = 0.01


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Return as soon as the condition holds; fail with `what` when it does not in time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(_POLL_SECONDS)
