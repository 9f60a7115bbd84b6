"""The plan of a definition: the stages that maintain it.

| definition | stages |
| --- | --- |
| keyed source | newest event of each key, over its event log; of a bag, the rows that have come and not gone |
| CREATE … AS SELECT | those of the query (`jobs.ivm.plan.plan`), the last one in the view's table |
| INSERT INTO … SELECT | the same, the last one appends to the target |

The rows of WITH RECURSIVE have a table of their own, which the query around it reads like any other:

WITH RECURSIVE r (a, b) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a) SELECT * FROM r

v__stage_1   seed  e.a, e.b        steps  r.a, e_2.b of __itself AS r JOIN e AS e_2 ON r.b = e_2.a
v            the rows of v__stage_1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.relations import event_log
from strandline.jobs.functions.failing import can_fail
from strandline.jobs.ivm.plan.analytic import analytic_stage, fused, items_told_apart
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.group import distinct_stage, grouped_stage, null_beyond, over_groups, totals_apart
from strandline.jobs.ivm.plan.inputs import Unarranged, is_plain, rows_of_block, selected
from strandline.jobs.ivm.plan.rows import PlannedRows, Selected, apart, map_stage, named, number, of_relation, shifted
from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import ErrorPolicy, InsertQuery, Semantics, Source, State, View, ViewOptions
from strandline.jobs.model.errors import InvalidQuery, NotSupported
from strandline.jobs.model.stage import (
    AggregateCall,
    AggregateStage,
    AnalyticStage,
    Core,
    LatestStage,
    MapStage,
    Output,
    Plan,
    RecursiveStage,
    Stage,
)
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.model.tables import COPY, ITSELF, LEVEL
from strandline.jobs.model.types import INT, BaseType
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.inputs import conjoined
from strandline.jobs.query.logical import Block, Query, Recursion, SetOperation, outputs_of
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.trees import all_of, call
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
        definition.name,
        stage_of_query,
        options.semantics,
        options.state,
        definition.pipeline,
        definition.first_stage,
        by_value=definition.by_value,
        errors=options.errors,
    )
    made = stages.plan(query)
    if options.errors == "null" and options.state != "shared":
        made = replace(made, stages=tuple(map(null_beyond, made.stages)))
    return with_rowtime(made, options)


def plan_of_query(
    name: str,
    query: Query,
    semantics: Semantics = "sql",
    state: State = "full",
    *,
    pipeline: str = "",
    errors: ErrorPolicy = "dead_letter",
) -> Plan:
    """The stages that maintain `query` in the table `name`.

    Args:
        state: `shared`: joins and inner stages have tables that all views of the pipeline share.

    Raises:
        NotSupported: no stage can maintain it; the message says why.
    """
    stages = Stages(name, stage_of_query, semantics, state, pipeline, errors=errors)
    return stages.plan(query)


def _latest(source: Source) -> LatestStage:
    outputs = tuple(Output(c.name, named(c.name), c.type) for c in source.columns)
    if source.bag:
        return LatestStage(source.name, event_log(source), outputs, (COPY,), bag=True)
    return LatestStage(source.name, event_log(source), outputs, source.key, exact=source.foreign)


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


# The stage that maintains a query; the stages below it are added to the plan on the way.
#
# | query | stage |
# | --- | --- |
# | FROM, WHERE, SELECT | map |
# | GROUP BY | aggregate |
# | GROUPING SETS with `()` | two aggregates, and a map over the UNION ALL of both |
# | GROUP BY … HAVING, EMIT FINAL | an inner aggregate, and a map over its groups |
# | SELECT DISTINCT | aggregate: the outputs are the groups, nothing is computed |
# | OVER (…) | analytic |
# | UNION ALL | map with several branches |
# | WITH RECURSIVE | recursive |
# | UNION, INTERSECT [ALL], EXCEPT [ALL] | aggregate over the branches, and a map over its groups but for UNION |


def stage_of_query(query: Query, stages: Stages) -> Stage:
    """The stage that holds the query's rows; its table has no name yet.

    Raises:
        NotSupported: no stage can maintain it; the message says why.
    """
    if isinstance(query, SetOperation):
        if query.operation == "union all":
            return map_stage(selected(query, stages), with_places=stages.places)
        return set_stage(query, stages)
    if isinstance(query, Recursion):
        return recursive_stage(query, stages)
    block = totals_apart(fused(query), stages)
    if block.distinct:
        return distinct_stage(selected(replace(block, distinct=False), stages.placed(False)))
    if is_plain(block):
        return map_stage(selected(block, stages), with_places=stages.places)
    if block.group is None:
        return analytic_stage(rows_of_block(items_told_apart(block), stages), block, stages)
    return _grouped(block, stages)


def _grouped(block: Block, stages: Stages) -> Stage:
    final = block.window is not None and block.window.final
    if block.having is None and not block.analytic and not final:
        return grouped_stage(block, stages)
    rows = over_groups(block, stages)
    if block.analytic:
        return analytic_stage((rows,), block, stages)
    return map_stage((Selected(rows, tuple(rows.output(each) for each in block.outputs)),))


# UNION, INTERSECT and EXCEPT: rows of all branches, grouped by all their columns.
#
# a INTERSECT b      group (all columns), __a0 = rows of a, __a1 = rows of b      kept: __a0 > 0 AND __a1 > 0
# a EXCEPT b                                                                      kept: __a0 > 0 AND __a1 = 0
# a INTERSECT ALL b    LEAST(__a0, __a1) times
# a EXCEPT ALL b       __a0 - __a1 times, if that is more than 0

_TAG = "__tag"
_COPY = "__copy"
_OVER = "rows"
"""Alias of the inner stage that counts, in the stage above it."""


def set_stage(query: SetOperation, stages: Stages) -> Stage:
    """The stage of a set operation that gives every row once."""
    if query.operation == "union":
        return distinct_stage(selected(replace(query, operation="union all"), stages))
    relation = stages.add(_counted(query, stages))
    stages.note(f"{query.operation.upper()}: an inner stage counts each row in each branch")
    calls = [named(_count(place), _OVER) for place in range(len(query.branches))]
    outputs = tuple(Output(name, named(name, _OVER), of) for name, of in query.outputs)
    if query.operation in ("intersect all", "except all"):
        return map_stage((Selected(_repeated(of_relation(relation, _OVER), query.operation, calls), outputs),))
    first = exp.GT(this=calls[0], expression=number(0))
    comparison = exp.GT if query.operation == "intersect" else exp.EQ
    others = [comparison(this=each, expression=number(0)) for each in calls[1:]]
    return map_stage((Selected(of_relation(relation, _OVER).filtered(all_of(first, *others)), outputs),))


def _repeated(rows: PlannedRows, operation: str, counts: Sequence[exp.Expression]) -> PlannedRows:
    """Each of the rows as often as INTERSECT ALL or EXCEPT ALL gives it."""
    first, *others = counts
    times: exp.Expression = call("LEAST", *counts)
    if operation == "except all":
        times = first
        for each in others:
            times = exp.Sub(this=times.copy(), expression=each.copy())
    rows = rows.filtered(exp.GT(this=exp.Paren(this=times.copy()), expression=number(0)))
    copies = call("GENERATE_SERIES", exp.Cast(this=number(1), to=data_type(t.BIGINT)), times)
    return replace(rows, expand=(Output(_COPY, copies, t.BIGINT),))


def _counted(query: SetOperation, stages: Stages) -> AggregateStage:
    parts = [
        Selected(
            part.rows,
            (
                *(
                    Output(name, output.expression, sql_type)
                    for output, (name, sql_type) in zip(part.outputs, query.outputs, strict=True)
                ),
                Output(_TAG, number(place), t.INT),
            ),
        )
        for place, branch in enumerate(query.branches)
        for part in selected(branch, stages)
    ]
    group = tuple(Output(name, named(name), sql_type) for name, sql_type in query.outputs)
    calls = tuple(
        AggregateCall(
            _count(place), "COUNT", (), (), t.BIGINT, filter=exp.EQ(this=named(_TAG), expression=number(place))
        )
        for place in range(len(query.branches))
    )
    return AggregateStage(
        table="",
        body=tuple(part.rows.core(part.outputs) for part in apart(parts)),
        group=group,
        aggregates=calls,
        outputs=(*group, *(Output(each.name, named(each.name), each.type) for each in calls)),
        key=tuple(each.name for each in group),
    )


def _count(place: int) -> str:
    return f"__a{place}"


# WITH (TIMESTAMP = 'column') of a view: its rows take their time from a column, not from their events.
#
#     CREATE STREAM v WITH (TIMESTAMP='at') AS SELECT id, at FROM s
#
#     before     id = s.id, at = s.at, _timestamp = s._timestamp, …
#     after      id = s.id, at = s.at, _timestamp = FROM_UNIXTIME(s.at), …      WHERE s.at >= 0
#
# A row without a time, or one before 1970, is left out, as in ksqlDB. Groups have no time of their own: there the
# option changes nothing.

_TIME = "_timestamp"


def with_rowtime(plan: Plan, options: ViewOptions) -> Plan:
    """The plan whose last stage gives the rows the time that the view's options ask for."""
    name = options.timestamp
    last = plan.stages[-1]
    if name is None or not isinstance(last, MapStage):
        return plan
    body = tuple(_timed(core, name, options.timestamp_format) for core in last.body)
    return replace(plan, stages=(*plan.stages[:-1], replace(last, body=body)))


