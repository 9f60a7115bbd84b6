"""The view's ERRORS policy: which stages a refresh runs, and which instead when a row fails.

| policy | an epoch with a row that fails |
| --- | --- |
| `dead_letter` (default) | the row is left out and kept in the stage's dead letters; all others go on |
| `stop` | the view stops at its last commit, typed, and the others go on |
| `null` (default of ksqlDB's semantics) | the expression is NULL |

The dead letters are a table that is there from the first such row on. Its being there is what says that the stage runs
guarded, so nothing else has to be remembered, and a kill between the two commits is answered by the next refresh.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.ivm.refresh.guarded_stage import guarded, null_instead, strict, strict_outputs

if TYPE_CHECKING:
    from jobs.ivm.refresh.context import Heads
    from jobs.model.stage import Stage
    from jobs.model.view_options import ErrorPolicy


@dataclass(frozen=True)
class Decision:
    """The stages that a refresh runs.

    Attributes:
        stages: in order.
        instead: what to refresh in their place when a row fails (RowFailed); None: the view stops.
    """

    stages: tuple[Stage, ...]
    instead: tuple[Stage, ...] | None = None


def decide(stage: Stage, policy: ErrorPolicy, letters: str, heads: Heads) -> Decision:
    """The stages that stand for `stage` under the policy.

    Args:
        letters: the name of the table of its dead letters.
    """
    if policy == "null":
        return Decision((null_instead(stage),))
    sound, aside = guarded(stage, letters)
    if policy == "stop" or aside is None:
        return Decision((strict(stage),))
    # The dead letters come first: while the stage stands behind them, it is refreshed guarded next time.
    both = (aside, strict_outputs(sound))
    if heads.find(aside.table) is None:
        return Decision((strict(stage),), instead=both)
    return Decision(both)
