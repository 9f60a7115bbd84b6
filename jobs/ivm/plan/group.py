"""The stage of GROUP BY and DISTINCT: the body computes group columns and arguments, the top aggregates them.

SELECT area, SUM(n) / COUNT(*) AS x FROM s GROUP BY area

    body    __g0 = s.area, __x0 = s.n           group   area = __g0
    calls   __a0 = SUM(__x0), __a1 = COUNT(*)   outputs area, x = __a0 / __a1
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.functions.aggregates.linear import NULL_BEYOND
from strandline.jobs.functions.aggregates.registry import FUNCTIONS
from strandline.jobs.functions.failing import can_fail
from strandline.jobs.functions.scalars.contract import total
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.by_value import values_apart
from strandline.jobs.ivm.plan.inputs import Unarranged, rows_of_block
from strandline.jobs.ivm.plan.rows import PlannedRows, Selected, all_columns, apart, named, number, of_relation
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import (
    AggregateCall,
    AggregateStage,
    AnalyticStage,
    Body,
    Input,
    Output,
    SessionWindow,
    Stage,
)
from strandline.jobs.model.tables import (
    EVENT_ORDER,
    META_COLUMNS,
    PLACE,
    TOMBSTONE,
    WINDOW_BOUNDS,
    WINDOW_END,
    WINDOW_START,
    Relation,
)
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.query.inputs import mark_name, mark_outputs, mark_value, marks_in
from strandline.jobs.query.logical import Block, From, SetOperation, TimeWindow
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import MARK, Place, all_of, call, place_of, replaced, replaced_call
from strandline.state_store.wording import quoted

_OVER = "groups"
"""Alias of an inner aggregate in the stage above it."""
_ONE = Output("__one", exp.Literal.number(1), t.INT)


def grouped_stage(block: Block, stages: Stages) -> AggregateStage:
    """The one aggregate of a block without HAVING and with nothing above it."""
    return _aggregate(block, block.outputs, stages)


def over_groups(block: Block, stages: Stages) -> PlannedRows:
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
    made = AggregateStage(
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
    return values_apart(made, stages)


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


def _order(rows: PlannedRows, calls: Sequence[AggregateCall], there: set[str]) -> list[Output]:
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


# The groups of WINDOW and GROUPING SETS: a row is in one of them, or in several.
#
# | window | the row is grouped by |
# | --- | --- |
# | TUMBLING | `windowstart`, a function of its time |
# | HOPPING | each of the starts whose window holds it: the row is repeated |
# | SESSION | nothing here: the top cuts the groups by the rows' times |
# | GROUPING SETS | the number of each set: the row is repeated, and a group column is NULL in the sets without it |
#
# A window's bounds are milliseconds, its end is the first that is not in it. They are part of the key, hidden where
# they are not selected, so that queries over the view can read them. Windows begin at 0, as Kafka's do. A row for
# which the stream's time has passed a window's end by the grace period is left out of that window: lateness is a
# property of the row, so that the groups do not depend on when they are computed.

_SET = "__set"
_STARTS = "__window"
_CLOCK = "clock"


@dataclass(frozen=True)
class Windowed:
    """Rows in their windows.

    Attributes:
        group: the group columns beside those of the block, over the columns of the body.
        columns: the columns of the body that these need, over the columns of the inputs.
        late: the rows that came too late for their window, once for each; None where no row is ever late.
    """

    rows: PlannedRows
    group: tuple[Output, ...] = ()
    columns: tuple[Output, ...] = ()
    session: SessionWindow | None = None
    late: PlannedRows | None = None


def in_window(rows: PlannedRows, block: Block) -> Windowed:
    """The rows of a block with the windows that they fall into.

    Raises:
        NotSupported: a hopping window over rows that are exploded already.
    """
    window = block.window
    if window is None:
        return Windowed(rows)
    assert block.time is not None
    time = rows.read(block.time)
    clock = _clock(rows, time)
    if window.type == "session":
        return _in_session(rows, window, time, clock)
    millis = call("UNIX_TIMESTAMP", time)
    start = _floor(millis, window.size)
    if window.type == "hopping":
        rows = _repeated(rows, Output(_STARTS, _starts(millis, window), t.BIGINT), "a hopping window")
        start = named(_STARTS)
        holds = exp.GT(this=_plus(start, window.size), expression=millis)
        rows = rows.filtered(all_of(holds, exp.GTE(this=start.copy(), expression=number(0))))
    late = None
    if window.grace is not None and clock is not None:
        ends, now = _plus(start, window.size + window.grace), call("UNIX_TIMESTAMP", clock)
        late = rows.filtered(exp.LTE(this=ends.copy(), expression=now.copy()))
        rows = rows.filtered(exp.GT(this=ends, expression=now))
    values = {WINDOW_START: start, WINDOW_END: _plus(start, window.size)}
    return Windowed(
        rows,
        tuple(Output(bound, named(bound), t.BIGINT) for bound in WINDOW_BOUNDS),
        tuple(Output(bound, values[bound], t.BIGINT) for bound in WINDOW_BOUNDS),
        late=late,
    )


def _in_session(rows: PlannedRows, window: TimeWindow, time: exp.Expression, clock: exp.Expression | None) -> Windowed:
    columns = (Output("_timestamp", time, t.TIMESTAMP), Output("_stream_time", clock or time, t.TIMESTAMP))
    session = SessionWindow(window.size, window.grace if clock is not None else None, "_timestamp", "_stream_time")
    if session.grace is None or clock is None:
        return Windowed(rows, (), columns, session)
    ends, now = _plus(call("UNIX_TIMESTAMP", time), session.gap + session.grace), call("UNIX_TIMESTAMP", clock)
    late = rows.filtered(exp.LT(this=ends.copy(), expression=now.copy()))
    return Windowed(rows.filtered(exp.GTE(this=ends, expression=now)), (), columns, session, late)


def set_column(branches: Sequence[Windowed]) -> str:
    """The name of the column with the number of a row's set: no input has it, even one grouped in sets itself."""
    relations = [each.relation for branch in branches for each in branch.rows.inputs]
    taken = {name for relation in relations for name, _ in all_columns(relation)}
    return next(name for at in range(1, len(taken) + 2) if (name := _SET if at == 1 else f"{_SET}_{at}") not in taken)


