"""Checks of a view's plan against its options: REFRESH = 'incremental', and ERRORS beside STATE = 'shared'."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.model import tables
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.stage import AnalyticStage, Plan, Stage
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.model.options import ErrorPolicy


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


def check_errors(made: Plan, errors: ErrorPolicy) -> None:
    """Check that what a view says of rows that fail holds in the stages that it shares, which have dead letters.

    Raises:
        NotSupported: a row can fail in one of them, and the view says something else of such rows.
    """
    if errors == "dead_letter":
        return
    for stage in made.stages:
        if tables.is_shared(stage.table) and guarded(stage, "").aside is not None:
            raise NotSupported(
                sentence(
                    "'{}' has ERRORS = '{}', and a row can fail in a stage that it shares", Name(made.view), errors
                ),
                hint="a shared stage keeps such rows in dead letters: leave STATE = 'shared' out, or ERRORS",
            )
