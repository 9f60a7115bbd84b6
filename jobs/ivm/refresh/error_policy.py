"""A refresh under the view's ERRORS policy: what to do with a row on which an expression fails.

| policy | an epoch with a row that fails |
| --- | --- |
| `dead_letter` (default) | the row is left out and kept in the stage's dead letters; all others go on |
| `stop` | the view stops at its last commit, typed, and the others go on |
| `null` (default of ksqlDB's semantics) | the expression is NULL |

The dead letters are a table that is there from the first such row on. Its being there is what says that the stage runs
guarded, so nothing else has to be remembered, and a kill between the two commits is answered by the next refresh.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ivm.refresh.guarded_stage import guarded, null_instead, strict, strict_outputs
from jobs.model.errors import RowFailed
from jobs.model.view_options import ErrorPolicy
from state_store import reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.ivm.refresh.refresh import StageResult
    from jobs.model.stage import Stage
    from state_store.layout import Lake


def refresh_guarded(
    refresh: Callable[[Stage], StageResult], lake: Lake, stage: Stage, policy: ErrorPolicy, letters: str
) -> list[StageResult]:
    """Refresh a stage, and its dead letters when it has any.

    Args:
        refresh: `refresh_stage` with everything but the stage given.
        letters: the name of the table of its dead letters.

    Raises:
        RowFailed: a row fails under `stop`, or where it cannot be left out (a group's result, a sum).
    """
    if policy == "null":
        return [refresh(null_instead(stage))]
    sound, aside = guarded(stage, letters)
    if policy == "stop" or aside is None:
        return [refresh(strict(stage))]
    if reader.head(lake.table(aside.table)) is None:
        try:
            return [refresh(strict(stage))]
        except RowFailed:
            # The dead letters come first: while the stage stands behind them, it is refreshed guarded next time.
            pass
    return [refresh(aside), refresh(strict_outputs(sound))]
