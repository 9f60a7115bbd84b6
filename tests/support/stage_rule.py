"""One stage's rule for DuckDB: each of its texts is made once.

A text costs 0.5 to 7 ms to make (Nexmark's stages): as much as a small epoch takes to compute. It depends on the stage
and on which inputs moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ivm.rules.maintenance import maintenance

if TYPE_CHECKING:
    from collections.abc import Collection

    from jobs.model.stage import Stage


class StageRule:
    """The texts of a stage's rule. Whoever runs the stage for many epochs owns one."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._texts: dict[frozenset[str] | None, str] = {}

    def text(self, changed: Collection[str] | None) -> str:
        """The text of an epoch in which those inputs moved; None: of all rows."""
        moved = None if changed is None else frozenset(changed)
        if moved not in self._texts:
            self._texts[moved] = maintenance(self._stage, "duckdb", moved)
        return self._texts[moved]
