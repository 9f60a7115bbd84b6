"""The errors that operators meet beside those of runs: what a backfill, an expectation or retention says of
a view's rows.

PipelineError
├── RangeInseparable          pipeline.range_inseparable   stop
├── EventsGone                pipeline.events_gone         restore
└── ExpectationBroken         pipeline.expectation_broken  stop
"""

from __future__ import annotations

from strandline.jobs.model.errors import PipelineError
from strandline.state_store.errors import Action


class RangeInseparable(PipelineError):
    """The rows of a range of time cannot be told from a view's other rows, so they cannot be computed by themselves.
    Nothing was changed. Stop: rebuild the whole view, or name another column."""

    code = "pipeline.range_inseparable"


class EventsGone(PipelineError):
    """Rows were to be computed anew from an event log of which retention has taken the beginning: they would lack what
    they hold of those events. Nothing was changed. Restore the view from a backup, or drop it and create it again, so
    that it begins with the events that are left."""

    code = "pipeline.events_gone"
    action = Action.RESTORE


class ExpectationBroken(PipelineError):
    """The rows of a table break a blocking expectation: the table is fresh, and what reads it stays where it was. Stop:
    correct the rows or the expectation; what waits goes on by itself."""

    code = "pipeline.expectation_broken"