def _timed(core: Core, name: str, form: str | None) -> Core:
    source = next(column for column in core.columns if column.name == name)
    if not any(column.name == _TIME for column in core.columns):
        return core
    time = _time(source, form)
    milliseconds = exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time.copy()])
    kept = exp.GTE(this=milliseconds, expression=exp.Literal.number(0))
    columns = tuple(replace(each, expression=time) if each.name == _TIME else each for each in core.columns)
    return replace(core, columns=columns, where=conjoined([core.where, kept] if core.where is not None else [kept]))


def _time(source: Output, form: str | None) -> exp.Expression:
    value = source.expression.copy()
    if source.type.base is BaseType.BIGINT:
        return exp.Anonymous(this="FROM_UNIXTIME", expressions=[value])
    if form is not None:
        return exp.Anonymous(this="PARSE_TIMESTAMP", expressions=[value, exp.Literal.string(form)])
    return value


# Checks of a view's plan against its options: REFRESH = 'incremental', and ERRORS beside STATE = 'shared'.


def why_not(stage: Stage) -> str | None:
    """The reason why a change makes the stage compute all its rows again; None when it does not."""
    if isinstance(stage, AnalyticStage) and not stage.partition:
        return "OVER without PARTITION BY: all rows are one partition, and every change computes it again"
    if isinstance(stage, RecursiveStage):
        return "WITH RECURSIVE: what a change takes away may follow from other rows, so it computes all rounds again"
    return None


