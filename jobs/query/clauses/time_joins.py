"""Joins by time: WITHIN and GRACE PERIOD of two streams, FOR SYSTEM_TIME AS OF, and ASOF JOIN."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.scalars.contract import total
from strandline.jobs.model.definitions import Kind, Source, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.stage import AnalyticCall
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import BIGINT
from strandline.jobs.query.clauses.from_clause import ASOF, Context, Joined
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import FromItem, Inputs, aliases
from strandline.jobs.query.logical import Block, From, grows_by_groups, identity
from strandline.jobs.sql.dialect import position_of, quote, sql_of
from strandline.jobs.sql.time_clauses import milliseconds
from strandline.jobs.sql.trees import call, conjuncts
from strandline.state_store.wording import Name, sentence

# WITHIN and GRACE PERIOD of a join of two streams: when it must stand, and the conditions on the events that it means.
#
#     l JOIN r WITHIN (1 SECOND, 2 SECONDS) GRACE PERIOD 3 SECONDS
#
#     r is at most 1 s before l and 2 s after it     rowtime of r BETWEEN rowtime of l - 1000 AND rowtime of l + 2000
#     r is still kept when l comes                   stream time of l - rowtime of r < 1000 + 2000 + 3000
#     l is still kept when r comes                   stream time of r - rowtime of l < 1000 + 2000 + 3000
#
# An event is kept for its partners until the stream's time is past it by the length of the window and the grace, as
# Kafka Streams keeps it; without GRACE PERIOD it is kept for ever. Which stream was ahead when an event came is not
# known, so each event's own stream stands for both. An event that finds no partner is still a row on the kept side of
# an outer join, padded. Times are compared as milliseconds, which both engines have.


def check_streams(joined: Joined, before: Inputs, kind: Kind | None) -> None:
    """Refuse the joins of streams that ksqlDB refuses, as far as the reasons hold here.

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


def within_condition(node: exp.Expr, part: FromItem, before: Inputs) -> exp.Expression:
    """Condition on the time between an event of `part` and one of the streams before it; both sides have times."""
    time = before.time()
    assert time is not None
    right = _milliseconds(part.column("_timestamp"))
    low = exp.Sub(this=_milliseconds(time.copy()), expression=_number(milliseconds(node, "before")))
    high = exp.Add(this=_milliseconds(time.copy()), expression=_number(milliseconds(node, "after")))
    return exp.Between(this=right, low=total(low), high=total(high))


def kept_events(node: exp.Expr, part: FromItem, before: Inputs) -> list[exp.Expression]:
    """Conditions that each side's event is still kept when the other arrives; none without GRACE PERIOD."""
    grace = milliseconds(node, "grace")
    left, left_clock = before.time(), before.time("_stream_time")
    if grace is None or left is None or left_clock is None or part.type_of("_stream_time") is None:
        return []
    length = (milliseconds(node, "before") or 0) + (milliseconds(node, "after") or 0) + grace
    ages = ((left_clock, part.column("_timestamp")), (part.column("_stream_time"), left))
    return [
        exp.LT(
            this=total(exp.Sub(this=_milliseconds(clock), expression=_milliseconds(time))), expression=_number(length)
        )
        for clock, time in ages
    ]


def _milliseconds(time: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time])


def _number(value: int | None) -> exp.Expression:
    return exp.Literal.number(value or 0)


# FOR SYSTEM_TIME AS OF: the time as of which an event looks up the row of a table that it joins.
#
#     FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ROWTIME r ON o.currency = r.currency
#
#     AS OF o.ROWTIME        the row that was the newest of its key at the event's time, out of the table's event log
#     AS OF o.at             the same, where TIMESTAMP = 'at' says that the column is the event's time
#     AS OF PROCTIME()       the row that is there when the event is taken in
#
# An event is joined once: what happens to the table afterwards changes no row (Flink's temporal join, RisingWave's
# process-time temporal join, ksqlDB's join of a stream with a table). What has to read its inputs again, such as a
# session or a window function, would find other rows of the table than the event did; so the rows of such a join are
# stored as they are, and another view groups them.