def in_sets(branch: Windowed, sets: Sequence[tuple[int, ...]], name: str) -> Windowed:
    """The rows once for each of the grouping sets, with the set's number in the column `name`."""
    numbers = exp.Array(expressions=[number(place) for place in range(1, len(sets) + 1)])
    of = Output(name, named(name), t.INT)
    rows = _repeated(branch.rows, Output(name, numbers, t.INT), "GROUPING SETS")
    return replace(branch, rows=rows, group=(*branch.group, of), columns=(*branch.columns, of))


def group_in_sets(group: Output, place: int, sets: Sequence[tuple[int, ...]], name: str) -> Output:
    """A group column: NULL in the sets that lack it; `name` is the column with the set's number."""
    within = [number(at) for at, indexes in enumerate(sets, 1) if place in indexes]
    if len(within) == len(sets):
        return group
    if not within:
        return replace(group, expression=exp.Null())
    chosen = exp.If(this=exp.In(this=named(name), expressions=within), true=group.expression.copy())
    return replace(group, expression=exp.Case(ifs=[chosen]))


def mark_in_sets(place: int, sets: Sequence[tuple[int, ...]], name: str) -> exp.Expression:
    """The mark of a group column: 1 in the sets that lack it, else 0; `name` is the column with the set's number."""
    within = [number(at) for at, indexes in enumerate(sets, 1) if place in indexes]
    chosen = exp.If(this=exp.In(this=named(name), expressions=within), true=mark_value(0))
    return exp.Case(ifs=[chosen], default=mark_value(1))


def closed(rows: PlannedRows, block: Block, stages: Stages) -> PlannedRows:
    """The groups that EMIT FINAL shows: those whose windows take no more rows.

    The stream's time is the greatest of all partitions; it is a row of an inner stage, so that its progress is a
    change like any other.
    """
    window = block.window
    assert window is not None
    relation = stages.add(_time_of_streams(block, stages))
    stages.note("EMIT FINAL: an inner stage keeps the stream's time; a window is shown once that has passed it")
    # The end of a session is a time in it: what comes at the last millisecond of gap and grace is still taken.
    slack = (window.grace or 0) + (window.size + 1 if window.type == "session" else 0)
    ends = _plus(rows.read(named(WINDOW_END)), slack)
    passed = exp.LTE(this=ends, expression=call("UNIX_TIMESTAMP", named(_CLOCK, _CLOCK)))
    return replace(rows, inputs=(*rows.inputs, Input(_CLOCK, relation, on=passed)))


def _time_of_streams(block: Block, stages: Stages) -> AggregateStage:
    assert block.time is not None
    found: dict[str, Relation] = {}
    # Of the streams themselves: an event that joins nothing moves their time as well.
    for rows in rows_of_block(block, Unarranged(stages)):
        place = place_of(rows.read(block.time))
        for each in rows.inputs:
            if (place is None or place[0] == each.alias) and "_stream_time" in dict(all_columns(each.relation)):
                found[each.relation.name] = each.relation
    parts = apart(
        Selected(of_relation(relation, _CLOCK), (Output("__x0", named("_stream_time", _CLOCK), t.TIMESTAMP),))
        for relation in found.values()
    )
    latest = AggregateCall("__a0", "MAX", (named("__x0"),), (t.TIMESTAMP,), t.TIMESTAMP)
    output = Output(_CLOCK, named("__a0"), t.TIMESTAMP)
    return AggregateStage("", tuple(part.rows.core(part.outputs) for part in parts), (), (latest,), (output,), ())


def _clock(rows: PlannedRows, time: exp.Expression) -> exp.Expression | None:
    """The time of the stream when the row arrived; None where the rows have none."""
    place = place_of(time)
    source = next((each for each in rows.inputs if place is not None and each.alias == place[0]), None)
    if source is not None and "_stream_time" in dict(all_columns(source.relation)):
        return named("_stream_time", source.alias)
    return rows.meta().get("_stream_time")


