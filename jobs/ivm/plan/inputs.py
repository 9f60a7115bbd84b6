"""The FROM clause: the relations that a block reads, and the meaning of its names there.

A subquery that only filters and projects is read as the relation below it, and so is a UNION ALL, as one set of rows
for each branch. Any other subquery becomes an inner stage with a table of its own.

    SELECT q.n FROM (SELECT v + 1 AS n, k FROM s WHERE v > 0) q JOIN t ON t.k = q.k

        inputs  s as q, t       where  q.v > 0       values  q.n = q.v + 1, q.k = q.k
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from sqlglot import exp

from strandline.jobs.ivm.plan.rows import (
    PlannedRows,
    Selected,
    aliased,
    all_columns,
    giving,
    named,
    of_relation,
    renamed,
)
from strandline.jobs.model.stage import Input, Output
from strandline.jobs.model.tables import PLACE, Relation
from strandline.jobs.query.logical import Block, From, Query, SetOperation
from strandline.jobs.sql.trees import Place, all_of, replaced


class Inner(Protocol):
    """A builder that gives a query a table of its own where it needs one."""

    def stored(self, query: Query) -> Relation:
        """The table of an inner stage that maintains `query`."""

    def marked(self, relation: Relation) -> Relation:
        """The relation with a column in its key that is never NULL."""

    def arranged(self, rows: PlannedRows) -> PlannedRows:
        """Rows of a join, read from a table that holds the join where views share such tables."""


@dataclass(frozen=True)
class Unarranged:
    """The same builder, but every join is read from its own inputs."""

    inner: Inner

    def stored(self, query: Query) -> Relation:
        """The table of an inner stage that maintains `query`."""
        return self.inner.stored(query)

    def marked(self, relation: Relation) -> Relation:
        """The relation with a column in its key that is never NULL."""
        return self.inner.marked(relation)

    def arranged(self, rows: PlannedRows) -> PlannedRows:
        """The rows as they are."""
        return rows


def is_plain(query: Query) -> bool:
    """True if the query only joins, filters, projects and explodes."""
    return isinstance(query, Block) and query.group is None and not query.analytic and not query.distinct


def selected(query: Query, inner: Inner) -> tuple[Selected, ...]:
    """A query as rows: one set for each branch of a UNION ALL, else one; from a table of its own if it needs one."""
    if isinstance(query, SetOperation) and query.operation == "union all":
        found = [part for branch in query.branches for part in selected(branch, inner)]
        return tuple(
            Selected(replace(part.rows, branch=place), _under(part.outputs, query))
            for place, part in enumerate(found, 1)
        )
    if isinstance(query, Block) and is_plain(query):
        return tuple(
            Selected(rows, tuple(rows.output(output) for output in query.outputs))
            for rows in rows_of_block(query, inner)
        )
    relation = inner.stored(query)
    outputs = tuple(Output(o.name, named(o.name, "inner"), o.type) for o in outputs_of(query))
    return (Selected(of_relation(relation, "inner"), outputs),)


def outputs_of(query: Query) -> tuple[Output, ...]:
    """The visible columns of a query; those of a set operation as plain names."""
    if isinstance(query, Block):
        return query.outputs
    return tuple(Output(name, named(name), sql_type) for name, sql_type in query.outputs)


def rows_of_block(block: Block, inner: Inner) -> tuple[PlannedRows, ...]:
    """The rows of a block after FROM, WHERE and table functions."""
    others = block.inputs[1:]
    heads = _first(block.inputs[0], others, inner) if block.inputs else (PlannedRows(()),)
    made = []
    for head in heads:
        rows = _joined(head, others, inner)
        rows = rows.filtered(rows.read(block.where) if block.where is not None else None)
        rows = replace(rows, expand=tuple(rows.output(each) for each in block.expand))
        made.append(inner.arranged(rows))
    return tuple(made)


def _under(outputs: tuple[Output, ...], query: SetOperation) -> tuple[Output, ...]:
    return tuple(
        Output(name, output.expression, sql_type)
        for output, (name, sql_type) in zip(outputs, query.outputs, strict=True)
    )


def _first(source: From, others: Sequence[From], inner: Inner) -> tuple[PlannedRows, ...]:
    if isinstance(source.source, Relation):
        return (_named(Input(source.alias, source.source)),)
    parts = selected(source.source, inner) if _is_readable(source.source) else ()
    padded = any(each.join in ("right", "full") for each in others)
    fits = bool(parts) and not any(part.rows.expand for part in parts) and (len(parts) == 1 or not others)
    if fits and padded:
        fits = all(part.rows.where is None and _are_columns(part.outputs) for part in parts)
    if not fits:
        return (_named(Input(source.alias, inner.stored(source.source))),)
    return tuple(_under_alias(part, source.alias, {each.alias for each in others}) for part in parts)


def _is_readable(query: Query) -> bool:
    return is_plain(query) or (isinstance(query, SetOperation) and query.operation == "union all")


def _are_columns(outputs: tuple[Output, ...]) -> bool:
    return all(isinstance(output.expression, exp.Column) for output in outputs)


def _named(source: Input) -> PlannedRows:
    return PlannedRows((source,), values=_itself(source))


def _itself(source: Input) -> dict[Place, exp.Expression]:
    return {(source.alias, name): named(name, source.alias) for name, _ in all_columns(source.relation)}


def _under_alias(part: Selected, alias: str, taken: Collection[str]) -> PlannedRows:
    """The rows of a subquery for a block that knows them by an alias; the block's other aliases are `taken`."""
    values = {(alias, name): value for name, value in part.rows.meta().items()}
    values.update({(alias, output.name): output.expression for output in part.outputs})
    rows = replace(part.rows, values=values)
    if len(rows.inputs) == 1:
        rows = aliased(rows, {rows.inputs[0].alias: alias})
    return renamed(rows, taken)


