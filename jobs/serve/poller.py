"""Base of background pollers: a thread that looks when it is woken, and every few seconds."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from threading import Event, Thread
from typing import Final

logger = logging.getLogger("strandline")

LOOK_SECONDS: Final = 5.0
"""After an error, and where no notification comes: as often as the watch sweeps."""


class Poller(ABC):
    """Base of background pollers; call `begin()` last in `__init__`. Any thread may call the rest.

    Args:
        pause: seconds after a look in which there is no other: news that come meanwhile wait for the next one.
    """

    def __init__(self, name: str, pause: float = 0.0) -> None:
        self._pause = pause
        self._wake, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def look(self) -> bool:
        """Look, in the thread; False ends it. An error that it raises is a fault of ours: it is logged, and it looks
        again."""

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """There may be news."""
        self._wake.set()

    def stop(self) -> None:
        """Let the thread end after the look that it is at."""
        self._stop.set()
        self._wake.set()

    def close(self) -> None:
        """End the thread, and wait for its end."""
        self.stop()
        self._thread.join()

    @property
    def ended(self) -> bool:
        """True once the thread has ended."""
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wake.clear()
            try:
                if not self.look():
                    return
            except Exception:
                logger.exception("'%s' stands still", self._thread.name)
            self._stop.wait(self._pause)
            self._wake.wait(LOOK_SECONDS)
