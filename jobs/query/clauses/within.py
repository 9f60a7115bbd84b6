"""WITHIN and GRACE PERIOD of a join of two streams: when it must stand, and the conditions on the events that it means.

    l JOIN r WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS

    r is at most 1 s before l and 2 s after it     rowtime of r BETWEEN rowtime of l - 1000 AND rowtime of l + 2000
    r is still kept when l comes                   stream time of l - rowtime of r < 1000 + 2000 + 3000
    l is still kept when r comes                   stream time of r - rowtime of l < 1000 + 2000 + 3000

An event is kept for its partners until the stream's time is past it by the length of the window and the grace, as Kafka
Streams keeps it; without GRACE PERIOD it is kept for ever. Which stream was ahead when an event came is not known, so
each event's own stream stands for both. An event that finds no partner is still a row on the kept side of an outer
join, padded. Times are compared as milliseconds, which both engines have.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.definitions import Kind
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.query.clauses.from_clause import Joined
from strandline.jobs.query.logical.inputs import Inputs, Part
from strandline.jobs.sql.dialect import position_of, quote
from strandline.jobs.sql.time_clauses import milliseconds
from strandline.state_store.wording import Name, sentence


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
            sentence("WITHIN is for joins of two streams, and '{}' is a table", Name(table.name)),
            line=line,
            column=place,
        )
    timeless = next((each for each in (*left_streams, part) if not each.has_time), None)
    if joined.within is not None and timeless is not None:
        raise NotSupported(
            sentence("WITHIN compares times, and the rows of '{}' have none", Name(timeless.name)),
            line=line,
            column=place,
            hint="join the streams that it is made of",
        )
    if kind != "stream":
        return
    if part.stream and left_streams and joined.within is None:
        raise InvalidQuery(
            sentence(
                "the join of the streams '{}' and '{}' needs WITHIN", Name(left_streams[-1].name), Name(part.name)
            ),
            line=line,
            column=place,
            hint="JOIN … WITHIN 1 HOUR ON …: how far apart in time two events may be",
        )
    if part.stream and not left_streams:
        raise InvalidQuery(
            sentence(
                "a stream joins a table, not the other way: FROM {} JOIN {}",
                Name(part.name, quote),
                Name(before.parts[0].name, quote),
            ),
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


def kept_events(node: exp.Expr, part: Part, before: Inputs) -> list[exp.Expression]:
    """The conditions that each side's event is still kept when the other comes; none without GRACE PERIOD."""
    grace = milliseconds(node, "grace")
    left, left_clock = before.time(), before.time("_stream_time")
    if grace is None or left is None or left_clock is None or part.type_of("_stream_time") is None:
        return []
    length = (milliseconds(node, "before") or 0) + (milliseconds(node, "after") or 0) + grace
    ages = ((left_clock, part.column("_timestamp")), (part.column("_stream_time"), left))
    return [
        exp.LT(this=exp.Sub(this=_milliseconds(clock), expression=_milliseconds(time)), expression=_number(length))
        for clock, time in ages
    ]


def _milliseconds(time: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time])


def _number(value: int | None) -> exp.Expression:
    return exp.Literal.number(value or 0)
