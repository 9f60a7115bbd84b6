"""Groups that last, as in ksqlDB: a group stays, with zeros, after the last row of a table has left it.

A table's changes are consolidated over an epoch, so a row that is inserted and retracted within one is never seen. Its
event is: the body also reads all events of the source's log, as rows that no call counts.

    users (the rows there are)   __in TRUE    ┐
    users__log (all events)      __in FALSE   ┘  UNION ALL    COUNT(*) FILTER (WHERE __in)
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from strandline.jobs.ivm.plan.rows import Rows
from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.relation import META_COLUMNS, PLACE, TOMBSTONE, Relation
from strandline.jobs.model.stage import AggregateCall, Output
from strandline.jobs.sql.trees import all_of

_IN = "__in"


def with_events(rows: Rows) -> Rows | None:
    """The events of a source table as rows of the same block; None when the rows are not those of one source table."""
    if len(rows.inputs) != 1 or rows.inputs[0].join != "inner" or rows.expand:
        return None
    (source,) = rows.inputs
    relation = source.relation
    if relation.storage != "keyed" or relation.hidden != PLACE:
        return None
    columns = (*relation.columns, *META_COLUMNS, (TOMBSTONE, t.BOOLEAN))
    log = Relation(tables.log_below(relation.name), columns, "append", relation.key)
    kept = exp.Not(this=named(TOMBSTONE, source.alias))
    return replace(rows, inputs=(replace(source, relation=log),), where=all_of(rows.where, kept))


def marked(*, counted: bool) -> Output:
    """The column that is TRUE in the rows that calls count."""
    return Output(_IN, exp.Boolean(this=counted), t.BOOLEAN)


def counting(call: AggregateCall) -> AggregateCall:
    """The call over the rows that count."""
    return replace(call, filter=all_of(named(_IN), call.filter))
