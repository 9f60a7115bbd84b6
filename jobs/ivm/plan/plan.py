"""The plan of a definition: the stages that maintain it.

| definition | stages |
| --- | --- |
| keyed source | newest event of each key, over its event log |
| CREATE … AS SELECT | those of the query (`jobs.ivm.plan.query`), the last one in the view's table |
| INSERT INTO … SELECT | the same, the last one appends to the target |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog.relations import event_log
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.event_time import with_rowtime
from strandline.jobs.ivm.plan.group import null_beyond
from strandline.jobs.ivm.plan.query import stage_of_query
from strandline.jobs.ivm.plan.rows import shifted
from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.options import Semantics, State
from strandline.jobs.model.stage import LatestStage, MapStage, Output, Plan, Stage
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import Query
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Column


def plan(definition: View | InsertQuery | Source, catalog: Catalog) -> Plan:
    """The stages of a view, a query that inserts into a stream, or a keyed source.

    Raises:
        ValueError: a source stream, whose event log is written by ingest alone.
        SqlError: an input has changed so that the query no longer fits.
    """
    if isinstance(definition, Source):
        if definition.kind == "stream":
            message = sentence("the stream '{}' has no plan: its event log is written by ingest", Name(definition.name))
            raise ValueError(message)
        return Plan(definition.name, (_latest(definition),))
    if isinstance(definition, InsertQuery):
        target = catalog.get(definition.target)
        assert not isinstance(target, InsertQuery)
        return _insert(definition, query_of(definition, catalog), target)
    options, query = definition.maintenance, query_of(definition, catalog)
    stages = Stages(
        definition.name, stage_of_query, options.semantics, options.state, definition.pipeline, definition.first_stage
    )
    made = stages.plan(query)
    if options.errors == "null" and options.state != "shared":
        made = replace(made, stages=tuple(map(null_beyond, made.stages)))
    return with_rowtime(made, options)


def plan_of_query(
    name: str, query: Query, semantics: Semantics = "sql", state: State = "full", *, pipeline: str = ""
) -> Plan:
    """The stages that maintain `query` in the table `name`.

    Args:
        state: `shared`: joins and inner stages have tables that all views of the pipeline share.

    Raises:
        NotSupported: no stage can maintain it; the message says why.
    """
    stages = Stages(name, stage_of_query, semantics, state, pipeline)
    return stages.plan(query)


def _latest(source: Source) -> LatestStage:
    outputs = tuple(Output(c.name, named(c.name), c.type) for c in source.columns)
    return LatestStage(source.name, event_log(source), outputs, source.key)


def _insert(definition: InsertQuery, query: Query, target: Source | View) -> Plan:
    made = Stages(definition.name, stage_of_query).plan(query)
    last = made.stages[-1]
    if storage_of(last) != "append":
        raise NotSupported(
            sentence("'{}' is a stream, and the rows of the query change and go", Name(target.name)),
            hint="CREATE TABLE … AS SELECT keeps them",
        )
    assert isinstance(last, MapStage)
    into = replace(_into(last, definition.number, target.columns), table=target.name)
    made = replace(made, stages=(*made.stages[:-1], into))
    return with_rowtime(made, target.maintenance) if isinstance(target, View) else made


def _into(stage: MapStage, number: int, columns: tuple[Column, ...]) -> Stage:
    """The stage with the target's names and types, and partitions of its own."""
    body = []
    for core in stage.body:
        chosen = zip(columns, core.columns, strict=False)
        outputs = tuple(Output(column.name, output.expression, column.type) for column, output in chosen)
        meta = tuple(
            replace(each, expression=shifted(each.expression, number)) if each.name == "_partition" else each
            for each in core.columns[len(columns) :]
        )
        body.append(replace(core, columns=(*outputs, *meta)))
    return replace(stage, body=tuple(body), visible=tuple(each.name for each in body[0].columns))
