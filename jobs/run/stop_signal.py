"""The stop of a continuous run: SIGTERM asks for it, the run ends after the micro-batch at work."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def stopped_by_signal() -> Iterator[Event]:
    """An event that SIGTERM sets. Only for the main thread of a process."""
    stop = Event()
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    try:
        yield stop
    finally:
        signal.signal(signal.SIGTERM, before)
