"""From a definition to the stages that maintain it.

| definition | stages |
| --- | --- |
| source table | newest event of each key, over its event log |
| filter, projection | one map |
| GROUP BY | one aggregate |
| GROUP BY … HAVING | an aggregate with the condition as a column, then a map that filters by it |
| INSERT INTO … SELECT | one map into the target |
"""

from __future__ import annotations

from sqlglot import exp

from jobs.ivm.stage import AggregateStage, LatestStage, MapStage, Output, Plan, Relation
from jobs.sql import types as t
from jobs.sql.catalog import Catalog
from jobs.sql.dialect import parse_select
from jobs.sql.model import META_COLUMNS, InsertQuery, Source, View
from jobs.sql.query import Grouping, Query, read_query
from jobs.sql.relations import event_log, relation
from jobs.sql.scope import column
from state_store.layout import stage_of

__all__ = ("plan", "plan_of_query", "relation")

# Partitions of the topics that feed a target stay below this, so that every event of every query has its own place.
_PARTITIONS_EACH = 65_536
_HAVING = "__having"


def plan(definition: View | InsertQuery | Source, catalog: Catalog) -> Plan:
    """The stages of a view, a query that inserts into a stream, or a keyed source.

    Raises:
        ValueError: a source stream, whose event log is written by ingest alone.
        SqlError: an input has changed so that the query no longer fits.
    """
    if isinstance(definition, Source):
        if definition.kind == "stream":
            message = f"the stream '{definition.name}' has no plan: its event log is written by ingest"
            raise ValueError(message)
        return Plan(definition.name, (_latest(definition),))
    query = read_query(parse_select(definition.query), catalog)
    if isinstance(definition, InsertQuery):
        target = catalog.get(definition.target)
        assert isinstance(target, Source)
        return Plan(definition.name, (_insert(definition, query, target),))
    return plan_of_query(definition.name, query)


def plan_of_query(table: str, query: Query) -> Plan:
    """The stages that maintain `query` in `table`."""
    grouping = query.grouping
    if grouping is None:
        return Plan(table, (_map(table, query),))
    if grouping.having is None:
        return Plan(table, (_aggregate(table, query, grouping, grouping.outputs),))
    inner = _with_having(stage_of(table, 1), query, grouping)
    notes = ("HAVING: the groups are kept whole in an inner stage, so that one can come back without recomputing it",)
    return Plan(table, (inner, _having(table, grouping, inner)), notes)


def _latest(source: Source) -> LatestStage:
    outputs = tuple(Output(c.name, column(c.name), c.type) for c in source.columns)
    return LatestStage(source.name, event_log(source), outputs, source.key)


def _map(table: str, query: Query) -> MapStage:
    if query.input.kind == "append":
        return MapStage(table, query.input, query.where, (*query.outputs, *_meta()))
    return _keyed_map(table, query.input, query.where, query.outputs)


def _keyed_map(table: str, source: Relation, where: exp.Expression | None, outputs: tuple[Output, ...]) -> MapStage:
    """A map over a keyed input: the first output that is a key column stands for it, the others are hidden."""
    key, hidden = [], []
    for number, name in enumerate(source.key):
        shown = next((o for o in outputs if isinstance(o.expression, exp.Column) and o.expression.name == name), None)
        if shown is not None:
            key.append(shown.name)
        else:
            hidden.append(Output(f"__k{number}", column(name), source.type_of(name)))
    return MapStage(table, source, where, outputs, tuple(key), tuple(hidden))


def _aggregate(table: str, query: Query, grouping: Grouping, outputs: tuple[Output, ...]) -> AggregateStage:
    return AggregateStage(
        table=table,
        input=query.input,
        where=query.where,
        group=grouping.keys,
        aggregates=grouping.calls,
        outputs=outputs,
        key=tuple(key.name for key in grouping.keys),
    )


def _with_having(table: str, query: Query, grouping: Grouping) -> AggregateStage:
    """The aggregate below HAVING: all groups, all keys visible, and the condition as the last column."""
    assert grouping.having is not None
    visible = {output.name for output in grouping.outputs}
    keys = tuple(Output(key.name, column(key.name), key.type) for key in grouping.keys if key.name not in visible)
    condition = Output(_HAVING, grouping.having, t.BOOLEAN)
    return _aggregate(table, query, grouping, (*grouping.outputs, *keys, condition))


def _having(table: str, grouping: Grouping, inner: AggregateStage) -> MapStage:
    stored = Relation(inner.table, tuple((o.name, o.type) for o in inner.outputs), "keyed", inner.key)
    outputs = tuple(Output(o.name, column(o.name), o.type) for o in grouping.outputs)
    return _keyed_map(table, stored, column(_HAVING), outputs)


def _insert(definition: InsertQuery, query: Query, target: Source) -> MapStage:
    outputs = tuple(
        Output(c.name, output.expression, c.type) for c, output in zip(target.columns, query.outputs, strict=True)
    )
    offset = exp.Literal.number(definition.number * _PARTITIONS_EACH)
    own = exp.Add(this=offset, expression=column("_partition"))
    return MapStage(target.name, query.input, query.where, (*outputs, *_meta(own)))


def _meta(partition: exp.Expression | None = None) -> tuple[Output, ...]:
    """The meta columns, carried over from the event."""
    return tuple(
        Output(name, partition if partition is not None and name == "_partition" else column(name), kind)
        for name, kind in META_COLUMNS
    )