def _joined(rows: PlannedRows, others: Sequence[From], inner: Inner) -> PlannedRows:
    for place, each in enumerate(others):
        padded = any(later.join in ("right", "full") for later in others[place + 1 :])
        joining = _joining(each, padded, inner)
        values = {**rows.values, **joining.values}
        on = all_of(replaced(each.on, values) if each.on is not None else None, joining.where)
        added = replace(joining.inputs[0], join=each.join, on=on, frozen=each.frozen, as_of=each.as_of)
        if each.join == "full" and all(_may_look_padded(i.relation) for i in (*giving(rows.inputs), added)):
            added = replace(added, relation=inner.marked(added.relation))
        rows = replace(rows, inputs=(*rows.inputs, added), values=values)
    return rows


def _may_look_padded(relation: Relation) -> bool:
    """True if a key can be all NULL, as that of a group: after a FULL JOIN such a row looks like a missing one."""
    return relation.storage == "keyed" and relation.hidden != PLACE


def _is_one_relation(rows: PlannedRows) -> bool:
    """True if the rows are those of one relation, which may be filtered, but joins nothing."""
    return len(rows.inputs) == 1 and rows.inputs[0].joins_nothing and not rows.expand


def _joining(source: From, padded: bool, inner: Inner) -> PlannedRows:
    """The right side of a join as one input. Its filter may move into ON unless the join keeps all its rows."""
    if isinstance(source.source, Relation):
        return _named(Input(source.alias, source.source))
    parts = selected(source.source, inner) if is_plain(source.source) else ()
    if len(parts) == 1 and _is_one_relation(parts[0].rows):
        (part,) = parts
        keeps = source.join in ("right", "full")
        nullable = padded or source.join in ("left", "full")
        if not (keeps and part.rows.where is not None) and not (nullable and not _are_columns(part.outputs)):
            return _under_alias(part, source.alias, ())
    return _named(Input(source.alias, inner.stored(source.source)))
