"""What aggregates become over the different values of a group (`AggregateFunction.of_values`), each with how often it
is there: no call of a query is bound to one of these.

Those that show every value are made of all values of a group that a change touches, and keep nothing beside what they
show. A percentile keeps a *window* of the values around it, in their order, and how many rows are below:

    below 400 │ 17 ×3   18 ×1   21 ×2 │ above, of 806 rows       MEDIAN of 806 rows: the 403rd and the 404th, 17 and 18

A change below or above moves the numbers, one within the window its values. The group is computed again from all its
values when the rows that are asked for have left the window, which is the wider the more rows there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final, Protocol

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.bag import bag_type, merge_bags
from strandline.jobs.functions.aggregates.contract import OF_VALUES, ORDER_TYPE, AggregateFunction, Bound, GroupChanges
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, SqlType, array, struct

LEVEL: Final = 2
"""`View.by_value` of views whose calls became these."""
_FORM: Final = 6
"""Higher than that of the values of `LEVEL` 1: before it, these values were an array in the row of their group."""
_STRETCH: Final = 64
"""Values whose numbers are added up before those of single ones: the sums up to each of n numbers cost their square."""
_LEAST: Final = 64
"""Rows on each side of a percentile that its window takes at least; beyond that the root of their number, so that
computing a group again, which costs its number, is as seldom as that is large."""


class _OfValues(AggregateFunction):
    """The base: the last argument is how often the value is there."""

    values_since = LEVEL
    of_all = True

    def __init__(self, name: str) -> None:
        self.name = f"{name}{OF_VALUES}"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        raise TypeMismatch(f"{self.name} is called by no query")

    def form(self, call: AggregateCall) -> int:
        return _FORM

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return BIGINT

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        return changes.only("COUNT(*)")


class _AllShown(_OfValues):
    """The base of those that show every value: nothing is kept."""

    kept = False

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        raise AssertionError("made of all values")

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        raise AssertionError("made of all values")

    @abstractmethod
    def anew(self, engine: Engine, call: AggregateCall, rows: GroupChanges) -> str: ...


class HistogramOfValues(_AllShown):
    """HISTOGRAM."""

    def accumulator(self, call: AggregateCall) -> SqlType:
        return array(struct(("k", call.argument_types[0]), ("v", BIGINT)))

    def anew(self, engine: Engine, call: AggregateCall, rows: GroupChanges) -> str:
        value, count = rows.arguments
        return rows.in_order(engine, engine.struct([("k", value), ("v", count)]), [value])

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return engine.map_of(f"COALESCE({kept}, {engine.empty(self.accumulator(call))})")


class Shown(Protocol):
    """A function that is made of the array of a group's values in their order."""

    name: str

    def of_list(self, engine: Engine, call: AggregateCall, values: str) -> str:
        """What is shown of the values in their order, which are an array."""
        ...

    def once(self, call: AggregateCall) -> bool:
        """True if each value counts once."""
        ...


class ListOfValues(_AllShown):
    """ARRAY_AGG, COLLECT_LIST, STRING_AGG, FIRST_VALUE and LAST_VALUE with an order: the arguments are the value, what
    it is ordered by, and how often it is there; the first parameter says whether the order goes down.

    Args:
        plain: makes of the array of all values in their order what is shown.
    """

    def __init__(self, plain: Shown) -> None:
        super().__init__(plain.name)
        self.plain = plain

    def accumulator(self, call: AggregateCall) -> SqlType:
        return array(call.argument_types[0])

    def anew(self, engine: Engine, call: AggregateCall, rows: GroupChanges) -> str:
        value, *by, count = rows.arguments
        item = engine.struct([("x", value), ("n", count)])
        ordered = rows.in_order(engine, item, [*by, value], descending=bool(call.parameters[0]))
        once = engine.pluck("__items", "x")
        if not self.plain.once(call):
            repeated = engine.repeat(engine.field("__each", "x"), engine.field("__each", "n"))
            every = engine.flatten(engine.transform("__items", "__each", repeated))
            most = engine.size(engine.keep("__items", "__each", f"{engine.field('__each', 'n')} > 1"))
            once = f"CASE WHEN {most} = 0 THEN {once} ELSE {every} END"
        return engine.let(ordered, "__items", once)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self.plain.of_list(engine, call, f"COALESCE({kept}, {engine.empty(self.accumulator(call))})")


