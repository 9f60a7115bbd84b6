"""WITHIN and GRACE PERIOD of a join of two streams, as conditions on the events' own columns.

    l JOIN r WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS

    r is at most 1 s before l and 2 s after it     rowtime of r BETWEEN rowtime of l - 1000 AND rowtime of l + 2000
    l is not too late                              stream time of l - rowtime of l <= 2000 + 3000
    r is not too late                              stream time of r - rowtime of r <= 1000 + 3000

An event is too late when the stream's time is past the last time it could join by more than the grace; without GRACE
PERIOD none is. Times are compared as milliseconds, which both engines have.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.query.clauses.inputs import Inputs, Part
from jobs.sql.time_clauses import milliseconds


def within_condition(node: exp.Expr, part: Part, before: Inputs) -> exp.Expression:
    """The condition on the time between an event of `part` and one of the streams before it; both sides have times."""
    time = before.time()
    assert time is not None
    right = _milliseconds(part.column("_timestamp"))
    low = exp.Sub(this=_milliseconds(time.copy()), expression=_number(milliseconds(node, "before")))
    high = exp.Add(this=_milliseconds(time.copy()), expression=_number(milliseconds(node, "after")))
    return exp.Between(this=right, low=low, high=high)


def late_rows(node: exp.Expr, part: Part, before: Inputs) -> list[exp.Expression]:
    """The conditions that keep out late events, of both sides; none without GRACE PERIOD."""
    grace = milliseconds(node, "grace")
    if grace is None:
        return []
    limits = [(each, milliseconds(node, "after")) for each in before.parts if each.stream]
    limits.append((part, milliseconds(node, "before")))
    return [
        exp.LTE(
            this=exp.Sub(
                this=_milliseconds(each.column("_stream_time")), expression=_milliseconds(each.column("_timestamp"))
            ),
            expression=_number((length or 0) + grace),
        )
        for each, length in limits
        if each.type_of("_stream_time") is not None
    ]


def _milliseconds(time: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time])


def _number(value: int | None) -> exp.Expression:
    return exp.Literal.number(value or 0)
