"""One stage's rule for one engine: each of its texts is made once.

A text costs 0.5 to 7 ms to make (Nexmark's stages, both dialects): as much as a small epoch takes to compute.
It depends on the stage, the dialect and which inputs moved, on nothing that changes while a pipeline runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ivm.rules.maintenance import maintenance

if TYPE_CHECKING:
    from collections.abc import Collection

    from jobs.engines.engine import Dialect
    from jobs.model.stage import Stage


class StageRule:
    """The texts of a stage's rule. Whoever runs the stage for many epochs owns one.

    Two threads that ask at the same time may both make a text; it is the same text.
    """

    def __init__(self, stage: Stage, dialect: Dialect) -> None:
        self._stage = stage
        self._dialect: Dialect = dialect
        self._texts: dict[frozenset[str] | None, str] = {}

    def text(self, changed: Collection[str] | None = ()) -> str:
        """The text of an epoch in which those inputs moved, as `jobs.ivm.rules.maintenance` takes them."""
        moved = None if changed is None else frozenset(changed)
        if moved not in self._texts:
            self._texts[moved] = maintenance(self._stage, self._dialect, moved)
        return self._texts[moved]
