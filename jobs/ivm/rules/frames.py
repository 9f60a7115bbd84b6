"""Aggregates OVER windows that are computed of a frame's rows as of a group's: those that no engine is asked for.

    MEDIAN(pay) OVER (PARTITION BY dept)                   one group for each partition
    MEDIAN(pay) OVER (ORDER BY day ROWS 6 PRECEDING)       one for each row: a list of the frame's rows, taken apart
    MEDIAN(pay) OVER (ORDER BY day ROWS n PRECEDING)       one for each row: those of its partition in its frame

    __w0_rows   what tells a group apart, and the arguments
    __w0_kept   what tells a group apart, and the accumulator
    __w0_of     what tells a group apart, and the value

Of what Spark does not know, GROUPS is RANGE over DENSE_RANK, and EXCLUDE leaves rows of the list out by their numbers.
A frame that grows with the partition costs the square of its rows, and so does one whose bounds are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import ORDER_TYPE, GroupChanges
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.ivm.rules.stored import columns, render
from strandline.jobs.model.stage import AggregateFramed, AggregateOver, AnalyticStage, Excluded
from strandline.jobs.model.tables import EVENT_ORDER

_KEPT: Final = "__kept"
_VALUE: Final = "__value"
_ONE: Final = "__one"
_PLACE: Final = "__place"
_ITEM: Final = "__frame"
# What the order of the window says of a row: its number, and that of the rows that tie with it; the value in ORDER BY.
_ROW: Final = "__row"
_GROUP: Final = "__group"
_BY: Final = "__by"
_REACH: Final = "__reach"


def joined(stage: AnalyticStage, over: AggregateOver, partition: tuple[str, ...], engine: Engine) -> str:
    """The join of the rows `__b` with the values of a call."""
    one = _one(stage, over, partition, engine)
    same = [f"__b.{each} IS NOT DISTINCT FROM {_frames(over)}.{_ONE}{place}" for place, each in enumerate(one)]
    return f"\n  LEFT JOIN {_frames(over)} ON {' AND '.join(same) or 'TRUE'}"


def of_frame(over: AggregateOver, engine: Engine) -> str:
    """The value for a row; that of no rows where its frame is empty."""
    found = f"{_frames(over)}.{_VALUE}"
    if over.whole:
        return found
    nothing = engine.cast("NULL", function_of(over.call).accumulator(over.call))
    return f"CASE WHEN {_frames(over)}.__some THEN {found} ELSE {_value(over, nothing, engine)} END"


def of_frames(
    stage: AnalyticStage, over: AggregateOver, partition: tuple[str, ...], rows: str, engine: Engine
) -> list[str]:
    """The relations that give the value of a call for each of its groups.

    Args:
        rows: what stands in FROM for the rows, as `__b`.
    """
    call, function = over.call, function_of(over.call)
    one = _one(stage, over, partition, engine)
    values = [
        (f"__v{at}", engine.cast(render(argument, engine), sql_type))
        for at, (argument, sql_type) in enumerate(zip(call.arguments, call.argument_types, strict=True))
    ]
    fields = [*values, *([("__f", render(call.filter, engine))] if call.filter is not None else [])]
    fields += [(_PLACE, _PLACE)] if function.ordered else []
    marks = _marks(stage, over, partition, engine)
    if marks:
        rows = f"(SELECT {', '.join(['__b.*', *(f'{value} AS {name}' for name, value in marks)])} FROM {rows}) AS __b"
    of_row = [f"__b.{each} AS {_ONE}{place}" for place, each in enumerate(one)]
    names = [f"{_ONE}{place}" for place in range(len(one))]
    own = [name for name, _ in marks if name != _PLACE]
    if over.whole:
        text = f"SELECT\n    {columns([*of_row, *(f'{value} AS {name}' for name, value in fields)])}\n  FROM {rows}"
    elif isinstance(over, AggregateFramed) and over.reaches:
        text = _of_pairs(over, partition, (of_row, names), fields, own, rows, engine)
    else:
        listed = [*fields, *((name, name) for name in own)]
        items = f"{engine.items(engine.struct(listed))} OVER {_window(stage, over, partition, engine)} AS {_ITEM}s"
        taken = [f"{engine.field(_ITEM, name)} AS {name}" for name, _ in fields]
        lists = (
            f"(SELECT {', '.join([*of_row, *own, items])} FROM {rows}) AS __l {engine.expand([(_ITEM, f'{_ITEM}s')])}"
        )
        left = _where(_left(over, lambda name: engine.field(_ITEM, name), lambda name: f"__l.{name}"))
        text = f"SELECT\n    {columns([*names, *taken])}\n  FROM {lists}{left}"
    changes = GroupChanges(tuple(name for name, _ in values), "1", _PLACE, "__f" if call.filter is not None else None)
    kept = f"{function.add(engine, call, changes)} AS {_KEPT}"
    grouped = f"\n  GROUP BY {', '.join(names)}" if one else ""
    value = f"{_value(over, _KEPT, engine)} AS {_VALUE}"
    return [
        f"{call.name}_rows AS (\n  {text}\n)",
        f"{call.name}_kept AS (\n  SELECT\n    {columns([*names, kept])}\n  FROM {call.name}_rows{grouped}\n)",
        f"{_frames(over)} AS (\n  SELECT\n    {columns([*names, value, 'TRUE AS __some'])}\n  FROM {call.name}_kept\n)",
    ]


def _frames(call: AggregateOver) -> str:
    """The relation of the values of a call."""
    return f"{call.name}_of"


def _one(stage: AnalyticStage, call: AggregateOver, partition: tuple[str, ...], engine: Engine) -> tuple[str, ...]:
    """The columns that tell the groups of a call apart."""
    return partition if call.whole else tuple(engine.name(name) for name in stage.key)


def _value(over: AggregateOver, kept: str, engine: Engine) -> str:
    return engine.cast(function_of(over.call).result(engine, over.call, kept), over.type)


def _window(stage: AnalyticStage, over: AggregateOver, partition: tuple[str, ...], engine: Engine) -> str:
    if over.by_group and over.frame is not None:
        return over_text(partition, [_GROUP], over.frame.replace("GROUPS", "RANGE", 1))
    order = _by_row(stage, over, engine) if over.by_row else _order(over, engine)
    return over_text(partition, order, over.frame)


def _order(over: AggregateOver, engine: Engine) -> list[str]:
    return [ordered(each, engine) for each in over.order]


def _by_row(stage: AnalyticStage, over: AggregateOver, engine: Engine) -> list[str]:
    """The order in which no two rows tie."""
    return [*_order(over, engine), *(ordered((name, False, True), engine) for name in stage.key)]


def _marks(
    stage: AnalyticStage, over: AggregateOver, partition: tuple[str, ...], engine: Engine
) -> list[tuple[str, str]]:
    """The columns beside a row, by name, that a frame's rows are ordered and told apart by."""
    exclude, reaches = (over.exclude, over.reaches) if isinstance(over, AggregateFramed) else (None, 0)
    found = [(_PLACE, _place(stage, over, partition, engine))] if function_of(over.call).ordered else []
    if exclude in ("CURRENT ROW", "TIES") or (reaches and over.by_row):
        number = f"ROW_NUMBER() OVER {over_text(partition, _by_row(stage, over, engine) or ['TRUE'], None)}"
        found.append((_ROW, number))
    if exclude in ("GROUP", "TIES") or over.by_group or (reaches and not over.by_row):
        number = f"DENSE_RANK() OVER {over_text(partition, _order(over, engine) or ['TRUE'], None)}"
        found.append((_GROUP, number))
    if isinstance(over, AggregateFramed) and reaches:
        found += [(f"{_REACH}{at}", f"COALESCE({render(each, engine)}, 0)") for at, each in enumerate(over.distances)]
        if not (over.by_row or over.by_group):
            found.append((_BY, render(over.order[0][0], engine)))
    return found


