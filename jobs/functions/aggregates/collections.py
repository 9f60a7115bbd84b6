"""COLLECT_LIST, COLLECT_SET, HISTOGRAM, ATTR: aggregates that keep the values of a group in a bag.

Lists and sets are in the order of events where rows are events (a row of a table has the place of its newest event),
else in the order of the values.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.engines.engine import Engine, comparable_row
from strandline.jobs.functions.aggregates.bag import bag_of, bag_type, merge_bags, values_in
from strandline.jobs.functions.aggregates.contract import (
    ORDER_TYPE,
    AggregateFunction,
    Bound,
    GroupChanges,
    OverNothing,
    over_values,
)
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, VARCHAR, BaseType, SqlType, array, map_of, struct


class _Collected(AggregateFunction):
    """A bag of the only argument's values. `by_place` and `in_order` are those of `jobs.functions.aggregates.bag`."""

    by_place = False
    nulls = True

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        return Bound(arguments, types, (), array(self.one_value(arguments, types)))

    def accumulator(self, call: AggregateCall) -> SqlType:
        return bag_type(call.argument_types[0])

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        value, sql_type = changes.arguments[0], call.argument_types[0]
        present = [] if self.nulls else [f"{value} IS NOT NULL"]
        at = changes.order if self.ordered else None
        return bag_of(engine, changes, value, sql_type, *present, at=at, by_place=self.by_place)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return merge_bags(engine, old, new, call.argument_types[0], by_place=self.by_place)


class CollectList(_Collected):
    """COLLECT_LIST(x), ARRAY_AGG(x): ARRAY of all values in their order, nulls included; empty over none. Linear.

    x in the order of events   COLLECT_LIST(x)
    b, NULL, a, b              [b, NULL, a, b]
    """

    retractable = True
    ordered = True
    by_place = True

    def __init__(self, name: str) -> None:
        self.name = name

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "empty"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        repeated = engine.repeat(engine.field("__each", "v"), engine.field("__each", "n"))
        # Kept in the order of places and values.
        return engine.flatten(
            engine.transform(f"COALESCE({kept}, {engine.empty(self.accumulator(call))})", "__each", repeated)
        )

    def null_values(self, call: AggregateCall) -> tuple[bool, ...]:
        return (True,) * len(call.arguments)

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        """The list in the order of places, which are the other arguments."""
        return replace(over_values(call, values, count), parameters=(False,))

    def of_list(self, engine: Engine, call: AggregateCall, values: str) -> str:
        """What is shown of the values in their order: they are."""
        return values

    def once(self, call: AggregateCall) -> bool:
        """True if each value counts once."""
        return False


class CollectSet(_Collected):
    """COLLECT_SET(x), COLLECT_LIST(DISTINCT x): ARRAY of the different values, NULL included, in the order of their
    first events; empty over none.

    Counts are linear; the group is computed again when the row that gives a value its place is retracted.

        x in the order of events   COLLECT_SET(x)
        b, NULL, a, b              [b, NULL, a]
    """

    ordered = True

    def __init__(self, name: str) -> None:
        self.name = name

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "empty"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return values_in(engine, kept, call.argument_types[0])

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return array(ORDER_TYPE)

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return changes.went(engine.items(changes.order), f"{changes.order} IS NOT NULL")

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return engine.overlap(engine.pluck(merged, "at"), lost)


class Histogram(_Collected):
    """HISTOGRAM(x): MAP<VARCHAR, BIGINT> from each value that is not null to its count, in the order of values; of
    whole numbers, BOOLEANs, DATEs and TIMESTAMPs a MAP from those.
    Linear; ksqlDB stops at a thousand values.

        x              HISTOGRAM(x)
        b, a, b, NULL  {a: 1, b: 2}
    """

    name = "HISTOGRAM"
    taken = (
        *(BaseType.VARCHAR, BaseType.INT, BaseType.BIGINT),
        *(BaseType.BOOLEAN, BaseType.DATE, BaseType.TIMESTAMP),
    )
    retractable = True
    nulls = False

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if sql_type.base not in self.taken:
            raise self.refuse(sql_type, "VARCHAR, whole numbers, BOOLEANs, DATEs and TIMESTAMPs")
        return Bound(arguments, types, (), map_of(sql_type, BIGINT))

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        return over_values(call, values, count)

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "empty"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        entry = engine.struct([("k", engine.field("__each", "v")), ("v", engine.field("__each", "n"))])
        items = f"COALESCE({kept}, {engine.empty(self.accumulator(call))})"
        return engine.map_of(engine.transform(items, "__each", entry))


