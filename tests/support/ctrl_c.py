"""Children that hear Ctrl-C, also of a test run that a shell started in the background."""

from __future__ import annotations

import signal


def hears_ctrl_c() -> None:
    """To be called in a child before its program starts: what a shell starts in the background ignores SIGINT, and
    every child would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
