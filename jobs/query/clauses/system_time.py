"""FOR SYSTEM_TIME AS OF: the time as of which an event looks up the row of a table that it joins.

    FROM orders o JOIN rates FOR SYSTEM_TIME AS OF o.ROWTIME r ON o.currency = r.currency

    AS OF o.ROWTIME        the row that was the newest of its key at the event's time, out of the table's event log
    AS OF o.at             the same, where TIMESTAMP = 'at' says that the column is the event's time
    AS OF PROCTIME()       the row that is there when the event is taken in

An event is joined once: what happens to the table afterwards changes no row (Flink's temporal join, RisingWave's
process-time temporal join, ksqlDB's join of a stream with a table). What has to read its inputs again, such as a
session or a window function, would find other rows of the table than the event did; so the rows of such a join are
stored as they are, and another view groups them.
"""

from __future__ import annotations

from typing import Literal

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.relation import Relation
from strandline.jobs.query.clauses.from_clause import Context, Joined
from strandline.jobs.query.clauses.join_checks import ASOF
from strandline.jobs.query.logical.inputs import Inputs, Part
from strandline.jobs.query.logical.keys import grows_by_groups
from strandline.jobs.query.logical.query import Block, From
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import call
from strandline.state_store.wording import Name, sentence

LookupTime = Literal["event", "arrival"]
"""The time as of which a row is looked up: the event's own, or that of its arrival (PROCTIME)."""

_CLAUSE = "FOR SYSTEM_TIME AS OF"
_PROCTIME = call("PROCTIME")


def lookup_time(joined: Joined, before: Inputs, catalog: Catalog) -> LookupTime | None:
    """The time that the clause of a join names; None without the clause.

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
    """The block, where its rows are looked up as of a time, if nothing in it would look them up again.

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


def _is_stream(part: Part) -> bool:
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


def _declared_time(events: Part, catalog: Catalog) -> str | None:
    """The column that TIMESTAMP = … names as the time of a stream's events."""
    found = catalog.find(events.name)
    if isinstance(found, Source):
        return found.timestamp
    return found.maintenance.timestamp if isinstance(found, View) else None


def _as_of_event(part: Part, clause: exp.Version) -> LookupTime:
    if part.log is None:
        line, place = position_of(clause)
        raise NotSupported(
            sentence("'{}' is a view: which row it had at an event's time is not kept", Name(part.name)),
            line=line,
            column=place,
            hint="FOR SYSTEM_TIME AS OF PROCTIME(): the row that is there when the event is taken in",
        )
    return "event"


def _invalid(clause: exp.Version, message: str, hint: str) -> InvalidQuery:
    line, place = position_of(clause)
    return InvalidQuery(message, line=line, column=place, hint=hint)


def _unsupported(clause: exp.Version, what: str) -> NotSupported:
    line, place = position_of(clause)
    return NotSupported(
        f"{what} is not maintained",
        line=line,
        column=place,
        hint="CREATE MATERIALIZED VIEW … AS that join with streams alone, and read it in another view",
    )