LookupTime = Literal["event", "arrival"]
"""The time as of which a row is looked up: the event's own, or that of its arrival (PROCTIME)."""

_CLAUSE = "FOR SYSTEM_TIME AS OF"
_PROCTIME = call("PROCTIME")


def lookup_time(joined: Joined, before: Inputs, catalog: Catalog) -> LookupTime | None:
    """Read the time that FOR SYSTEM_TIME AS OF names; None without the clause.

    Raises:
        InvalidQuery: no event joins a table by ON, or the time is not that of the first input's events.
        NotSupported: a view is joined as of the events' time.
        UnknownName: the time is a column that is not there.
    """
    clause = joined.system_time
    if clause is None:
        return None
    part, node = joined.part, joined.node
    assert node is not None
    if part.stream or not isinstance(part.source, Relation):
        raise _invalid(clause, sentence("{} is for tables, and '{}' is none", _CLAUSE, Name(part.name)), "leave it out")
    if node.method == ASOF or not (node.args.get("on") or node.args.get("using")):
        raise _invalid(clause, f"{_CLAUSE} needs a JOIN with ON", "JOIN table FOR SYSTEM_TIME AS OF … ON …")
    events = before.parts[0]
    if not _is_stream(events):
        raise _invalid(
            clause,
            sentence("events look up a table, and the first of FROM, '{}', is no stream", Name(events.name)),
            "FROM stream JOIN table FOR SYSTEM_TIME AS OF stream.ROWTIME ON …",
        )
    if clause.text("kind") == "AS OF" and clause.name == "TIMESTAMP":
        if clause.expression == _PROCTIME:
            return "arrival"
        if _is_event_time(clause.expression, before, catalog):
            return _as_of_event(part, clause)
    raise _invalid(
        clause,
        sentence(
            "a table is looked up as of the events of '{}' or their arrival, not {}", Name(events.name), sql_of(clause)
        ),
        f"FOR SYSTEM_TIME AS OF {events.alias}.ROWTIME, or PROCTIME()",
    )


def lookups_only(select: exp.Select, block: Block, context: Context) -> Block:
    """Check that nothing in a block with FOR SYSTEM_TIME AS OF would look its rows up a second time.

    Raises:
        NotSupported: the SELECT groups, numbers or joins what changes, or a query around it reads it.
    """
    clauses = [join.this.args.get("version") for join in select.args.get("joins") or ()]
    clause = next((each for each in clauses if each is not None), None)
    if clause is None:
        return block
    changing = next((each for each in block.inputs if not each.frozen and not _only_grows(each)), None)
    if changing is not None:
        raise _unsupported(clause, f"{_CLAUSE} beside '{changing.alias}', whose rows change and go,")
    if not context.outermost:
        raise _unsupported(clause, f"{_CLAUSE} in a query inside another")
    if grows_by_groups(block):
        raise _unsupported(clause, f"{_CLAUSE} in a SELECT that groups, or has functions OVER a window,")
    return block


def _is_stream(part: FromItem) -> bool:
    return part.stream and isinstance(part.source, Relation)


def _only_grows(each: From) -> bool:
    return each.join == "inner" and isinstance(each.source, Relation) and each.source.storage == "append"


def _is_event_time(time: exp.Expr, before: Inputs, catalog: Catalog) -> bool:
    """True if an expression is the time of the first input's events."""
    if not isinstance(time, exp.Column):
        return False
    events = before.parts[0]
    stored = events.column("_timestamp")
    found = [stored, call("UNIX_TIMESTAMP", stored)]
    declared = _declared_time(events, catalog)
    if declared is not None:
        found.append(events.column(declared))
    return before.resolve(time).expression in found


def _declared_time(events: FromItem, catalog: Catalog) -> str | None:
    """The column that TIMESTAMP = … names as the time of a stream's events."""
    found = catalog.find(events.name)
    if isinstance(found, Source):
        return found.timestamp
    return found.maintenance.timestamp if isinstance(found, View) else None


