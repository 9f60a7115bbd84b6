"""WITHIN and GRACE PERIOD of a join of two streams: when it must stand, and the conditions on the events that it means.

    l JOIN r WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS

    r is at most 1 s before l and 2 s after it     rowtime of r BETWEEN rowtime of l - 1000 AND rowtime of l + 2000
    l is not too late                              stream time of l - rowtime of l <= 2000 + 3000
    r is not too late                              stream time of r - rowtime of r <= 1000 + 3000

An event is too late when the stream's time is past the last time it could join by more than the grace; without GRACE
PERIOD none is. It has no partner then; on the kept side of an outer join it is still a row, padded, as in ksqlDB.
Times are compared as milliseconds, which both engines have.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.model.definitions import Kind
from jobs.model.errors import InvalidQuery, NotSupported
from jobs.query.clauses.from_clause import Joined
from jobs.query.logical.inputs import Inputs, Part
from jobs.sql.dialect import position_of
from jobs.sql.time_clauses import milliseconds


def check_streams(joined: Joined, before: Inputs, kind: Kind | None) -> None:
    """Refuse what ksqlDB refuses of joins of streams, as far as it matters here too.

    Args:
        kind: of the statement; only CREATE STREAM must say WITHIN.

    Raises:
        InvalidQuery, NotSupported: with the place.
    """
    part = joined.part
    line, place = position_of(joined.node.this) if joined.node is not None else (None, None)
    left_streams = [each for each in before.parts if each.stream]
    if joined.within is not None and not (part.stream and left_streams):
        table = part if not part.stream else before.parts[0]
        raise InvalidQuery(
            f"WITHIN is for joins of two streams, and '{table.name}' is a table", line=line, column=place
        )
    timeless = next((each for each in (*left_streams, part) if not each.has_time), None)
    if joined.within is not None and timeless is not None:
        raise NotSupported(
            f"WITHIN compares times, and the rows of '{timeless.name}' have none",
            line=line,
            column=place,
            hint="join the streams that it is made of",
        )
    if kind != "stream":
        return
    if part.stream and left_streams and joined.within is None:
        raise InvalidQuery(
            f"the join of the streams '{left_streams[-1].name}' and '{part.name}' needs WITHIN",
            line=line,
            column=place,
            hint="JOIN … WITHIN 1 HOUR ON …: how far apart in time two events may be",
        )
    if part.stream and not left_streams:
        raise InvalidQuery(
            f"a stream joins a table, not the other way: FROM {part.name} JOIN {before.parts[0].name}",
            line=line,
            column=place,
        )


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
