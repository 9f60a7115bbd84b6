"""The view's ERRORS policy: which stages a refresh runs, and which instead when a row fails.

| policy | an epoch with a row that fails |
| --- | --- |
| `dead_letter` (default) | the row is left out and kept in the stage's dead letters; all others go on |
| `stop` | the view stops at its last commit, typed, and the others go on |
| `null` (default of ksqlDB's semantics) | the expression is NULL |

The dead letters are a table that is there from the first such row on; also with `stop`, where they say which rows are
to be corrected. Its being there is what says that the stage runs guarded, so nothing else has to be remembered, and a
kill between the two commits is answered by the next refresh.

While there is none, an epoch has an error on a row that fails. An engine may raise it for a row that no join takes in
the end; so the dead letters, not the error, decide whether there is such a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh.guarded_stage import checked, guarded, null_instead

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.model.options import ErrorPolicy
    from strandline.jobs.model.stage import MapStage, Stage


@dataclass(frozen=True)
class Decision:
    """The stages that a refresh runs.

    Attributes:
        sound: the stage in the form that is run.
        aside: the stage of its dead letters, which comes before it; None: it runs without.
        instead: what to refresh in place of it when a row fails (RowFailed); None: the view stops.
        stops: a row among the dead letters stops the view.
    """

    sound: Stage
    aside: MapStage | None = None
    instead: Decision | None = None
    stops: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages that may be run, in order."""
        first = () if self.aside is None else (self.aside,)
        return (*first, self.sound, *(self.instead.stages if self.instead is not None else ()))


def decide(stage: Stage, policy: ErrorPolicy, letters: str, heads: Heads) -> Decision:
    """The stages that stand for `stage` under the policy.

    Args:
        letters: the name of the table of its dead letters.
    """
    if policy == "null":
        return Decision(null_instead(stage))
    found = guarded(stage, letters)
    if found.aside is None:
        return Decision(checked(stage))
    both = Decision(found.sound, found.aside, stops=policy == "stop")
    # The dead letters come first: while the stage stands behind them, it is refreshed guarded next time.
    if found.always or heads.find(letters) is not None:
        return both
    return Decision(checked(stage), instead=both)
