"""The groups of WINDOW and GROUPING SETS: a row is in one of them, or in several.

| window | the row is grouped by |
| --- | --- |
| TUMBLING | `windowstart`, a function of its time |
| HOPPING | each of the starts whose window holds it: the row is repeated |
| SESSION | nothing here: the top cuts the groups by the rows' times |
| GROUPING SETS | the number of each set: the row is repeated, and a group column is NULL in the sets without it |

A window's bounds are milliseconds, its end is the first that is not in it. They are part of the key, hidden where they
are not selected, so that queries over the view can read them. Windows begin at 0, as Kafka's do. A row for which the
stream's time has passed a window's end by the grace period is left out of that window: lateness is a property of the
row, so that the groups do not depend on when they are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.inputs import Unarranged, rows_of_block
from strandline.jobs.ivm.plan.rows import Rows, Selected, all_columns, apart, of_relation
from strandline.jobs.ivm.plan.trees import named, number
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.relation import WINDOW_BOUNDS, WINDOW_END, WINDOW_START, Relation
from strandline.jobs.model.stage import AggregateCall, AggregateStage, Input, Output, SessionWindow
from strandline.jobs.query.inputs import mark_value
from strandline.jobs.query.logical import Block, TimeWindow
from strandline.jobs.sql.places import place_of
from strandline.jobs.sql.trees import all_of, call

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

    rows: Rows
    group: tuple[Output, ...] = ()
    columns: tuple[Output, ...] = ()
    session: SessionWindow | None = None
    late: Rows | None = None


def in_window(rows: Rows, block: Block) -> Windowed:
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


def _in_session(rows: Rows, window: TimeWindow, time: exp.Expression, clock: exp.Expression | None) -> Windowed:
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


def closed(rows: Rows, block: Block, stages: Stages) -> Rows:
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


def _clock(rows: Rows, time: exp.Expression) -> exp.Expression | None:
    """The time of the stream when the row arrived; None where the rows have none."""
    place = place_of(time)
    source = next((each for each in rows.inputs if place is not None and each.alias == place[0]), None)
    if source is not None and "_stream_time" in dict(all_columns(source.relation)):
        return named("_stream_time", source.alias)
    return rows.meta().get("_stream_time")


def _repeated(rows: Rows, items: Output, what: str) -> Rows:
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
    return exp.Paren(this=exp.Sub(this=value.copy(), expression=exp.Paren(this=positive)))


def _starts(millis: exp.Expression, window: TimeWindow) -> exp.Expression:
    """The starts that can hold the time, from the last one back."""
    last = _floor(millis, window.advance)
    count = -(-window.size // window.advance)
    return exp.Array(expressions=[_plus(last, -place * window.advance) for place in range(count)])


def _plus(value: exp.Expression, millis: int) -> exp.Expression:
    if millis == 0:
        return value.copy()
    operator = exp.Add if millis > 0 else exp.Sub
    return exp.Paren(this=operator(this=value.copy(), expression=number(abs(millis))))