def _repeated(rows: PlannedRows, items: Output, what: str) -> PlannedRows:
    if rows.expand:
        raise NotSupported(
            f"{what} over rows that are repeated already is not maintained",
            hint="explode in a view of its own, and group that",
        )
    return replace(rows, expand=(items,), repeated=True)


def _floor(value: exp.Expression, size: int) -> exp.Expression:
    """The greatest multiple of `size` that is not above `value`, also below zero."""
    rest = exp.Mod(this=value.copy(), expression=number(size))
    positive = exp.Mod(this=exp.Paren(this=exp.Add(this=rest, expression=number(size))), expression=number(size))
    return total(exp.Paren(this=exp.Sub(this=value.copy(), expression=exp.Paren(this=positive))))


def _starts(millis: exp.Expression, window: TimeWindow) -> exp.Expression:
    """The starts that can hold the time, from the last one back."""
    last = _floor(millis, window.advance)
    count = -(-window.size // window.advance)
    return exp.Array(expressions=[_plus(last, -place * window.advance) for place in range(count)])


def _plus(value: exp.Expression, millis: int) -> exp.Expression:
    if millis == 0:
        return value.copy()
    operator = exp.Add if millis > 0 else exp.Sub
    return total(exp.Paren(this=operator(this=value.copy(), expression=number(abs(millis)))))


# Groups that last, as in ksqlDB: a group stays, with zeros, after the last row of a table has left it.
#
# A table's changes are consolidated over an epoch, so a row that is inserted and retracted within one is never seen.
# Its event is: the body also reads all events of the source's log, as rows that no call counts.
#
#     users (the rows there are)   __in TRUE    ┐
#     users__log (all events)      __in FALSE   ┘  UNION ALL    COUNT(*) FILTER (WHERE __in)

_IN = "__in"


def with_events(rows: PlannedRows) -> PlannedRows | None:
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


# The grand total of GROUPING SETS, ROLLUP and CUBE: the set `()` is one row, even over no input.
#
# SELECT area, COUNT(*) AS n FROM s GROUP BY ROLLUP (area) HAVING …
#
#     GROUP BY area        area, COUNT(*)   ┐
#                                           ├ UNION ALL    HAVING, OVER (…), SELECT
#     all rows, no group   NULL, COUNT(*)   ┘
#
# A row on which a group column fails is not in the total either. Any other group exists while rows fall into it.
# Under WINDOW there is no grand total: each group belongs to a window.


def totals_apart(block: Block, stages: Stages) -> Block:
    """The block with each set `()` as a query of its own without groups; unchanged when there is no such set."""
    others = tuple(each for each in block.sets if each)
    if len(others) == len(block.sets) or block.window is not None:
        return block
    assert block.group is not None
    stages.note("GROUPING SETS with (): an inner stage keeps the grand total, which is a row also over no rows")
    groups = [replace(each, expression=named(each.name)) for each in block.group]
    calls, marks = [Output(each.name, named(each.name), each.type) for each in block.calls], mark_outputs(block)
    shown = (*groups, *calls, *marks)
    below = replace(block, having=None, partition=(), analytic=(), qualify=None, distinct=False, key=(), outputs=shown)
    # ksqlDB's semantics leave out rows with a null in the group, but not in grouping sets: a single one stays a set.
    whole = stages.semantics == "sql" and others == (tuple(range(len(groups))),)
    inside, outside = (tuple(replace(each, expression=mark_value(value)) for each in marks) for value in (0, 1))
    plain = replace(below, sets=(), outputs=(*groups, *calls, *inside))
    branches = [plain if whole else replace(below, sets=others)] if others else []
    absent = tuple(replace(each, expression=exp.Null()) for each in groups)
    total = replace(
        below, group=(), sets=(), calls=(*block.calls, *_read(block.group)), outputs=(*absent, *calls, *outside)
    )
    branches += [total] * (len(block.sets) - len(others))
    names = {("", each.name): named(each.name, _OVER) for each in below.outputs}
    made = SetOperation("union all", tuple(branches), tuple((each.name, each.type) for each in below.outputs))
    return Block(
        inputs=(From(_OVER, made),),
        where=_over(block.having, names),
        outputs=tuple(replace(each, expression=replaced(each.expression, names)) for each in block.outputs),
        partition=tuple(replaced(each, names) for each in block.partition),
        analytic=tuple(replaced_call(each, names) for each in block.analytic),
        qualify=_over(block.qualify, names),
        distinct=block.distinct,
        key=block.key,
    )


def _read(group: Sequence[Output]) -> Iterator[AggregateCall]:
    """Calls of nobody's that read the group columns which can fail: a row on which one does is in no set."""
    for place, each in enumerate(group):
        if can_fail(each.expression):
            yield AggregateCall(f"__read{place}", "COUNT", (each.expression,), (each.type,), t.BIGINT)


def _over(node: exp.Expression | None, names: Mapping[Place, exp.Expression]) -> exp.Expression | None:
    return replaced(node, names) if node is not None else None