class PercentileOfValues(_OfValues):
    """PERCENTILE_CONT and PERCENTILE_DISC: the rows asked for are two, of which DISC takes the same twice."""

    def __init__(self, name: str, *, between: bool) -> None:
        super().__init__(name)
        self.between = between

    def accumulator(self, call: AggregateCall) -> SqlType:
        value = call.argument_types[0]
        return struct(("n", BIGINT), ("below", BIGINT), ("lo", value), ("hi", value), ("items", bag_type(value)))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        """The changes, in no order."""
        value, count = changes.arguments
        moved = f"{changes.weight} * {count}"
        items = changes.only(engine.items(self._item(engine, value, moved)))
        return self._made(engine, call, changes.only(f"SUM({moved})"), "NULL", "NULL", "NULL", items)

    def anew(self, engine: Engine, call: AggregateCall, rows: GroupChanges) -> str:
        value, count = rows.arguments
        first, last = self._places(engine, call, rows.every)
        margin = f"({_LEAST} + CAST(sqrt({rows.every}) AS BIGINT))"
        before = f"({rows.upto} - {count})"
        near = (f"{rows.upto} > {first} - {margin}", f"{before} <= {last} + {margin}")
        items = rows.in_order(engine, self._item(engine, value, count), [value], *near)
        lo = f"CASE WHEN {rows.only(f'MIN({before})', *near)} > 0 THEN {rows.only(f'MIN({value})', *near)} END"
        beyond = f"{rows.only(f'MAX({rows.upto})', *near)} < {rows.only(f'MAX({rows.every})')}"
        hi = f"CASE WHEN {beyond} THEN {rows.only(f'MAX({value})', *near)} END"
        below = rows.only(f"MIN({before})", *near)
        return self._made(engine, call, rows.only(f"SUM({count})"), below, lo, hi, items)

    def ranking(self, engine: Engine, call: AggregateCall, arguments: tuple[str, ...]) -> tuple[str, str] | None:
        value, count = arguments
        return value, count

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        """Of a group that has no window yet, one without one: it is computed from all values."""

        def part(of: str, name: str) -> str:
            return engine.field(of, name)

        value, low, high = part("__each", "v"), part(old, "lo"), part(old, "hi")
        items = f"COALESCE({part(new, 'items')}, {engine.empty(bag_type(call.argument_types[0]))})"
        less = f"COALESCE({value} < {low}, FALSE)"
        below = engine.total(engine.pluck(engine.keep(items, "__each", less), "n"), BIGINT)
        within = engine.keep(items, "__each", f"NOT {less} AND NOT COALESCE({value} > {high}, FALSE)")
        merged = merge_bags(engine, part(old, "items"), within, call.argument_types[0], by_place=False)
        count = f"{part(old, 'n')} + COALESCE({part(new, 'n')}, 0)"
        moved = self._made(engine, call, count, f"{part(old, 'below')} + {below}", low, high, merged)
        unknown = self._made(engine, call, part(new, "n"), "NULL", "NULL", "NULL", "NULL")
        nothing = engine.cast("NULL", self.accumulator(call))
        # Over no rows the array is NULL or empty, as engines have it.
        some = f"COALESCE({engine.size(part(new, 'items'))}, 0) > 0"
        kept = f"CASE WHEN {some} THEN {moved} ELSE {old} END"
        fresh = f"CASE WHEN {some} THEN {unknown} ELSE {nothing} END"
        return f"CASE WHEN {part(old, 'n')} IS NULL THEN {fresh} ELSE {kept} END"

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        count, below, items = (engine.field(merged, name) for name in ("n", "below", "items"))
        first, last = self._places(engine, call, count)
        end = f"{below} + {engine.total(engine.pluck(items, 'n'), BIGINT)}"
        most = f"8 * ({_LEAST} + CAST(sqrt({count}) AS BIGINT))"
        holds = f"{below} <= {first} AND {last} < {end} AND {engine.size(items)} <= {most}"
        # A group without a value has no window, and needs none.
        return f"COALESCE({count} > 0 AND NOT COALESCE({holds}, FALSE), FALSE)"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        count, below, items = (engine.field(kept, name) for name in ("n", "below", "items"))
        first, last = self._places(engine, call, count)

        def at(place: str) -> str:
            """The value of a row: the one after those that end before it, found by stretches of the window first."""
            wanted = f"({place} - {below})"
            stretches = engine.size(engine.keep("__upto", "__one", f"__one <= {wanted}"))
            rest = f"({wanted} - COALESCE({engine.get('__upto', '__first')}, 0))"
            part = engine.slice("__n", f"__first * {_STRETCH} + 1", str(_STRETCH))
            passed = engine.size(engine.keep(_running(engine, "__part"), "__one", f"__one <= {rest}"))
            found = engine.get(items, f"CAST(__first * {_STRETCH} + {passed} + 1 AS INT)")
            return engine.let(stretches, "__first", engine.let(part, "__part", engine.field(found, "v")))

        found = at(first)
        if self.between:
            start, end = f"CAST({at(first)} AS DOUBLE)", f"CAST({at(last)} AS DOUBLE)"
            low, high = (end, start) if call.parameters[1] else (start, end)
            place = f"({call.parameters[0]} * ({count} - 1))"
            share = f"(CAST({place} AS DOUBLE) - floor(CAST({place} AS DOUBLE)))"
            found = f"CASE WHEN {low} = {high} THEN {low} ELSE {low} + ({high} - {low}) * {share} END"
        starts = engine.keep(engine.places("__n"), "__place", f"__place % {_STRETCH} = 1")
        sums = engine.transform(starts, "__place", engine.total(engine.slice("__n", "__place", str(_STRETCH)), BIGINT))
        upto = engine.let(sums, "__sums", _running(engine, "__sums"))
        found = engine.let(engine.pluck(items, "n"), "__n", engine.let(upto, "__upto", found))
        return f"CASE WHEN {count} > 0 THEN {found} END"

    def _places(self, engine: Engine, call: AggregateCall, count: str) -> tuple[str, str]:
        """The places of the rows asked for, from 0, in the order of values that goes up."""
        fraction, down = call.parameters
        if self.between:
            place = f"({fraction} * ({count} - 1))"
            first, last = (engine.cast(f"{side}({place})", BIGINT) for side in ("floor", "ceil"))
        else:
            first = last = f"({engine.cast(f'greatest(ceil({fraction} * {count}), 1)', BIGINT)} - 1)"
        return (f"({count} - 1 - {last})", f"({count} - 1 - {first})") if down else (first, last)

    def _item(self, engine: Engine, value: str, count: str) -> str:
        return engine.struct([("v", value), ("n", engine.cast(count, BIGINT)), ("at", engine.cast("NULL", ORDER_TYPE))])

    def _made(
        self, engine: Engine, call: AggregateCall, count: str, below: str, low: str, high: str, items: str
    ) -> str:
        fields = [("n", count), ("below", below), ("lo", low), ("hi", high), ("items", items)]
        types = dict(self.accumulator(call).fields)
        return engine.struct([(name, engine.cast(value, types[name])) for name, value in fields])


def _running(engine: Engine, numbers: str) -> str:
    """The sums of the numbers of an array up to each of them."""
    return engine.transform(engine.places(numbers), "__nr", engine.total(engine.slice(numbers, "1", "__nr"), BIGINT))
