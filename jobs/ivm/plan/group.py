"""The stage of GROUP BY and DISTINCT: the body computes group columns and arguments, the top aggregates them.

SELECT area, SUM(n) / COUNT(*) AS x FROM s GROUP BY area

    body    __g0 = s.area, __x0 = s.n           group   area = __g0
    calls   __a0 = SUM(__x0), __a1 = COUNT(*)   outputs area, x = __a0 / __a1
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.functions.aggregates.linear import NULL_BEYOND
from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.inputs import rows_of_block
from strandline.jobs.ivm.plan.ksql_groups import counting, marked, with_events
from strandline.jobs.ivm.plan.rows import Rows, Selected, apart, of_relation
from strandline.jobs.ivm.plan.trees import named
from strandline.jobs.ivm.plan.windows import (
    Windowed,
    closed,
    group_in_sets,
    in_sets,
    in_window,
    mark_in_sets,
    set_column,
)
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.relation import EVENT_ORDER, META_COLUMNS, WINDOW_BOUNDS
from strandline.jobs.model.stage import AggregateCall, AggregateStage, AnalyticStage, Body, Output, Stage
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.inputs import mark_name, mark_outputs, marks_in
from strandline.jobs.query.logical import Block
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.places import MARK, replaced
from strandline.state_store.wording import quoted

_OVER = "groups"
"""Alias of an inner aggregate in the stage above it."""
_ONE = Output("__one", exp.Literal.number(1), t.INT)


def grouped_stage(block: Block, stages: Stages) -> AggregateStage:
    """The one aggregate of a block without HAVING and with nothing above it."""
    return _aggregate(block, block.outputs, stages)


def over_groups(block: Block, stages: Stages) -> Rows:
    """The groups as rows of an inner aggregate that shows all keys and calls; HAVING and EMIT FINAL filter them.

    Every group is kept there, whatever HAVING says, so that one can come back without being computed again.
    """
    assert block.group is not None
    bounds = [(name, t.BIGINT) for name in WINDOW_BOUNDS] if block.window is not None else []
    known = [*((e.name, e.type) for e in block.group), *bounds, *((e.name, e.type) for e in block.calls)]
    known += [(each.name, each.type) for each in mark_outputs(block)]
    # A table has a column: `SELECT 1 … HAVING …` shows neither group nor call.
    shown = tuple(Output(name, named(name), sql_type) for name, sql_type in known) or (_ONE,)
    relation = stages.add(_aggregate(block, shown, stages))
    rows = of_relation(relation, _OVER)
    rows = replace(rows, values={("", name): named(name, _OVER) for name, _ in known})
    if block.having is not None:
        stages.note("HAVING: an inner stage keeps all groups, so that one can come back without recomputing it")
        rows = rows.filtered(rows.read(block.having))
    return closed(rows, block, stages) if block.window is not None and block.window.final else rows


def distinct_stage(parts: Sequence[Selected]) -> AggregateStage:
    """The distinct rows of what is selected: each is a group, kept while it has rows."""
    group = tuple(Output(each.name, named(each.name), each.type) for each in parts[0].outputs)
    body = tuple(part.rows.core(part.outputs) for part in apart(parts))
    return AggregateStage("", body, group, (), group, tuple(each.name for each in group))


def null_beyond(stage: Stage) -> Stage:
    """The stage with sums that are NULL while they are out of range, where they would be an error."""
    if isinstance(stage, AggregateStage):
        return replace(stage, aggregates=tuple(map(_null_beyond, stage.aggregates)))
    if isinstance(stage, AnalyticStage):
        calls = tuple(replace(call, null_beyond=True) if call.function == "SUM" else call for call in stage.calls)
        return replace(stage, calls=calls)
    return stage


def _null_beyond(call: AggregateCall) -> AggregateCall:
    is_exact = call.function in ("SUM", "SUM_LIST") and call.type.base is not BaseType.DOUBLE
    return replace(call, parameters=(*call.parameters, NULL_BEYOND)) if is_exact else call


class _Columns:
    """The columns of one body by their expressions: the same expression, needed twice, is one column."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, SqlType], Output] = {}

    def of(self, prefix: str, expression: exp.Expression, sql_type: SqlType) -> exp.Column:
        """The plain name of the column that holds `expression`, which reads names of the block."""
        place = (sql_of(expression), sql_type)
        if place not in self.found:
            count = sum(1 for each in self.found.values() if each.name.startswith(prefix))
            self.found[place] = Output(f"{prefix}{count}", expression, sql_type)
        elif MARK in expression.meta:
            # The column has the condition's text already: it stands for the condition from now on.
            self.found[place] = replace(self.found[place], expression=expression)
        return named(self.found[place].name)


