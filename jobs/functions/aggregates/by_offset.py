"""LATEST_BY_OFFSET, EARLIEST_BY_OFFSET: the values of the last or first events.

The order is `EVENT_ORDER`, a total order of a stream's events that agrees with the offsets of each partition; rows of a
table have the place of their newest event. Every kept value carries its place, so that the result does not depend on
how the events are cut into epochs, and a late event finds its place. Rows of one event (exploded, or joined with
several others) are ordered by the value. Values are kept inside a struct: one that is NULL is told from no value.

Not linear: when one of the kept rows is retracted, the group is computed again.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Engine, comparable
from strandline.jobs.functions.aggregates.contract import (
    ORDER_TYPE,
    AggregateFunction,
    Bound,
    GroupChanges,
    OverNothing,
    constant,
)
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import SqlType, array, struct


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
