"""MIN, MAX, MIN_BY, MAX_BY: the best row of a group.

Not linear: when the best row is retracted, the group is computed again. Ties of MIN_BY and MAX_BY are decided by the
value itself, so that the result is a function of the rows.
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.comparable import comparable
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import SORTABLE, AggregateFunction, Bound, Changes
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import SqlType, struct


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
        if sql_type.base not in SORTABLE:
            raise self.refuse(sql_type, "numbers, texts, bytes, dates and times")
        return Bound(arguments, types, (), sql_type)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return call.argument_types[0]

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        """NULL when no value was inserted."""
        return changes.came(self._best(changes.arguments[0]))

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return f"{'GREATEST' if self.greatest else 'LEAST'}({old}, {new})"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return kept

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return call.argument_types[0]

    def lost(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        return changes.went(self._best(changes.arguments[0]))

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return f"COALESCE({lost} {'>=' if self.greatest else '<='} {merged}, {lost} IS NOT NULL)"

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
        if by.base not in SORTABLE:
            raise self.refuse(by, "numbers, texts, bytes, dates and times to sort by")
        return Bound(arguments, types, (), sql_type)

    def accumulator(self, call: AggregateCall) -> SqlType:
        value, by = call.argument_types
        return struct(("by", by), ("v", value))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
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

    def lost(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        return changes.went(f"{'MAX' if self.greatest else 'MIN'}({changes.arguments[1]})")

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        beats = f"{lost} {'>=' if self.greatest else '<='} {engine.field(merged, 'by')}"
        return f"COALESCE({beats}, {lost} IS NOT NULL)"

    def _key(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        value = comparable(engine, engine.field(kept, "v"), call.argument_types[0])
        return engine.struct([("by", engine.field(kept, "by")), ("v", value)])
