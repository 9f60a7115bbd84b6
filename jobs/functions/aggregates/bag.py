"""A bag, the accumulator of functions that must know all values: how often each value is in a group.

    Δ (weight)                  bag of the epoch              merged with (p 2), (q 1)
    p (+1), q (−1), r (+1)      (p 1), (q −1), (r 1)          (p 3), (r 1)

It is linear: a retraction is added as an insertion is, with the opposite sign, so the counts never need the group's
rows again. It holds every different value of a group in one row of the stage's table, and merging sorts it: some six
microseconds for each value of a touched group. What can be made of the values one by one has them in rows of their own
instead (`jobs.ivm.plan.by_value`).

An item is (v, n, at): the value, how often it is there, and its place in the order of events. A bag is either *by
place* (a value that came in two events is two items) or by value alone; `at` is then the first of its places, for
those who ask for places at all.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from strandline.jobs.engines.engine import Engine, comparable
from strandline.jobs.functions.aggregates.contract import (
    ORDER_TYPE,
    SORTABLE,
    AggregateFunction,
    Bound,
    GroupChanges,
    OverNothing,
    over_values,
)
from strandline.jobs.functions.aggregates.linear import Additive
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, DOUBLE, BaseType, SqlType, array, struct


def bag_type(sql_type: SqlType) -> SqlType:
    """The type of a bag of such values."""
    return array(_item_type(sql_type))


def bag_of(
    engine: Engine,
    changes: GroupChanges,
    value: str,
    sql_type: SqlType,
    *present: str,
    at: str | None = None,
    by_place: bool,
) -> str:
    """Aggregate: the items of some changes, to be merged with a bag: of a value one for what came, and one for what
    went. Of insertions alone it is their bag.

    Args:
        present: conditions on the changes that count.
        at: the order of events; None where places do not matter.
    """
    place = at or engine.cast("NULL", ORDER_TYPE)
    item = engine.struct([("v", value), ("n", engine.cast(changes.weight, BIGINT)), ("at", place)])
    items = f"COALESCE({changes.only(engine.items(item), *present)}, {engine.empty(bag_type(sql_type))})"
    return _counted(engine, items, sql_type, by_place=by_place)


def merge_bags(engine: Engine, old: str, new: str, sql_type: SqlType, *, by_place: bool) -> str:
    """Both bags as one, without the values whose count is zero; `old` may be NULL."""
    both = engine.concat(f"COALESCE({old}, {engine.empty(bag_type(sql_type))})", new)
    united = _united(engine, both, sql_type, by_place=by_place)
    return engine.keep(united, "__each", f"{engine.field('__each', 'n')} <> 0")


def values_in(engine: Engine, bag: str, sql_type: SqlType) -> str:
    """The different values in the order of their places, then of themselves; empty for a bag that is NULL."""
    key = _key(engine, "__each", sql_type, by_place=True)
    items = f"COALESCE({bag}, {engine.empty(bag_type(sql_type))})"
    return engine.pluck(engine.sort_by(items, "__each", key, _item_type(sql_type)), "v")


def _item_type(sql_type: SqlType) -> SqlType:
    return struct(("v", sql_type), ("n", BIGINT), ("at", ORDER_TYPE))


def _key(engine: Engine, item: str, sql_type: SqlType, *, by_place: bool) -> str:
    value = comparable(engine, engine.field(item, "v"), sql_type)
    return engine.struct([("at", engine.field(item, "at")), ("v", value)]) if by_place else value


def _counted(engine: Engine, rows: str, sql_type: SqlType, *, by_place: bool) -> str:
    """The items of rows, whose `n` is 1 or −1, in their order: of a value (and place) one of its insertions, and one of
    its retractions."""

    def count_of(nth: Callable[[int], str], size: str) -> str:
        one = nth(0)
        count = engine.cast(f"CASE WHEN {_is_gone(engine, one)} THEN -({size}) ELSE {size} END", BIGINT)
        return engine.struct([("v", engine.field(one, "v")), ("n", count), ("at", engine.field(one, "at"))])

    key = _key(engine, "__each", sql_type, by_place=by_place)
    whole = engine.struct([("key", key), ("gone", _is_gone(engine, "__each"))])
    return _runs(engine, _ordered(engine, rows, sql_type, by_place=by_place), whole, count_of)


def _united(engine: Engine, items: str, sql_type: SqlType, *, by_place: bool) -> str:
    """One item per value (and place), in their order, of three at most: those stored, inserted and retracted.

    By value alone, its place is the first place of an insertion. A retraction gives none, even of a row that was
    inserted in the same epoch: a function that uses places must find out by itself that the first one is gone.
    """

    def sum_of(nth: Callable[[int], str], size: str) -> str:
        one = nth(0)
        others = (f"CASE WHEN {size} > {n} THEN {engine.field(nth(n), 'n')} ELSE 0 END" for n in (1, 2))
        count = engine.cast(" + ".join([engine.field(one, "n"), *others]), BIGINT)
        at = engine.field(one, "at")
        place = at if by_place else f"CASE WHEN NOT {_is_gone(engine, one)} THEN {at} END"
        return engine.struct([("v", engine.field(one, "v")), ("n", count), ("at", place)])

    key = _key(engine, "__each", sql_type, by_place=by_place)
    return _runs(engine, _ordered(engine, items, sql_type, by_place=by_place), key, sum_of)


def _is_gone(engine: Engine, item: str) -> str:
    return f"({engine.field(item, 'n')} <= 0)"


def _ordered(engine: Engine, items: str, sql_type: SqlType, *, by_place: bool) -> str:
    """The items by value (and place); of a value first those inserted, by their places."""
    at = engine.field("__each", "at")
    key = _key(engine, "__each", sql_type, by_place=by_place)
    order = [("key", key), ("gone", _is_gone(engine, "__each")), ("p", f"{at} IS NULL"), ("at", at)]
    return engine.sort_by(items, "__each", engine.struct(order), _item_type(sql_type))


def _runs(engine: Engine, ordered: str, key: str, made: Callable[[Callable[[int], str], str], str]) -> str:
    """What is made of each run of items with equal keys: of its items, from the 0-th on, and of their number.

    A run is known by where it starts and ends. DuckDB copies the whole array for each part of it that a lambda takes:
    that made a bag of ten thousand values cost a minute.

    Args:
        key: of the item `__each`.
    """
    keys = engine.transform("__all", "__each", key)
    this, before = engine.get("__keys", "__place"), engine.get("__keys", "__place - 1")
    starts = engine.keep(engine.places("__keys"), "__place", f"__place = 1 OR {this} IS DISTINCT FROM {before}")
    start, end = engine.get("__starts", "__nr"), engine.get("__starts", "__nr + 1")
    size = f"(COALESCE({end}, {engine.size('__all')} + 1) - {start})"
    runs = engine.transform(
        engine.places("__starts"), "__nr", made(lambda nth: engine.get("__all", f"{start} + {nth}"), size)
    )
    return engine.let(ordered, "__all", engine.let(engine.let(keys, "__keys", starts), "__starts", runs))


# MODE, PERCENTILE_CONT, PERCENTILE_DISC, BIT_AND, BIT_OR, BIT_XOR: aggregates over a bag of the group's values.
#
# A bag keeps how often each value is there, so that a retraction is added with the opposite sign. NULL is no value,
# and over no value each is NULL.


class _OfValues(AggregateFunction):
    """A bag of the values of the only argument that are not NULL."""

    retractable = True

    @abstractmethod
    def accepts(self, sql_type: SqlType) -> str | None:
        """What the function takes, in words, when it does not take that type."""

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        wanted = self.accepts(sql_type)
        if wanted is not None:
            raise self.refuse(sql_type, wanted)
        return Bound(arguments, types, (), sql_type)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return bag_type(call.argument_types[0])

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        value = changes.arguments[0]
        return bag_of(engine, changes, value, call.argument_types[0], f"{value} IS NOT NULL", by_place=False)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return merge_bags(engine, old, new, call.argument_types[0], by_place=False)


class Mode(_OfValues):
    """MODE(x), MODE() WITHIN GROUP (ORDER BY x): the most frequent value; of several the smallest.

    x                MODE(x)
    a, b, b, NULL    b
    """

    name = "MODE"

    def accepts(self, sql_type: SqlType) -> str | None:
        return None if sql_type.base in (*SORTABLE, BaseType.BOOLEAN) else "plain values"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        value = comparable(engine, engine.field("__each", "v"), call.argument_types[0])
        key = engine.struct([("n", f"-({engine.field('__each', 'n')})"), ("v", value)])
        item = self.accumulator(call).args[0]
        return engine.field(engine.get(engine.sort_by(kept, "__each", key, item), "1"), "v")

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        types = (*call.argument_types, BIGINT)
        return replace(call, function=MostFrequent.name, arguments=(*values, count), argument_types=types)


class MostFrequent(AggregateFunction):
    """MODE over the different values of a group, with how often each is there. No call of a query is bound to it.

    When the most frequent value becomes less frequent, the group is computed again, from its values.
    """

    name = "MODE OF VALUES"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        raise TypeMismatch("MODE takes one argument", hint="MODE(column)")

    def accumulator(self, call: AggregateCall) -> SqlType:
        return struct(("n", BIGINT), ("v", call.argument_types[0]))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        """NULL when no value came."""
        value, count = changes.arguments
        row = engine.struct([("n", count), ("v", value)])
        return changes.came(engine.oldest(row, self._order(engine, call, value, count)))

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        a, b = (self._order(engine, call, engine.field(one, "v"), engine.field(one, "n")) for one in (old, new))
        return f"CASE WHEN {old} IS NULL THEN {new} WHEN {new} IS NULL OR {a} < {b} THEN {old} ELSE {new} END"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return engine.field(kept, "v")

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return BIGINT

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return changes.went(f"MAX({changes.arguments[1]})")

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return f"COALESCE({lost} >= {engine.field(merged, 'n')}, {lost} IS NOT NULL)"

    def _order(self, engine: Engine, call: AggregateCall, value: str, count: str) -> str:
        return engine.struct([("n", f"-({count})"), ("v", comparable(engine, value, call.argument_types[0]))])


class Percentile(_OfValues):
    """PERCENTILE_CONT(f) and PERCENTILE_DISC(f) WITHIN GROUP (ORDER BY x [DESC]), as in PostgreSQL.

    CONT goes between the two values around f · (n − 1), and is a DOUBLE; DISC is the first value with a share of at
    least f of the values up to it. `parameters` are (f as text, whether the order goes down).

        x           PERCENTILE_CONT(0.5)   PERCENTILE_DISC(0.5)
        1, 2, 3, 9  2.5                    2
    """

    def __init__(self, name: str, *, between: bool) -> None:
        self.name = name
        self.between = between

    def accepts(self, sql_type: SqlType) -> str | None:
        if self.between:
            return None if sql_type.is_numeric else "numbers"
        return None if sql_type.base in SORTABLE else "numbers, texts, bytes, dates and times"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        raise TypeMismatch(f"{self.name} needs WITHIN GROUP", hint=f"{self.name}(0.5) WITHIN GROUP (ORDER BY column)")

    def within(
        self, value: exp.Expression, sql_type: SqlType, constants: tuple[exp.Expression, ...], *, descending: bool
    ) -> Bound:
        """Check a call with its ORDER BY.

        Raises:
            TypeMismatch: the fraction is no constant from 0 to 1, or the values are of another type.
        """
        wanted = self.accepts(sql_type)
        if wanted is not None:
            raise self.refuse(sql_type, wanted)
        fraction = _fraction(constants[0]) if len(constants) == 1 else None
        if fraction is None:
            raise TypeMismatch(f"{self.name} takes a constant from 0 to 1", hint=f"{self.name}(0.5) WITHIN GROUP (…)")
        result = DOUBLE if self.between else sql_type
        return Bound((value,), (sql_type,), (str(fraction), descending), result)

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        return over_values(call, values, count)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        value = f"CAST({engine.field('__each', 'v')} AS DOUBLE)" if self.between else engine.field("__each", "v")
        every = engine.flatten(engine.transform(kept, "__each", engine.repeat(value, engine.field("__each", "n"))))
        every = engine.reverse(every) if call.parameters[1] else every
        size = engine.size("__all")
        found = _between(engine, size, call) if self.between else _discrete(engine, size, call)
        return engine.let(every, "__all", f"CASE WHEN {size} > 0 THEN {found} END")


class Bits(_OfValues):
    """BIT_AND(x), BIT_OR(x), BIT_XOR(x) of whole numbers.

    x       BIT_AND  BIT_OR  BIT_XOR
    6, 3, 3 2        7       6
    """

    def __init__(self, name: str, operator: str) -> None:
        self.name = name
        self.operator = operator

    def accepts(self, sql_type: SqlType) -> str | None:
        return None if sql_type.base in (BaseType.INT, BaseType.BIGINT) else "INT and BIGINT"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        # In XOR a pair of equal values is nothing.
        odd = engine.keep(kept, "__each", f"{engine.field('__each', 'n')} % 2 = 1") if self.operator == "^" else kept
        values = engine.transform(odd, "__each", engine.cast(engine.field("__each", "v"), BIGINT))
        found = engine.bits(values, self.operator)
        return f"CASE WHEN {engine.size(kept)} > 0 THEN {found} END"


def _fraction(node: exp.Expression) -> Decimal | None:
    try:
        value = Decimal(node.name) if isinstance(node, exp.Literal) and not node.is_string else None
    except InvalidOperation:
        return None
    return value if value is not None and 0 <= value <= 1 else None


def _between(engine: Engine, size: str, call: AggregateCall) -> str:
    place = f"({call.parameters[0]} * ({size} - 1))"
    low, high = (f"CAST({side}({place}) AS INT) + 1" for side in ("floor", "ceil"))
    start, end = engine.get("__all", low), engine.get("__all", high)
    share = f"(CAST({place} AS DOUBLE) - floor(CAST({place} AS DOUBLE)))"
    # An infinity beside itself has no distance.
    return f"CASE WHEN {start} = {end} THEN {start} ELSE {start} + ({end} - {start}) * {share} END"


def _discrete(engine: Engine, size: str, call: AggregateCall) -> str:
    return engine.get("__all", f"CAST(greatest(ceil({call.parameters[0]} * {size}), 1) AS INT)")


# COUNT, SUM, AVG over DISTINCT values: exact, linear, from a bag of the group's different values.
#
# A group keeps all of its different values (`jobs.functions.aggregates.bag` says how many that may be).


class _OverDistinct(AggregateFunction):
    """The base of functions over a bag of the values that are not null."""

    retractable = True

    def bind(
        self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...], *, distinct: bool = False
    ) -> Bound:
        return self.check(arguments, types)

    @abstractmethod
    def value_type(self, call: AggregateCall) -> SqlType:
        """The type of a value of the bag."""

    def accumulator(self, call: AggregateCall) -> SqlType:
        return bag_type(self.value_type(call))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        present = [f"{argument} IS NOT NULL" for argument in changes.arguments]
        value = changes.arguments[0]
        if len(changes.arguments) > 1:
            names = (name for name, _ in self.value_type(call).fields)
            value = engine.struct(zip(names, changes.arguments, strict=True))
        return bag_of(engine, changes, value, self.value_type(call), *present, by_place=False)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return merge_bags(engine, old, new, self.value_type(call), by_place=False)


class CountDistinct(_OverDistinct):
    """COUNT_DISTINCT(x), COUNT(DISTINCT x [, y, …]): how many different values, or combinations without a NULL.

    Exact, where ksqlDB's COUNT_DISTINCT is a sketch.

        x             COUNT_DISTINCT(x)
        a, b, a, NULL 2
    """

    name = "COUNT_DISTINCT"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        if not arguments or any(isinstance(argument, exp.Star) for argument in arguments):
            raise TypeMismatch("COUNT_DISTINCT takes columns", hint="COUNT_DISTINCT(column), COUNT(DISTINCT a, b)")
        return Bound(arguments, tuple(self.known(sql_type) for sql_type in types), (), BIGINT)

    def value_type(self, call: AggregateCall) -> SqlType:
        if len(call.argument_types) == 1:
            return call.argument_types[0]
        return struct(*((f"v{number}", sql_type) for number, sql_type in enumerate(call.argument_types)))

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        return replace(call, function="COUNT", arguments=values, distinct=False)

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "zero"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return f"COALESCE({engine.size(kept)}, 0)"


class AdditiveDistinct(_OverDistinct):
    """SUM(DISTINCT x), AVG(DISTINCT x): each different value once, however often it is there.

    Args:
        plain: the function without DISTINCT.
    """

    def __init__(self, plain: Additive) -> None:
        self.name = plain.name
        self.plain = plain

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        return self.plain.check(arguments, types)

    def value_type(self, call: AggregateCall) -> SqlType:
        return call.argument_types[0]

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        # A sum of DOUBLE depends on the order in which its values came and went.
        exact = self.plain.kept_type(call).base is not BaseType.DOUBLE
        return replace(call, function=self.name, arguments=values, distinct=False) if exact else None

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        sql_type = self.plain.kept_type(call)
        values = engine.cast(engine.pluck(kept, "v"), array(sql_type))
        return self.plain.shown(engine, call, engine.total(values, sql_type), f"COALESCE({engine.size(kept)}, 0)")


class WithDistinct(AggregateFunction):
    """One function name with two ways to maintain it: without DISTINCT and after it.

    Args:
        plain: for `name(x)`.
        distinct: for `name(DISTINCT x)`.
    """

    def __init__(self, plain: AggregateFunction, distinct: AggregateFunction) -> None:
        self.name = plain.name
        self.retractable = plain.retractable
        self.ordered = plain.ordered or distinct.ordered
        self.by_place = plain.by_place
        self.plain = plain
        self.distinct = distinct

    def bind(
        self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...], *, distinct: bool = False
    ) -> Bound:
        return (self.distinct if distinct else self.plain).bind(arguments, types)

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        return self.plain.check(arguments, types)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return self._of(call).accumulator(call)

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return self._of(call).add(engine, call, changes)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return self._of(call).merge(engine, call, old, new)

    def combine(self, engine: Engine, call: AggregateCall, kept: str) -> str | None:
        return self._of(call).combine(engine, call, kept)

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return self._of(call).over_nothing(call)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self._of(call).result(engine, call, kept)

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        return self._of(call).of_values(call, values, count)

    def null_values(self, call: AggregateCall) -> tuple[bool, ...]:
        return self._of(call).null_values(call)

    def form(self, call: AggregateCall) -> int:
        return self._of(call).form(call)

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return self._of(call).lost_type(call)

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        return self._of(call).lost(engine, call, changes)

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return self._of(call).must_recompute(engine, call, merged, lost)

    def _of(self, call: AggregateCall) -> AggregateFunction:
        return self.distinct if call.distinct else self.plain
