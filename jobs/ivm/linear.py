"""Linear aggregate functions: their accumulators add up, so that a row can be taken away as it came.

COUNT, SUM, AVG. Exact for integers and decimals: an overflow is an error of the engine, never a wrap.
Sums of DOUBLE are kept additively and agree with a recomputation up to rounding; the sum starts again from zero when
the last value of a group is taken away, so that nothing drifts for ever.
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp

from jobs.errors import TypeMismatch
from jobs.ivm.aggregate_function import AggregateFunction, Bound, Changes
from jobs.ivm.engine import Engine
from jobs.ivm.stage import AggregateCall
from jobs.sql.types import BIGINT, DOUBLE, MAX_PRECISION, Kind, SqlType, as_decimal, struct

# Spark widens the sum of two decimals by a digit and, at 38, takes that digit from the scale. Adding two of 37 digits
# stays exact, so a sum may have 37: one that needs all 38 is reported as an overflow.
_EXACT_ADDENDS = MAX_PRECISION - 1
# Ten more digits hold the sum of 10^10 values of any size: what Spark gives SUM as well.
_SUM_DIGITS = 10


class Count(AggregateFunction):
    """COUNT(*), COUNT(x): rows, or rows where x is not null."""

    name = "COUNT"
    retractable = True

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        if not arguments or (len(arguments) == 1 and isinstance(arguments[0], exp.Star)):
            return Bound((), (), (), BIGINT)
        if len(arguments) != 1:
            raise TypeMismatch(f"COUNT takes one argument or *, not {len(arguments)}", hint="COUNT(*)")
        return Bound(arguments, types, (), BIGINT)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return BIGINT

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        present = [f"{argument} IS NOT NULL" for argument in changes.arguments]
        return engine.cast(f"COALESCE({changes.only(f'SUM({changes.weight})', *present)}, 0)", BIGINT)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return f"COALESCE({old}, 0) + {new}"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return kept


class _Additive(AggregateFunction):
    """What SUM and AVG share: the sum of the values that are not null, and how many they are."""

    retractable = True

    @abstractmethod
    def sum_type(self, kind: SqlType) -> SqlType:
        """In which the values of that type are added up."""

    def accumulator(self, call: AggregateCall) -> SqlType:
        return struct(("sum", self.sum_type(call.argument_types[0])), ("n", BIGINT))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        kind = self.sum_type(call.argument_types[0])
        value = changes.arguments[0]
        if kind.kind is Kind.DECIMAL:
            value = engine.cast(value, as_decimal(call.argument_types[0]))
        elif kind.kind is Kind.BIGINT:
            value = engine.cast(value, BIGINT)
        # Not `value * weight`: the product of a wide decimal and a number loses digits.
        signed = f"CASE WHEN {changes.weight} < 0 THEN -({value}) ELSE {value} END"
        total = f"COALESCE({changes.only(f'SUM({signed})')}, 0)"
        present = f"COALESCE({changes.only(f'SUM({changes.weight})', f'{changes.arguments[0]} IS NOT NULL')}, 0)"
        return engine.struct([("sum", engine.cast(total, kind)), ("n", engine.cast(present, BIGINT))])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        kind = self.sum_type(call.argument_types[0])
        addend = kind
        if kind.kind is Kind.DECIMAL:
            addend = SqlType(Kind.DECIMAL, precision=min(kind.precision, _EXACT_ADDENDS), scale=kind.scale)
        zero = engine.cast("0", kind)
        left = engine.cast(f"COALESCE({engine.field(old, 'sum')}, {zero})", addend)
        right = engine.cast(engine.field(new, "sum"), addend)
        count = f"COALESCE({engine.field(old, 'n')}, 0) + {engine.field(new, 'n')}"
        total = engine.cast(f"CASE WHEN {count} = 0 THEN {zero} ELSE {left} + {right} END", kind)
        return engine.struct([("sum", total), ("n", count)])


class Sum(_Additive):
    """SUM(x): BIGINT for integers, DECIMAL with ten more digits for decimals, DOUBLE; NULL over no value."""

    name = "SUM"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        kind = self.one_value(arguments, types)
        if not kind.is_numeric:
            raise self.refuse(kind, "numbers")
        return Bound(arguments, types, (), self.sum_type(kind))

    def sum_type(self, kind: SqlType) -> SqlType:
        if kind.kind is Kind.DECIMAL:
            precision = min(kind.precision + _SUM_DIGITS, MAX_PRECISION)
            return SqlType(Kind.DECIMAL, precision=precision, scale=kind.scale)
        return DOUBLE if kind.kind is Kind.DOUBLE else BIGINT

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return f"CASE WHEN {engine.field(kept, 'n')} > 0 THEN {engine.field(kept, 'sum')} END"


class Avg(_Additive):
    """AVG(x): DOUBLE, of an exact sum where x is exact; NULL over no value."""

    name = "AVG"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        kind = self.one_value(arguments, types)
        if not kind.is_numeric:
            raise self.refuse(kind, "numbers")
        return Bound(arguments, types, (), DOUBLE)

    def sum_type(self, kind: SqlType) -> SqlType:
        if kind.kind is Kind.BIGINT:
            # The mean of a few thousand large BIGINTs (microseconds since 1970) fits where their sum does not.
            return SqlType(Kind.DECIMAL, precision=MAX_PRECISION)
        return Sum().sum_type(kind)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        count = engine.field(kept, "n")
        return f"CASE WHEN {count} > 0 THEN {engine.cast(engine.field(kept, 'sum'), DOUBLE)} / {count} END"
