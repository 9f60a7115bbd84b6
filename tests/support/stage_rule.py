"""One stage's rule for DuckDB: each of its texts is made once.

Each is proven to say every condition of its stage, so whatever runs stages proves it of theirs.

A text costs 0.5 to 7 ms to make (Nexmark's stages): as much as a small epoch takes to compute. It depends on the stage
and on which inputs moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.rules.maintenance import check_written, maintenance

if TYPE_CHECKING:
    from collections.abc import Collection

    from strandline.jobs.model.stage import Stage


class StageRule:
    """The texts of a stage's rule. Whoever runs the stage for many epochs owns one."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._texts: dict[frozenset[str] | None, str] = {}

    def text(self, changed: Collection[str] | None) -> str:
        """The text of an epoch in which those inputs moved; None: of all rows."""
        moved = None if changed is None else frozenset(changed)
        if moved not in self._texts:
            text = maintenance(self._stage, "duckdb", moved)
            check_written(self._stage.table, self._stage, text, engine_of("duckdb"))
            self._texts[moved] = text
        return self._texts[moved]
