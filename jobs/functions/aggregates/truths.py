"""BOOL_AND, EVERY, BOOL_OR, ANY: counts of TRUE and FALSE, so that a retraction is added with the opposite sign."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, Changes
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, BOOLEAN, BaseType, SqlType, struct


class AllOrAny(AggregateFunction):
    """BOOL_AND(x), EVERY(x), BOOL_OR(x), ANY(x): TRUE if x holds in all rows, or in one; NULL over no value.

        x                  BOOL_AND(x)  BOOL_OR(x)
        TRUE, NULL, FALSE  FALSE        TRUE

    Args:
        every: all of them; else one is enough.
    """

    retractable = True

    def __init__(self, name: str, *, every: bool) -> None:
        self.name = name
        self.every = every

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if sql_type.base is not BaseType.BOOLEAN:
            raise self.refuse(sql_type, "BOOLEAN")
        return Bound(arguments, types, (), BOOLEAN)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return struct(("yes", BIGINT), ("no", BIGINT))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        def count(condition: str) -> str:
            return engine.cast(f"COALESCE({changes.only(f'SUM({changes.weight})', condition)}, 0)", BIGINT)

        value = changes.arguments[0]
        return engine.struct([("yes", count(value)), ("no", count(f"NOT {value}"))])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return engine.struct(
            (part, f"COALESCE({engine.field(old, part)}, 0) + {engine.field(new, part)}") for part in ("yes", "no")
        )

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        decisive, other = ("no", "yes") if self.every else ("yes", "no")
        answer = "FALSE" if self.every else "TRUE"
        rest = f"WHEN {engine.field(kept, other)} > 0 THEN NOT {answer}"
        return f"CASE WHEN {engine.field(kept, decisive)} > 0 THEN {answer} {rest} END"
