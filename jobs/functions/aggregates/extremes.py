"""The rows of a group that decide: the greatest (MIN, MAX, MIN_BY, MAX_BY, TOPK, TOPKDISTINCT), or the last or first
events (LATEST_BY_OFFSET, EARLIEST_BY_OFFSET).

Not linear: when a row that decides is retracted, the group is computed again. Ties of MIN_BY and MAX_BY are decided by
the value itself, so that the result is a function of the rows.

The order of events is `EVENT_ORDER`, a total order of a stream's events that agrees with the offsets of each partition;
rows of a table have the place of their newest event. Every kept value carries its place, so that the result does not
depend on how the events are cut into epochs, and a late event finds its place. Rows of one event (exploded, or joined
with several others) are ordered by the value. Values are kept inside a struct: one that is NULL is told from no value.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Engine, comparable, comparable_row
from strandline.jobs.functions.aggregates.contract import (
    ORDER_TYPE,
    SORTABLE,
    AggregateFunction,
    Bound,
    GroupChanges,
    OverNothing,
    constant,
)
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BaseType, SqlType, array, struct


def _item(call: AggregateCall) -> SqlType:
    return struct(("at", ORDER_TYPE), ("v", call.argument_types[0]))


def _item_of(engine: Engine, changes: GroupChanges) -> str:
    return engine.struct([("at", changes.order), ("v", changes.arguments[0])])


def _key(engine: Engine, call: AggregateCall, at: str, value: str) -> str:
    return engine.struct([("at", at), ("v", comparable(engine, value, call.argument_types[0]))])


class ByOffset(AggregateFunction):
    """LATEST_BY_OFFSET and EARLIEST_BY_OFFSET, as `(x [, ignoreNulls])` or `(x, N [, ignoreNulls])`.

    SQL's LAST_VALUE and FIRST_VALUE are the same with another default: NULLs are values.

    The first form gives one value, NULL over none; the second an ARRAY of up to N values in the order of events,
    empty over none. `parameters` are (ignoreNulls,) or (ignoreNulls, N); ignoreNulls is true unless said.
    The array is kept from its outer end: newest first for LATEST, oldest first for EARLIEST.

        x in the order of events   LATEST(x)  LATEST(x, false)  LATEST(x, 2)  EARLIEST(x, 2)
        a, b, c, NULL              c          NULL              [b, c]        [a, b]
    """

    ordered = True
    needs_order = True

    def __init__(self, name: str, *, newest: bool, skip_nulls: bool = True) -> None:
        self.name = name
        self.newest = newest
        self.skip_nulls = skip_nulls

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        usage = f"{self.name}(column [, N] [, ignoreNulls])"
        if not 1 <= len(arguments) <= 3 or isinstance(arguments[0], exp.Star):
            raise TypeMismatch(f"{self.name} takes one to three arguments, not {len(arguments)}", hint=usage)
        sql_type = self.known(types[0])
        constants = [constant(argument) for argument in arguments[1:]]
        match constants:
            case []:
                return Bound(arguments[:1], types[:1], (self.skip_nulls,), sql_type)
            case [bool(ignore)]:
                return Bound(arguments[:1], types[:1], (ignore,), sql_type)
            case [int(count), *rest] if count is not True and count is not False and count > 0:
                match rest:
                    case []:
                        return Bound(arguments[:1], types[:1], (self.skip_nulls, count), array(sql_type))
                    case [bool(ignore)]:
                        return Bound(arguments[:1], types[:1], (ignore, count), array(sql_type))
        raise TypeMismatch(
            f"N of {self.name} is a whole number from 1 on and ignoreNulls true or false, both constants", hint=usage
        )

    def accumulator(self, call: AggregateCall) -> SqlType:
        return _item(call) if len(call.parameters) == 1 else array(_item(call))

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "null" if len(call.parameters) == 1 else "empty"

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        """NULL when no value was inserted and one value is asked for."""
        item = _item_of(engine, changes)
        key = _key(engine, call, changes.order, changes.arguments[0])
        if len(call.parameters) == 1:
            pick = engine.newest if self.newest else engine.oldest
            return changes.came(pick(item, key), *self._present(call, changes))
        outermost = engine.newest_items if self.newest else engine.oldest_items
        items = changes.came(outermost(item, key, int(call.parameters[1])), *self._present(call, changes))
        return f"COALESCE({items}, {engine.empty(self.accumulator(call))})"

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        def key(item: str) -> str:
            return _key(engine, call, engine.field(item, "at"), engine.field(item, "v"))

        if len(call.parameters) == 1:
            wins = f"{key(old)} {'>' if self.newest else '<'} {key(new)}"
            return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL OR {wins} THEN {old} ELSE {new} END"
        both = engine.concat(f"COALESCE({old}, {engine.empty(self.accumulator(call))})", new)
        ordered = engine.sort_by(both, "__each", key("__each"), _item(call), descending=self.newest)
        return engine.first(ordered, int(call.parameters[1]))

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        if len(call.parameters) == 1:
            return engine.field(kept, "v")
        values = engine.pluck(f"COALESCE({kept}, {engine.empty(self.accumulator(call))})", "v")
        return engine.reverse(values) if self.newest else values

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return ORDER_TYPE

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        furthest = "MAX" if self.newest else "MIN"
        return changes.went(f"{furthest}({changes.order})", *self._present(call, changes))

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        """TRUE if the retracted row was kept; while fewer than N are kept, every row is."""
        last = merged if len(call.parameters) == 1 else engine.get(merged, str(call.parameters[1]))
        reaches = f"{lost} {'>=' if self.newest else '<='} {engine.field(last, 'at')}"
        return f"COALESCE({reaches}, {lost} IS NOT NULL)"

    def _present(self, call: AggregateCall, changes: GroupChanges) -> list[str]:
        return [f"{changes.arguments[0]} IS NOT NULL"] if call.parameters[0] else []


class Extreme(AggregateFunction):
    """MIN(x), MAX(x); NULL over no value. NaN is above every number; texts and bytes are compared byte by byte.

    DISTINCT changes nothing.

        x     MIN  MAX
        3
        NULL
        7     3    7
    """

    def __init__(self, name: str, *, greatest: bool) -> None:
        self.name = name
        self.greatest = greatest

    def bind(
        self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...], *, distinct: bool = False
    ) -> Bound:
        return self.check(arguments, types)

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if sql_type.base not in (*SORTABLE, BaseType.BOOLEAN):
            raise self.refuse(sql_type, "numbers, texts, bytes, dates, times and BOOLEANs")
        return Bound(arguments, types, (), sql_type)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return call.argument_types[0]

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        """NULL when no value was inserted."""
        return changes.came(self._best(changes.arguments[0]))

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return f"{'GREATEST' if self.greatest else 'LEAST'}({old}, {new})"

    def combine(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self._best(kept)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return kept

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return call.argument_types[0]

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return changes.went(self._best(changes.arguments[0]))

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return f"COALESCE({lost} {'>=' if self.greatest else '<='} {merged}, {lost} IS NOT NULL)"

    def may_decide(self, call: AggregateCall, value: str, known: str) -> str:
        return f"{value} {'>=' if self.greatest else '<='} {known}"

    def _best(self, value: str) -> str:
        return f"{'MAX' if self.greatest else 'MIN'}({value})"


class ExtremeBy(AggregateFunction):
    """MAX_BY(x, y), MIN_BY(x, y): the x of the row with the greatest or smallest y; NULL when no row has a y.

    Of rows with the same y, the one with the greatest (smallest) x counts, NULL being below every value.

        x  y     MAX_BY(x, y)
        a  1
        b  5
        c  NULL  b
    """

    def __init__(self, name: str, *, greatest: bool) -> None:
        self.name = name
        self.greatest = greatest

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        if len(arguments) != 2 or any(isinstance(argument, exp.Star) for argument in arguments):
            raise TypeMismatch(
                f"{self.name} takes two arguments, not {len(arguments)}", hint=f"{self.name}(value, sorted_by)"
            )
        sql_type, by = (self.known(each) for each in types)
        if by.base not in (*SORTABLE, BaseType.ARRAY, BaseType.STRUCT):
            raise self.refuse(by, "numbers, texts, bytes, dates, times, and ARRAYs and STRUCTs of them, to sort by")
        return Bound(arguments, types, (), sql_type)

    def accumulator(self, call: AggregateCall) -> SqlType:
        value, by = call.argument_types
        return struct(("by", by), ("v", value))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        """NULL when no row with a y was inserted."""
        value, by = changes.arguments
        row = engine.struct([("by", by), ("v", value)])
        key = engine.struct([("by", by), ("v", comparable(engine, value, call.argument_types[0]))])
        pick = engine.newest if self.greatest else engine.oldest
        return changes.came(pick(row, key), f"{by} IS NOT NULL")

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        wins = f"{self._key(engine, call, old)} {'>' if self.greatest else '<'} {self._key(engine, call, new)}"
        return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL OR {wins} THEN {old} ELSE {new} END"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return engine.field(kept, "v")

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return call.argument_types[1]

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return changes.went(f"{'MAX' if self.greatest else 'MIN'}({changes.arguments[1]})")

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        beats = f"{lost} {'>=' if self.greatest else '<='} {engine.field(merged, 'by')}"
        return f"COALESCE({beats}, {lost} IS NOT NULL)"

    def _key(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        value = comparable(engine, engine.field(kept, "v"), call.argument_types[0])
        return engine.struct([("by", engine.field(kept, "by")), ("v", value)])


# TOPK, TOPKDISTINCT: the k greatest values of a group, greatest first.
#
# Not linear: only the k best are kept, so when one of them is retracted, the next is looked for in the group's rows.

# max_by(…, k) of Spark keeps a heap of k rows per group and refuses more.
_MOST = 100_000


class _Best(AggregateFunction):
    """The base of both: the check of a call, and the test for a retracted row that matters. `parameters` are (k,)."""

    others: bool

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        usage = f"{self.name}(column{' [, other, …]' if self.others else ''}, k)"
        most = len(arguments) if self.others else 2
        if not 2 <= len(arguments) <= most or isinstance(arguments[0], exp.Star):
            raise TypeMismatch(f"{self.name} takes a column and k, not {len(arguments)} arguments", hint=usage)
        count = constant(arguments[-1])
        if count is None or isinstance(count, bool) or not 1 <= count <= _MOST:
            raise TypeMismatch(f"k of {self.name} is a constant from 1 to {_MOST}", hint=usage)
        columns = tuple(self.known(sql_type) for sql_type in types[:-1])
        if columns[0].base not in SORTABLE:
            raise self.refuse(columns[0], "numbers, texts, bytes, dates and times")
        return Bound(arguments[:-1], columns, (count,), array(self.item(columns)))

    def item(self, types: tuple[SqlType, ...]) -> SqlType:
        """The type of an item of the result, for arguments of those types."""
        return types[0]

    def accumulator(self, call: AggregateCall) -> SqlType:
        return array(self.item(call.argument_types))

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return f"COALESCE({kept}, {engine.empty(self.accumulator(call))})"

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "empty"

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return call.argument_types[0]

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return changes.went(f"MAX({changes.arguments[0]})")

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        """TRUE if the retracted row was among the k best; while there are fewer than k, every row is."""
        last = self.value(engine, call, engine.get(merged, str(_count(call))))
        return f"COALESCE({lost} >= {last}, {lost} IS NOT NULL)"

    def value(self, engine: Engine, call: AggregateCall, item: str) -> str:
        """The value that an item is sorted by."""
        return item


class TopK(_Best):
    """TOPK(x, k): ARRAY of the k greatest x, repeated values included. TOPK(x, other, …, k): ARRAY of
    STRUCT<sort_col, col0, …> for the rows of the k greatest x.

    Rows where x is NULL are left out. Rows with the same x follow their other columns, greatest first and NULL last,
    so that the result is a function of the rows.

        x  name    TOPK(x, 2)   TOPK(x, name, 2)
        5  a
        9  b
        9  NULL    [9, 9]       [{9, b}, {9, NULL}]
    """

    name = "TOPK"
    others = True

    def item(self, types: tuple[SqlType, ...]) -> SqlType:
        if len(types) == 1:
            return types[0]
        return struct(("sort_col", types[0]), *((f"col{n}", sql_type) for n, sql_type in enumerate(types[1:])))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        value = changes.arguments[0]
        row = value
        if len(changes.arguments) > 1:
            names = (name for name, _ in self.item(call.argument_types).fields)
            row = engine.struct(zip(names, changes.arguments, strict=True))
        best = changes.came(
            engine.newest_items(row, self._key(engine, call, row), _count(call)), f"{value} IS NOT NULL"
        )
        return f"COALESCE({best}, {engine.empty(self.accumulator(call))})"

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        both = engine.concat(f"COALESCE({old}, {engine.empty(self.accumulator(call))})", new)
        key = self._key(engine, call, "__each")
        ordered = engine.sort_by(both, "__each", key, self.item(call.argument_types), descending=True)
        return engine.first(ordered, _count(call))

    def value(self, engine: Engine, call: AggregateCall, item: str) -> str:
        return item if len(call.argument_types) == 1 else engine.field(item, "sort_col")

    def _key(self, engine: Engine, call: AggregateCall, item: str) -> str:
        sql_type = self.item(call.argument_types)
        return item if len(call.argument_types) == 1 else comparable_row(engine, item, sql_type)


class TopKDistinct(_Best):
    """TOPKDISTINCT(x, k): ARRAY of the k greatest different x; NULL is no value.

    x         TOPKDISTINCT(x, 2)
    5, 9, 9   [9, 5]
    """

    name = "TOPKDISTINCT"
    others = False

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        value = changes.arguments[0]
        values = changes.came(engine.distinct_items(value), f"{value} IS NOT NULL")
        return self._best(engine, call, f"COALESCE({values}, {engine.empty(self.accumulator(call))})")

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        both = engine.concat(f"COALESCE({old}, {engine.empty(self.accumulator(call))})", new)
        return self._best(engine, call, engine.distinct(both))

    def _best(self, engine: Engine, call: AggregateCall, values: str) -> str:
        return engine.first(engine.sort(values, descending=True), _count(call))


def _count(call: AggregateCall) -> int:
    return int(call.parameters[0])
