"""Spark sessions for refreshes: one for each that runs, used again by the next.

A refresh names its inputs by temporary views, and several run side by side, so each needs a session of its own. A new
one costs Spark a catalog, an analyzer and a function registry, and is held for a while by what it persisted: a run of
days that opened one for each epoch filled its heap.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession


class SparkSessions:
    """The sessions of one JVM, of which each is lent to one refresh at a time.

    Args:
        first: gives the session that the others are opened beside; it starts the JVM when it must.
    """

    def __init__(self, first: Callable[[], SparkSession]) -> None:
        self._first = first
        # Appending and popping are atomic, and that is all that threads do with it.
        self._free: deque[SparkSession] = deque()

    @contextmanager
    def lent(self) -> Iterator[SparkSession]:
        """A session that nobody else uses meanwhile. One in which something failed is not used again."""
        try:
            session = self._free.pop()
        except IndexError:
            session = self._first().newSession()
        yield session
        self._free.append(session)