def check_incremental(made: Plan) -> None:
    """Check that a view can have REFRESH = 'incremental'.

    Raises:
        InvalidQuery: a stage is not maintained from changes alone; the message says why.
    """
    for stage in made.stages:
        reason = why_not(stage)
        if reason is not None:
            parted = "add PARTITION BY, or " if isinstance(stage, AnalyticStage) else ""
            raise InvalidQuery(
                sentence("'{}' cannot be REFRESH = 'incremental': {}", Name(made.view), reason),
                hint=f"{parted}leave REFRESH out: the rows are the same",
            )


def check_errors(made: Plan, errors: ErrorPolicy) -> None:
    """Check that what a view says of rows that fail holds in the stages that it shares, which have dead letters.

    Raises:
        NotSupported: a row can fail in one of them, and the view says something else of such rows.
    """
    if errors == "dead_letter":
        return
    for stage in made.stages:
        if tables.is_shared(stage.table) and guarded(stage, "").aside is not None:
            raise NotSupported(
                sentence(
                    "'{}' has ERRORS = '{}', and a row can fail in a stage that it shares", Name(made.view), errors
                ),
                hint="a shared stage keeps such rows in dead letters: leave STATE = 'shared' out, or ERRORS",
            )


_SEED = "seed"


def recursive_stage(query: Recursion, stages: Stages) -> RecursiveStage:
    """The stage of a query that reads itself.

    Raises:
        NotSupported: an ON of it can fail on a row.
    """
    stages = stages.placed(False)
    seed = _seed(query.seed, stages)
    # A join of it must not get a table of its own: what it holds depends on what is being computed.
    inner, counted = Unarranged(stages), query.levels is not None
    steps = [each for step in query.steps for each in _steps(step, inner, counted=counted)]
    parts = apart([*seed, *steps])
    cores = tuple(part.rows.core(part.outputs) for part in parts)
    for core in cores[len(seed) :]:
        _check_joins(core)
    stages.note("WITH RECURSIVE: an inner stage holds all rounds; a change computes them again, the difference goes on")
    outputs = tuple(Output(name, named(name), sql_type) for name, sql_type in query.outputs)
    begin, following = cores[: len(seed)], cores[len(seed) :]
    return RecursiveStage("", begin, following, query.distinct, query.levels, outputs)


def _seed(query: Query, stages: Stages) -> list[Selected]:
    """The rows to begin with. Where one of them can fail, an inner stage computes them, which keeps such rows aside."""
    parts = selected(query, stages)
    trees = [each.expression for part in parts for each in (*part.outputs, *part.rows.expand)]
    trees += [each.on for part in parts for each in part.rows.inputs if each.on is not None]
    trees += [part.rows.where for part in parts if part.rows.where is not None]
    if not any(map(can_fail, trees)):
        return list(parts)
    relation = stages.stored(query)
    outputs = tuple(Output(name, named(name, _SEED), sql_type) for name, sql_type in outputs_of(query))
    return [Selected(of_relation(relation, _SEED), outputs)]


def _steps(step: Block, inner: Unarranged, *, counted: bool) -> list[Selected]:
    return [
        Selected(rows, (*(rows.output(each) for each in step.outputs), *([_level(rows)] if counted else [])))
        for rows in rows_of_block(step, inner)
    ]


def _level(rows: PlannedRows) -> Output:
    itself = next(each.alias for each in rows.inputs if each.relation.name == ITSELF)
    return Output(LEVEL, named(LEVEL, itself), INT)


def _check_joins(core: Core) -> None:
    for each in core.inputs:
        if each.on is not None and can_fail(each.on):
            raise NotSupported(
                f"an ON inside of WITH RECURSIVE that can fail on a row is not supported: {sql_of(each.on)}",
                hint="put it into WHERE, or TRY_CAST and NULLIF around what can fail",
            )