class Attr(_Collected):
    """ATTR(x): the value that all rows of the group have; NULL when there are several, NULL being one. Linear.

    x        ATTR(x)
    a, a     a
    a, NULL  NULL
    """

    name = "ATTR"
    retractable = True

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        return Bound(arguments, types, (), self.one_value(arguments, types))

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return f"CASE WHEN {engine.size(kept)} = 1 THEN {engine.field(engine.get(kept, '1'), 'v')} END"


# Aggregates over a group's values in an order: ARRAY_AGG(x ORDER BY y), STRING_AGG, FIRST_VALUE, LAST_VALUE.
#
# A bag keeps how often each (y, …, x) is there, so that a retraction is added with the opposite sign. Rows that the
# order does not tell apart follow their x. `parameters` begin with the order: True where it goes down. NULL is below
# all values.
#
#     y  x     ARRAY_AGG(x ORDER BY y DESC)
#     1  a
#     2  b
#     1  NULL  [b, a, NULL]

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

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        names = (name for name, _ in _row(call).fields)
        by = (*changes.arguments[1:], changes.arguments[0])
        present = [] if self.nulls else [f"{changes.arguments[0]} IS NOT NULL"]
        value = engine.struct(zip(names, by, strict=True))
        return bag_of(engine, changes, value, _row(call), *present, by_place=False)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return merge_bags(engine, old, new, _row(call), by_place=False)

    def null_values(self, call: AggregateCall) -> tuple[bool, ...]:
        return (self.nulls, *(True for _ in call.arguments[1:]))

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        return over_values(call, values, count)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self.of_list(engine, call, self.values(engine, call, kept))

    @abstractmethod
    def of_list(self, engine: Engine, call: AggregateCall, values: str) -> str:
        """What is shown of the values in their order, which are an array."""

    def once(self, call: AggregateCall) -> bool:
        """True if each value counts once."""
        return any(each is _ONCE for each in call.parameters[1:])

    def values(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        """The values of x in their order, each as often as it is there."""
        bag = f"COALESCE({kept}, {engine.empty(self.accumulator(call))})"
        key = comparable_row(engine, engine.field("__each", "v"), _row(call))
        item = self.accumulator(call).args[0]
        ordered = engine.sort_by(bag, "__each", key, item, descending=bool(call.parameters[0]))
        times = "1" if self.once(call) else engine.field("__each", "n")
        repeated = engine.repeat(engine.field("__each", "v", "x"), times)
        return engine.flatten(engine.transform(ordered, "__each", repeated))


class OrderedList(Ordered):
    """ARRAY_AGG(x ORDER BY y), COLLECT_LIST(x ORDER BY y): all values, nulls included."""

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "empty"

    def of_list(self, engine: Engine, call: AggregateCall, values: str) -> str:
        return values


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

    def of_list(self, engine: Engine, call: AggregateCall, values: str) -> str:
        return engine.let(values, "__texts", f"CASE WHEN {engine.size('__texts')} > 0 THEN {_joined(engine, call)} END")


class OrderedEnd(Ordered):
    """FIRST_VALUE(x ORDER BY y), LAST_VALUE(x ORDER BY y): the value of the first or last row, perhaps NULL."""

    def __init__(self, name: str, *, last: bool) -> None:
        super().__init__(name)
        self.last = last

    def type_of(self, sql_type: SqlType) -> SqlType:
        return sql_type

    def of_list(self, engine: Engine, call: AggregateCall, values: str) -> str:
        place = engine.size("__values") if self.last else "1"
        return engine.let(values, "__values", engine.get("__values", place))


def _row(call: AggregateCall) -> SqlType:
    """The type of an item: what it is ordered by, and x."""
    value, *by = call.argument_types
    return struct(*((f"o{place}", sql_type) for place, sql_type in enumerate(by)), ("x", value))


def _joined(engine: Engine, call: AggregateCall) -> str:
    separator = str(call.parameters[1]).replace("'", "''")
    return engine.join_texts("__texts", separator)