def _place(stage: AnalyticStage, over: AggregateOver, partition: tuple[str, ...], engine: Engine) -> str:
    """The place of a row in the order of the window, as one in the order of events; NULL where it has none."""
    if not (over.order or function_of(over.call).needs_order):
        return engine.cast("NULL", ORDER_TYPE)
    time, log, place = EVENT_ORDER
    types = dict(ORDER_TYPE.fields)
    number = engine.cast(f"ROW_NUMBER() OVER {over_text(partition, _by_row(stage, over, engine), None)}", types[place])
    at = engine.cast("'1970-01-01 00:00:00'", types[time])
    return engine.struct([(time, at), (log, engine.cast("0", types[log])), (place, number)])


# Frames whose bounds are columns: Spark knows none. Each row is joined with the rows of its partition.

Column = Callable[[str], str]


def _of_pairs(
    over: AggregateFramed,
    partition: tuple[str, ...],
    one: tuple[list[str], list[str]],
    fields: list[tuple[str, str]],
    own: list[str],
    rows: str,
    engine: Engine,
) -> str:
    """The rows of each row's frame, by what tells the row `__l` apart.

    Args:
        one: what tells a row apart, as columns and their names.
        own: the marks.
    """
    parts = [f"{each} AS __part_{place}" for place, each in enumerate(partition)]
    begin, end = (over.frame or "").split(" BETWEEN ")[1].split(" AND ")
    of_begin = f"__l.{_REACH}0"
    of_end = f"__l.{_REACH}{over.reaches - 1}"
    terms = [f"__l.__part_{place} IS NOT DISTINCT FROM __m.__part_{place}" for place in range(len(partition))]
    terms += _within(over, begin.replace("?", of_begin), is_begin=True)
    terms += _within(over, end.replace("?", of_end), is_begin=False)
    terms += _left(over, "__m.{}".format, "__l.{}".format)
    left = f"(SELECT {', '.join([*one[0], *parts, *own])} FROM {rows}) AS __l"
    right = (
        f"(SELECT {', '.join([*(f'{value} AS {name}' for name, value in fields), *parts, *own])} FROM {rows}) AS __m"
    )
    taken = [*(f"__l.{name}" for name in one[1]), *(f"__m.{name}" for name, _ in fields)]
    return f"SELECT\n    {columns(taken)}\n  FROM {left}\n  JOIN {right} ON {' AND '.join(terms) or 'TRUE'}"