def _aggregate(block: Block, outputs: tuple[Output, ...], stages: Stages) -> AggregateStage:
    assert block.group is not None
    inner = stages.placed(bool(_ordered(block.calls)))
    branches = [in_window(rows, block) for rows in rows_of_block(block, inner)]
    columns = _Columns()
    group = tuple(Output(g.name, columns.of("__g", g.expression, g.type), g.type) for g in block.group)
    calls = tuple(_call(each, columns) for each in block.calls)
    late = _late(branches, columns)
    if block.sets:
        name = set_column(branches)
        branches = [in_sets(branch, block.sets, name) for branch in branches]
        group = tuple(group_in_sets(each, place, block.sets, name) for place, each in enumerate(group))
        marks = {("", mark_name(place)): mark_in_sets(place, block.sets, name) for place in marks_in(block)}
        outputs = tuple(replace(each, expression=replaced(each.expression, marks)) for each in outputs)
    group = (*group, *branches[0].group)
    parts = [_part(each, block, columns) for each in branches]
    if stages.semantics == "ksql" and len(branches) == 1 and not block.sets:
        parts, calls = _lasting(parts[0], calls)
    return AggregateStage(
        table="",
        body=tuple(part.rows.core(part.outputs) for part in apart(parts)),
        group=group,
        aggregates=calls,
        outputs=outputs,
        key=tuple(each.name for each in group),
        drop_empty=stages.semantics == "sql",
        skip_null_keys=stages.semantics == "ksql" and not block.sets,
        session=branches[0].session,
        late=late,
    )


def _lasting(part: Selected, calls: tuple[AggregateCall, ...]) -> tuple[list[Selected], tuple[AggregateCall, ...]]:
    """The same groups, made to last: the events of a source table are read beside its rows."""
    events = with_events(part.rows)
    if events is None:
        return [part], calls
    return [
        Selected(part.rows, (*part.outputs, marked(counted=True))),
        Selected(events, (*part.outputs, marked(counted=False))),
    ], tuple(counting(each) for each in calls)


def _call(call: AggregateCall, columns: _Columns) -> AggregateCall:
    arguments = tuple(
        columns.of("__x", argument, sql_type)
        for argument, sql_type in zip(call.arguments, call.argument_types, strict=True)
    )
    condition = columns.of("__f", call.filter, t.BOOLEAN) if call.filter is not None else None
    return replace(call, arguments=arguments, filter=condition)


def _part(branch: Windowed, block: Block, columns: _Columns) -> Selected:
    rows = branch.rows
    made = [rows.output(column) for column in columns.found.values()]
    made += [column for column in branch.columns if column.name not in {each.name for each in made}]
    made += _order(rows, block.calls, {each.name for each in made})
    return Selected(rows, tuple(made))


def _late(branches: Sequence[Windowed], columns: _Columns) -> Body:
    """The rows of the branches that came too late. They are those before GROUPING SETS, which repeats them."""
    if all(branch.late is None for branch in branches):
        return ()
    parts = []
    for branch in branches:
        # A branch without late rows stands with none, so that all aliases are those of the body.
        rows = branch.late or branch.rows.filtered(exp.false())
        parts.append(Selected(rows, (*(rows.output(column) for column in columns.found.values()), *branch.columns)))
    return tuple(part.rows.core(part.outputs) for part in apart(parts))


def _order(rows: Rows, calls: Sequence[AggregateCall], there: set[str]) -> list[Output]:
    """The place of each row in the order of events, where a function needs it and the rows have one."""
    ordered = _ordered(calls)
    if not ordered:
        return []
    meta, types = rows.meta(), dict(META_COLUMNS)
    if not set(EVENT_ORDER) <= set(meta):
        strict = next((call for call in ordered if FUNCTIONS[call.function].needs_order), None)
        if strict is None:
            return []
        names = quoted(each.relation.name for each in rows.inputs)
        raise NotSupported(
            f"{strict.function} needs the order of events, and the rows of {names} have none",
            hint="aggregate streams or source tables by it, or use MIN, MAX, MIN_BY or MAX_BY over a column",
        )
    return [Output(name, meta[name], types[name]) for name in EVENT_ORDER if name not in there]


def _ordered(calls: Sequence[AggregateCall]) -> list[AggregateCall]:
    """The calls of functions that go by the order of events."""
    return [call for call in calls if (found := FUNCTIONS.get(call.function)) and found.ordered]