def _as_of_event(part: FromItem, clause: exp.Version) -> LookupTime:
    if part.log is None:
        raise NotSupported(
            sentence("'{}' is a view: which row it had at an event's time is not kept", Name(part.name)),
            hint="FOR SYSTEM_TIME AS OF PROCTIME(): the row that is there when the event is taken in",
        ).placed(*position_of(clause))
    return "event"


def _invalid(clause: exp.Version, message: str, hint: str) -> InvalidQuery:
    return InvalidQuery(message, hint=hint).placed(*position_of(clause))


def _unsupported(clause: exp.Version, what: str) -> NotSupported:
    return NotSupported(
        f"{what} is not maintained",
        hint="CREATE MATERIALIZED VIEW … AS that join with streams alone, and read it in another view",
    ).placed(*position_of(clause))


# ASOF JOIN: of the rows that match, the nearest one.
#
#     FROM trades AS t ASOF JOIN quotes AS q ON t.symbol = q.symbol AND t.at >= q.at
#
#     FROM trades AS t JOIN quotes AS q ON t.symbol = q.symbol AND t.at >= q.at
#     QUALIFY ROW_NUMBER() OVER (PARTITION BY the row of t ORDER BY q.at DESC) = 1
#
# With ASOF LEFT JOIN a row without a match stays. Of two rows that are equally near, the one with the smaller key is
# taken. A row that comes late, or is corrected, changes the matches that it should have changed: each touched row of
# the left side is matched again.

_NUMBER = "__w0"
# The comparison, seen from the left side, whose nearest value is the greatest one; and the same, turned around.
_BELOW = (exp.GTE, exp.GT)
_ABOVE = (exp.LTE, exp.LT)


def asof_block(froms: Sequence[From], right: From, node: exp.Join) -> Block:
    """Join each row so far with the nearest row of `right`, as a query without outputs.

    Raises:
        InvalidQuery: the condition has no inequality, or several.
        NotSupported: it keeps rows of the right side, or the rows of the left side cannot be told apart.
    """
    line, place = position_of(node)
    if right.join not in ("inner", "left"):
        raise NotSupported("ASOF RIGHT and FULL JOIN are not supported", line=line, column=place)
    nearest = [each for each in conjuncts(right.on) if isinstance(each, (*_BELOW, *_ABOVE))]
    found = [side for each in nearest if (side := _own_side(each, right.alias)) is not None]
    if len(nearest) != 1 or not found:
        raise InvalidQuery(
            f"ASOF JOIN takes one inequality between the sides, not {len(nearest)}: {sql_of(node)}",
            line=line,
            column=place,
            hint="ON a.key = b.key AND a.time >= b.time",
        )
    ((value, descending),) = found
    row = identity(Block(tuple(froms), None, ()))
    if not row or any(not _is_known(each) for each in froms):
        raise NotSupported(
            "the rows on the left of ASOF JOIN cannot be told apart",
            line=line,
            column=place,
            hint="select their key columns in the subquery",
        )
    call = AnalyticCall(_NUMBER, "ROW_NUMBER", (), ((value, descending, False),), BIGINT)
    first = exp.EQ(this=column(_NUMBER), expression=exp.Literal.number(1))
    return Block((*froms, right), None, (), partition=tuple(row), analytic=(call,), qualify=first)


def _is_known(each: From) -> bool:
    """True if the rows of an input can be told apart by columns that it shows."""
    return bool(identity(Block((replace(each, join="inner"),), None, ()))) or each.one_row


def _own_side(term: exp.Expression, alias: str) -> tuple[exp.Expression, bool] | None:
    """The side of an inequality over `alias` alone, and whether its greatest value is the nearest."""
    left, right = term.this, term.args["expression"]
    for own, other, greatest in ((right, left, _BELOW), (left, right, _ABOVE)):
        if aliases(own) == {alias} and aliases(other) and alias not in aliases(other):
            return own.copy(), isinstance(term, greatest)
    return None
