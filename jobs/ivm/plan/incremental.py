"""The stages that a change makes compute all their rows again, and the check of REFRESH = 'incremental'."""

from __future__ import annotations

from jobs.model.errors import InvalidQuery
from jobs.model.stage import AnalyticStage, Plan, Stage
from state_store.wording import Name, sentence


def why_not(stage: Stage) -> str | None:
    """The reason why a change makes the stage compute all its rows again; None when it does not."""
    if isinstance(stage, AnalyticStage) and not stage.partition:
        return "OVER without PARTITION BY: all rows are one partition, and every change computes it again"
    return None


def check_incremental(made: Plan) -> None:
    """Check that a view can have REFRESH = 'incremental'.

    Raises:
        InvalidQuery: a stage is not maintained from changes alone; the message says why.
    """
    for stage in made.stages:
        reason = why_not(stage)
        if reason is not None:
            raise InvalidQuery(
                sentence("'{}' cannot be REFRESH = 'incremental': {}", Name(made.view), reason),
                hint="add PARTITION BY, or leave REFRESH out: the rows are the same",
            )
