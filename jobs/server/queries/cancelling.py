"""The end of a query that its client does not want any more: from another thread, in the middle of it."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from strandline.jobs.serve.errors import Cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Cancelling:
    """One query that may be cancelled, before it runs or while it does."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._end: Callable[[], None] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        """End the query. It may have its answer already."""
        with self._lock:
            self.cancelled = True
            if self._end is not None:
                self._end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """Inside the block, a cancellation calls `end`.

        Raises:
            Cancelled: it was cancelled before or inside; whatever the block raises for that.
        """
        with self._lock:
            if self.cancelled:
                raise _cancelled()
            self._end = end
        try:
            yield
        except (EOFError, OSError) as error:
            if self.cancelled:
                raise _cancelled() from error
            raise
        finally:
            with self._lock:
                self._end = None
        if self.cancelled:
            raise _cancelled()


def _cancelled() -> Cancelled:
    return Cancelled("the query was cancelled", hint="its client asked for that")