def _within(over: AggregateFramed, bound: str, *, is_begin: bool) -> list[str]:
    """The condition that the row `__m` is not before the begin, or not after the end, of the frame of `__l`."""
    distance, side = bound.split(" ", 1)
    if distance == "UNBOUNDED":
        return []
    number = _ROW if over.by_row else _GROUP
    way = ">=" if is_begin else "<="
    if distance == "CURRENT":
        return [f"__m.{number} {way} __l.{number}"]
    sign = "-" if side == "PRECEDING" else ""
    if over.by_row or over.by_group:
        return [f"__m.{number} - __l.{number} {way} {sign}({distance})"]
    ((_, down, nulls_first),) = over.order
    until = f"__l.{_BY} {'-' if (side == 'PRECEDING') is not down else '+'} {distance}"
    beyond = f"__m.{_BY} {way if not down else {'>=': '<=', '<=': '>='}[way]} {until}"
    # A NULL is before or after all values, and its own frame begins and ends with the NULLs.
    of_null = "FALSE" if is_begin is nulls_first else "TRUE"
    return [
        f"CASE WHEN __l.{_BY} IS NULL THEN __m.{_GROUP} {way} __l.{_GROUP}"
        f" WHEN __m.{_BY} IS NULL THEN {of_null} ELSE {beyond} END"
    ]


def _left(over: AggregateOver, of_other: Column, of_row: Column) -> list[str]:
    """The condition that EXCLUDE leaves another row in the frame of a row."""
    exclude = over.exclude if isinstance(over, AggregateFramed) else None
    if exclude is None:
        return []
    row, group = (f"{of_other(name)} {{}} {of_row(name)}" for name in (_ROW, _GROUP))
    conditions: dict[Excluded, str] = {
        "CURRENT ROW": row.format("<>"),
        "GROUP": group.format("<>"),
        "TIES": f"({group.format('<>')} OR {row.format('=')})",
    }
    return [conditions[exclude]]


def _where(terms: Sequence[str]) -> str:
    return f"\n  WHERE {' AND '.join(terms)}" if terms else ""


# The text of a window.


def ordered(by: tuple[exp.Expression | str, bool, bool], engine: Engine) -> str:
    """An expression in ORDER BY: what is ordered by, whether downwards, and whether NULLs come first."""
    expression, descending, nulls_first = by
    text = engine.name(expression) if isinstance(expression, str) else render(expression, engine)
    return f"{text} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def over_text(partition: tuple[str, ...], order: list[str], frame: str | None) -> str:
    """What stands after OVER."""
    parts = [
        f"PARTITION BY {', '.join(partition)}" if partition else "",
        f"ORDER BY {', '.join(order)}" if order else "",
        frame or "",
    ]
    return f"({' '.join(part for part in parts if part)})"
