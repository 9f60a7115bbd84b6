"""COLLECT_LIST, COLLECT_SET, HISTOGRAM, ATTR: aggregates that keep the values of a group in a bag.

Lists and sets are in the order of events where rows are events (a row of a table has the place of its newest event),
else in the order of the values.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.bag import bag_of, bag_type, merge_bags, values_in
from strandline.jobs.functions.aggregates.contract import ORDER_TYPE, AggregateFunction, Bound, Changes
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, VARCHAR, BaseType, SqlType, array, map_of


class _Collected(AggregateFunction):
    """A bag of the only argument's values. `by_place` and `in_order` are those of `jobs.functions.aggregates.bag`."""

    by_place = False
    nulls = True

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        return Bound(arguments, types, (), array(self.one_value(arguments, types)))

    def accumulator(self, call: AggregateCall) -> SqlType:
        return bag_type(call.argument_types[0])

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
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

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        repeated = engine.repeat(engine.field("__each", "v"), engine.field("__each", "n"))
        # Kept in the order of places and values.
        return engine.flatten(
            engine.transform(f"COALESCE({kept}, {engine.empty(self.accumulator(call))})", "__each", repeated)
        )


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

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return values_in(engine, kept, call.argument_types[0])

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return array(ORDER_TYPE)

    def lost(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        return changes.went(engine.items(changes.order), f"{changes.order} IS NOT NULL")

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return engine.overlap(engine.pluck(merged, "at"), lost)


class Histogram(_Collected):
    """HISTOGRAM(text): MAP<VARCHAR, BIGINT> from each value that is not null to its count, in the order of values.
    Linear; ksqlDB stops at a thousand values.

        x              HISTOGRAM(x)
        b, a, b, NULL  {a: 1, b: 2}
    """

    name = "HISTOGRAM"
    retractable = True
    nulls = False

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if sql_type.base is not BaseType.VARCHAR:
            raise self.refuse(sql_type, "VARCHAR")
        return Bound(arguments, types, (), map_of(VARCHAR, BIGINT))

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
