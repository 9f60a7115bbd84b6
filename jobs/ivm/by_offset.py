"""Aggregate functions over the order of events: LATEST_BY_OFFSET, EARLIEST_BY_OFFSET, COLLECT_LIST.

The order is `EVENT_ORDER`, a total order of a stream's events that agrees with the offsets of each partition. Every
kept value carries its place in it, so that the result does not depend on how the events are cut into batches, and a
late event finds its place. Values are kept inside a struct: one that is NULL is told from no value at all.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.errors import TypeMismatch
from jobs.ivm.aggregate_function import AggregateFunction, Bound, Changes, constant
from jobs.ivm.engine import Engine
from jobs.ivm.stage import AggregateCall
from jobs.sql.model import EVENT_ORDER, META_COLUMNS
from jobs.sql.types import SqlType, array, struct

ORDER_TYPE = struct(*((name, dict(META_COLUMNS)[name]) for name in EVENT_ORDER))


def _item(call: AggregateCall) -> SqlType:
    return struct(("at", ORDER_TYPE), ("v", call.argument_types[0]))


def _item_of(engine: Engine, changes: Changes) -> str:
    return engine.struct([("at", changes.order), ("v", changes.arguments[0])])


class ByOffset(AggregateFunction):
    """LATEST_BY_OFFSET and EARLIEST_BY_OFFSET, as `(x [, ignoreNulls])` or `(x, N [, ignoreNulls])`.

    The first form gives one value, NULL over none; the second an ARRAY of up to N values in the order of events,
    empty over none. `parameters` are (ignoreNulls,) or (ignoreNulls, N); ignoreNulls is true unless said.
    The array is kept from its outer end: newest first for LATEST, oldest first for EARLIEST.
    """

    ordered = True

    def __init__(self, name: str, *, newest: bool) -> None:
        self.name = name
        self.newest = newest

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        usage = f"{self.name}(column [, N] [, ignoreNulls])"
        if not 1 <= len(arguments) <= 3 or isinstance(arguments[0], exp.Star):
            raise TypeMismatch(f"{self.name} takes one to three arguments, not {len(arguments)}", hint=usage)
        kind = self.known(types[0])
        constants = [constant(argument) for argument in arguments[1:]]
        match constants:
            case []:
                return Bound(arguments[:1], types[:1], (True,), kind)
            case [bool(ignore)]:
                return Bound(arguments[:1], types[:1], (ignore,), kind)
            case [int(count), *rest] if count is not True and count is not False and count > 0:
                match rest:
                    case []:
                        return Bound(arguments[:1], types[:1], (True, count), array(kind))
                    case [bool(ignore)]:
                        return Bound(arguments[:1], types[:1], (ignore, count), array(kind))
        raise TypeMismatch(
            f"N of {self.name} is a whole number from 1 on and ignoreNulls true or false, both constants", hint=usage
        )

    def accumulator(self, call: AggregateCall) -> SqlType:
        return _item(call) if len(call.parameters) == 1 else array(_item(call))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        """NULL when the batch has no value and one value is asked for."""
        item = _item_of(engine, changes)
        present = [f"{changes.arguments[0]} IS NOT NULL"] if call.parameters[0] else []
        if len(call.parameters) == 1:
            pick = engine.newest if self.newest else engine.oldest
            return changes.only(pick(item, changes.order), *present)
        outermost = engine.newest_items if self.newest else engine.oldest_items
        items = changes.only(outermost(item, changes.order, int(call.parameters[1])), *present)
        return f"COALESCE({items}, {engine.empty(self.accumulator(call))})"

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        if len(call.parameters) == 1:
            later = ">" if self.newest else "<"
            wins = f"{engine.field(old, 'at')} {later} {engine.field(new, 'at')}"
            return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL OR {wins} THEN {old} ELSE {new} END"
        both = engine.concat(f"COALESCE({old}, {engine.empty(self.accumulator(call))})", new)
        ordered = engine.sort(both, _item(call), "at", descending=self.newest)
        return engine.first(ordered, int(call.parameters[1]))

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        if len(call.parameters) == 1:
            return engine.field(kept, "v")
        values = engine.pluck(kept, "v")
        return engine.reverse(values) if self.newest else values


class CollectList(AggregateFunction):
    """COLLECT_LIST(x): ARRAY of all values in the order of events, nulls included; empty over none."""

    name = "COLLECT_LIST"
    ordered = True

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        return Bound(arguments, types, (), array(self.one_value(arguments, types)))

    def accumulator(self, call: AggregateCall) -> SqlType:
        return array(_item(call))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        items = changes.only(engine.items(_item_of(engine, changes)))
        return f"COALESCE({items}, {engine.empty(self.accumulator(call))})"

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        both = engine.concat(f"COALESCE({old}, {engine.empty(self.accumulator(call))})", new)
        return engine.sort(both, _item(call), "at")

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return engine.pluck(kept, "v")
