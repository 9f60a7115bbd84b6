"""COUNT, SUM, AVG over DISTINCT values: exact, linear, from a bag of the group's different values.

A group keeps all of its different values (`jobs.functions.aggregates.bag` says how many that may be).
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.bag import bag_of, bag_type, merge_bags
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, Changes
from strandline.jobs.functions.aggregates.linear import Additive
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, SqlType, array, struct


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

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
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

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        return self._of(call).add(engine, call, changes)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return self._of(call).merge(engine, call, old, new)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self._of(call).result(engine, call, kept)

    def form(self, call: AggregateCall) -> int:
        return self._of(call).form(call)

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return self._of(call).lost_type(call)

    def lost(self, engine: Engine, call: AggregateCall, changes: Changes) -> str | None:
        return self._of(call).lost(engine, call, changes)

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return self._of(call).must_recompute(engine, call, merged, lost)

    def _of(self, call: AggregateCall) -> AggregateFunction:
        return self.distinct if call.distinct else self.plain
