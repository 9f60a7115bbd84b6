"""The steps of an operation that may take minutes: what it tells whoever waits for it.

begin ── micro_batch ── micro_batch ── … ──> done ──> begin of the next
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from strandline.jobs.model.report import MicroBatch


class Steps(Protocol):
    """Told of each step of an operation."""

    def begin(self, what: str, rows: int = 0) -> None:
        """A step begins, and with it the one before has ended.

        Args:
            what: it does, in words: `computing 'by_shop'`.
            rows: that it reads; 0: it is not known, or none.
        """

    def micro_batch(self, batch: MicroBatch) -> None:
        """A part of the events of the step is in."""

    def done(self, what: str) -> None:
        """The step has ended with this, in words."""


class _Unwatched:
    """Tells nobody."""

    def begin(self, what: str, rows: int = 0) -> None:
        """Nothing is told."""

    def micro_batch(self, batch: MicroBatch) -> None:
        """Nothing is told."""

    def done(self, what: str) -> None:
        """Nothing is told."""


UNWATCHED: Final[Steps] = _Unwatched()
"""The steps of an operation that nobody waits for."""
