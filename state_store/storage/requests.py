"""The requests of this process to object stores, counted by verb and outcome.

Of the process, not of a storage: a path that travels to another process opens a storage of its own there, and one run
has many. What obstore tries again by itself counts once, a listing too, however many pages it has; what
the JVM asks for counts nowhere.
"""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Final

Requests = Counter[tuple[str, str]]
"""{(verb, outcome): how many}. The verbs are get, head, put, delete and list; the outcome is `ok`, or the code of an
error, such as `store.storage_unavailable`."""


class RequestTally:
    """Counts requests. Any thread may count."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Requests = Counter()

    def count(self, verb: str, outcome: str) -> None:
        """A request was answered, or failed."""
        with self._lock:
            self._counts[verb, outcome] += 1

    def so_far(self) -> Requests:
        """All that were counted since the process began."""
        with self._lock:
            return self._counts.copy()

    def since(self, before: Requests) -> Requests:
        """Those that were counted after `before` was taken."""
        return self.so_far() - before


REQUESTS: Final = RequestTally()
