"""The errors that operators meet beside those of runs: what a backfill or an expectation says of a view's rows.

PipelineError
├── RangeInseparable          pipeline.range_inseparable   stop
└── ExpectationBroken         pipeline.expectation_broken  stop
"""

from __future__ import annotations

from jobs.model.errors import PipelineError


class RangeInseparable(PipelineError):
    """The rows of a range of time cannot be told from a view's other rows, so they cannot be computed by themselves.
    Nothing was changed. Stop: rebuild the whole view, or name another column."""

    code = "pipeline.range_inseparable"


class ExpectationBroken(PipelineError):
    """The rows of a table break a blocking expectation: the table is fresh, and what reads it stays where it was. Stop:
    correct the rows or the expectation; what waits goes on by itself."""

    code = "pipeline.expectation_broken"
