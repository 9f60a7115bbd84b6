"""The form of a query's result: its columns, and whether its rows are events, groups or a single row.

The record key is in `jobs.query.clauses.record_key`.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model.columns import ITEM
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical.query import Block, From, Query, SetOperation


def outputs_of(query: Query) -> tuple[tuple[str, SqlType], ...]:
    """Names and types of the visible columns."""
    if isinstance(query, SetOperation):
        return query.outputs
    return tuple((output.name, output.type) for output in query.outputs)


def gives_events(query: Query) -> bool:
    """True if each row is an event of one stream, with its time and place: rows are only ever inserted.

    So it is for filters and projections of a stream, also when its events look up tables as of their time.
    """
    if isinstance(query, SetOperation):
        return query.operation == "union all" and all(gives_events(branch) for branch in query.branches)
    if grows_by_groups(query) or not query.inputs:
        return False
    first, *others = query.inputs
    return _adds(first) and all(each.frozen or (each.join == "semi" and _adds(each)) for each in others)


def grows_by_groups(block: Block) -> bool:
    """True if rows of the input are combined: by GROUP BY, DISTINCT, or functions over partitions."""
    return block.group is not None or block.distinct or bool(block.analytic)


def identity(block: Block) -> list[exp.Expression]:
    """The columns that identify a joined row, in the order of the inputs."""
    found: list[exp.Expression] = []
    for part in block.inputs:
        if part.join in ("semi", "anti"):
            continue
        if isinstance(part.source, Relation):
            names = part.source.key if part.source.storage == "keyed" else part.source.identity
        else:
            names = part.source.key
        found += [column(name, part.alias) for name in names]
    return found + ([column(ITEM)] if block.expand else [])


def one_row(query: Query) -> bool:
    """True if the result is always exactly one row: an aggregate over all rows."""
    return (
        isinstance(query, Block)
        and query.group == ()
        and query.window is None
        and query.having is None
        and query.qualify is None
        and not query.sets
    )


def _adds(part: From) -> bool:
    return part.source.storage == "append" if isinstance(part.source, Relation) else gives_events(part.source)
