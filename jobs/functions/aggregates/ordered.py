"""Aggregates over a group's values in an order: ARRAY_AGG(x ORDER BY y), STRING_AGG, FIRST_VALUE, LAST_VALUE.

A bag keeps how often each (y, …, x) is there, so that a retraction is added with the opposite sign. Rows that the order
does not tell apart follow their x. `parameters` begin with the order: True where it goes down. NULL is below all
values.

    y  x     ARRAY_AGG(x ORDER BY y DESC)
    1  a
    2  b
    1  NULL  [b, a, NULL]
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from strandline.jobs.engines.comparable import comparable
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.bag import bag_of, bag_type, merge_bags
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, Changes
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import VARCHAR, BaseType, SqlType, array, struct

_ONCE = True
"""The parameter, after the others, of a call in which each value counts once."""
ORDERED = " ORDER BY"
"""What stands after the name of a function in the list of functions, where it takes an order."""


class Ordered(AggregateFunction):
    """The base: `arguments` are x and what it is ordered by; the order is bound by `in_order`."""

    retractable = True
    nulls = True

    def __init__(self, name: str) -> None:
        self.name = f"{name}{ORDERED}"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        raise TypeMismatch(f"{self.name} needs an order", hint=f"{self.name} column)")

    def in_order(
        self,
        arguments: tuple[exp.Expression, ...],
        types: tuple[SqlType, ...],
        constants: tuple[exp.Expression, ...],
        *,
        descending: bool,
    ) -> Bound:
        """Check a call: the value, then what it is ordered by, all in one direction; and the constants after the value.

        Raises:
            TypeMismatch: a type or constant does not fit.
        """
        if constants:
            raise TypeMismatch(f"{self.name} takes one value", hint=f"{self.name} column)")
        known = tuple(self.known(each) for each in types)
        return Bound(arguments, known, (descending,), self.type_of(known[0]))

    def each_once(self, bound: Bound) -> Bound:
        """The call with DISTINCT: a value counts once, and orders itself.

        Raises:
            TypeMismatch: it is ordered by something else, of which equal values have several.
        """
        if any(each != bound.arguments[0] for each in bound.arguments[1:]):
            raise TypeMismatch(
                f"{self.name} with DISTINCT is ordered by the value itself", hint=f"ORDER BY {bound.arguments[0].sql()}"
            )
        return replace(bound, parameters=(*bound.parameters, _ONCE))

    def type_of(self, sql_type: SqlType) -> SqlType:
        """The type of the result over values of that type."""
        return array(sql_type)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return bag_type(_row(call))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        names = (name for name, _ in _row(call).fields)
        by = (*changes.arguments[1:], changes.arguments[0])
        present = [] if self.nulls else [f"{changes.arguments[0]} IS NOT NULL"]
        value = engine.struct(zip(names, by, strict=True))
        return bag_of(engine, changes, value, _row(call), *present, by_place=False)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return merge_bags(engine, old, new, _row(call), by_place=False)

    def values(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        """The values of x in their order, each as often as it is there."""
        bag = f"COALESCE({kept}, {engine.empty(self.accumulator(call))})"
        key = comparable(engine, engine.field("__each", "v"), _row(call))
        item = self.accumulator(call).args[0]
        ordered = engine.sort_by(bag, "__each", key, item, descending=bool(call.parameters[0]))
        times = "1" if any(each is _ONCE for each in call.parameters[1:]) else engine.field("__each", "n")
        repeated = engine.repeat(engine.field("__each", "v", "x"), times)
        return engine.flatten(engine.transform(ordered, "__each", repeated))


class OrderedList(Ordered):
    """ARRAY_AGG(x ORDER BY y), COLLECT_LIST(x ORDER BY y): all values, nulls included."""

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self.values(engine, call, kept)


class OrderedText(Ordered):
    """STRING_AGG(text, separator ORDER BY y): the texts that are not NULL, joined; NULL over none."""

    nulls = False

    def in_order(
        self,
        arguments: tuple[exp.Expression, ...],
        types: tuple[SqlType, ...],
        constants: tuple[exp.Expression, ...],
        *,
        descending: bool,
    ) -> Bound:
        usage = "STRING_AGG(text, ', ' [ORDER BY …])"
        constants = constants or (exp.Literal.string(","),)
        if len(constants) != 1 or not isinstance(constants[0], exp.Literal) or not constants[0].is_string:
            raise TypeMismatch("STRING_AGG takes a text and a constant that separates", hint=usage)
        if types[0].base is not BaseType.VARCHAR:
            raise self.refuse(types[0], "VARCHAR")
        return Bound(arguments, types, (descending, constants[0].name), VARCHAR)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        texts = self.values(engine, call, kept)
        return engine.let(texts, "__texts", f"CASE WHEN {engine.size('__texts')} > 0 THEN {_joined(engine, call)} END")


class OrderedEnd(Ordered):
    """FIRST_VALUE(x ORDER BY y), LAST_VALUE(x ORDER BY y): the value of the first or last row, perhaps NULL."""

    def __init__(self, name: str, *, last: bool) -> None:
        super().__init__(name)
        self.last = last

    def type_of(self, sql_type: SqlType) -> SqlType:
        return sql_type

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        place = engine.size("__values") if self.last else "1"
        return engine.let(self.values(engine, call, kept), "__values", engine.get("__values", place))


def _row(call: AggregateCall) -> SqlType:
    """The type of an item: what it is ordered by, and x."""
    value, *by = call.argument_types
    return struct(*((f"o{place}", sql_type) for place, sql_type in enumerate(by)), ("x", value))


def _joined(engine: Engine, call: AggregateCall) -> str:
    separator = str(call.parameters[1]).replace("'", "''")
    return engine.join_texts("__texts", separator)
