"""Linear aggregate functions: their accumulators add up, so that a retraction is added with the opposite sign.

COUNT, SUM, AVG, SUM_LIST. Exact for integers and decimals: an overflow is an error of the engine,
never a wrap. Sums of DOUBLE (`jobs.functions.aggregates.doubles`) agree with a recomputation up to rounding; a group
that lost too many digits by a retraction is computed again.
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp

from strandline.jobs.engines.arrays import addend
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates import doubles
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, GroupChanges, OverNothing
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    MAX_PRECISION,
    BaseType,
    SqlType,
    array,
    as_decimal,
    struct,
)

WHEN_EMPTY = "when empty"
"""Parameter of a call that gives ksqlDB's value where SQL has none: 0, or NaN."""

NULL_BEYOND = "null beyond"
"""Parameter of a call whose result is NULL while it is out of its type's range, and back when it is not: the sum is
kept exactly meanwhile. Calls have it in views with ERRORS = 'null'."""
FORM = 4
"""The form of sums of integers that are kept as a DECIMAL."""

# Ten more digits hold the sum of 10^10 values of any size, as in Spark's SUM.
_SUM_DIGITS = 10


_EXACT = SqlType(BaseType.DECIMAL, precision=MAX_PRECISION)


def result_text(engine: Engine, call: AggregateCall, value: str) -> str:
    """The visible value of a call, as exactly its type: NULL beyond its range, where the call says so."""
    return engine.cast_or_null(value, call.type) if NULL_BEYOND in call.parameters else engine.cast(value, call.type)


def _is_widened(call: AggregateCall, sum_type: SqlType) -> bool:
    return NULL_BEYOND in call.parameters and sum_type == BIGINT


class Count(AggregateFunction):
    """COUNT(*), COUNT(x): rows, or rows where x is not null.

    x     COUNT(*)  COUNT(x)
    3
    NULL  2         1
    """

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

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        present = [f"{argument} IS NOT NULL" for argument in changes.arguments]
        return engine.cast(f"COALESCE({changes.only(f'SUM({changes.weight})', *present)}, 0)", BIGINT)

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return f"COALESCE({old}, 0) + {new}"

    def combine(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return engine.cast(f"SUM({kept})", BIGINT)

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "zero"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return f"COALESCE({kept}, 0)"


class Additive(AggregateFunction):
    """The base of SUM, AVG and SUM_LIST: the sum of the values that are not null, and their number.

    Args:
        ksql: ksqlDB's way: 0 over no value, and SUM has the type of a decimal argument, however many are added.
    """

    retractable = True

    def __init__(self, *, ksql: bool = False) -> None:
        self.ksql = ksql

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if not sql_type.is_numeric:
            raise self.refuse(sql_type, "numbers")
        return Bound(arguments, types, self.variant(), self.result_type(sql_type))

    def variant(self) -> tuple[str, ...]:
        """The parameters of a call."""
        return (WHEN_EMPTY,) if self.ksql else ()

    @abstractmethod
    def result_type(self, sql_type: SqlType) -> SqlType:
        """The type of the result, for values of that type."""

    def value_type(self, call: AggregateCall) -> SqlType:
        """The type of the values that are added up."""
        return call.argument_types[0]

    def value(self, engine: Engine, call: AggregateCall, argument: str) -> str:
        """The value that a row adds, in terms of its argument; NULL adds nothing."""
        return argument

    def accumulator(self, call: AggregateCall) -> SqlType:
        if self._of_doubles(call):
            return doubles.sums_type()
        return struct(("sum", self.kept_type(call)), ("n", BIGINT))

    def kept_type(self, call: AggregateCall) -> SqlType:
        """The type in which the values of a call are added up."""
        found = self.sum_type(self.value_type(call))
        return _EXACT if _is_widened(call, found) else found

    def form(self, call: AggregateCall) -> int:
        if _is_widened(call, self.sum_type(self.value_type(call))):
            return FORM
        return doubles.FORM if self._of_doubles(call) else super().form(call)

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return BIGINT if self._of_doubles(call) else None

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        if not self._of_doubles(call):
            return None
        return doubles.retracted(engine, changes, self.value(engine, call, changes.arguments[0]))

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return doubles.is_worn(engine, merged, lost)

    def _of_doubles(self, call: AggregateCall) -> bool:
        return self.sum_type(self.value_type(call)).base is BaseType.DOUBLE

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        sql_type = self.kept_type(call)
        value = self.value(engine, call, changes.arguments[0])
        if self._of_doubles(call):
            return doubles.added(engine, changes, value)
        if sql_type.base is BaseType.DECIMAL:
            value = engine.cast(value, as_decimal(self.value_type(call)))
        elif sql_type.base is BaseType.BIGINT:
            value = engine.cast(value, BIGINT)
        # Not `value * weight`: the product of a wide decimal and a number loses digits.
        signed = f"CASE WHEN {changes.weight} < 0 THEN -({value}) ELSE {value} END"
        total = f"COALESCE({changes.only(f'SUM({signed})')}, 0)"
        present = f"COALESCE({changes.only(f'SUM({changes.weight})', f'{changes.arguments[0]} IS NOT NULL')}, 0)"
        return engine.struct([("sum", engine.cast(total, sql_type)), ("n", engine.cast(present, BIGINT))])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        if self._of_doubles(call):
            return doubles.merged(engine, old, new)
        sql_type = self.kept_type(call)
        zero = engine.cast("0", sql_type)
        left = engine.cast(f"COALESCE({engine.field(old, 'sum')}, {zero})", addend(sql_type))
        right = engine.cast(engine.field(new, "sum"), addend(sql_type))
        count = f"COALESCE({engine.field(old, 'n')}, 0) + {engine.field(new, 'n')}"
        total = engine.cast(f"CASE WHEN {count} = 0 THEN {zero} ELSE {left} + {right} END", sql_type)
        return engine.struct([("sum", total), ("n", count)])

    def combine(self, engine: Engine, call: AggregateCall, kept: str) -> str | None:
        if self._of_doubles(call):
            return None  # the last digits would be those of the parts
        sums = f"SUM({engine.field(kept, 'sum')})"
        counts = f"SUM({engine.field(kept, 'n')})"
        return engine.struct([("sum", engine.cast(sums, self.kept_type(call))), ("n", engine.cast(counts, BIGINT))])

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        total = doubles.total(engine, kept) if self._of_doubles(call) else engine.field(kept, "sum")
        return self.shown(engine, call, total, engine.field(kept, "n"))

    def shown(self, engine: Engine, call: AggregateCall, total: str, count: str) -> str:
        """The result for `count` values with the sum `total`."""
        empty = " ELSE 0" if WHEN_EMPTY in call.parameters else ""
        return f"CASE WHEN {count} > 0 THEN {self.of(engine, total, count)}{empty} END"

    @abstractmethod
    def sum_type(self, sql_type: SqlType) -> SqlType:
        """The type in which values of that type are added up."""

    @abstractmethod
    def of(self, engine: Engine, total: str, count: str) -> str:
        """The result when there is at least one value."""


class Sum(Additive):
    """SUM(x): BIGINT for integers, DECIMAL with ten more digits for decimals, DOUBLE; NULL over no value.

    x           SUM(x)
    3, NULL, 4  7
    """

    name = "SUM"

    def result_type(self, sql_type: SqlType) -> SqlType:
        return sql_type if self.ksql and sql_type.base is BaseType.DECIMAL else self.sum_type(sql_type)

    def sum_type(self, sql_type: SqlType) -> SqlType:
        if sql_type.base is BaseType.DECIMAL:
            precision = min(sql_type.precision + _SUM_DIGITS, MAX_PRECISION)
            return SqlType(BaseType.DECIMAL, precision=precision, scale=sql_type.scale)
        return DOUBLE if sql_type.base is BaseType.DOUBLE else BIGINT

    def of(self, engine: Engine, total: str, count: str) -> str:
        return total


class Avg(Additive):
    """AVG(x): DOUBLE, of an exact sum where x is exact; NULL over no value.

    x           AVG(x)
    3, NULL, 4  3.5
    """

    name = "AVG"

    def result_type(self, sql_type: SqlType) -> SqlType:
        return DOUBLE

    def sum_type(self, sql_type: SqlType) -> SqlType:
        if sql_type.base is BaseType.BIGINT:
            # The mean of a few thousand large BIGINTs (microseconds since 1970) fits where their sum does not.
            return SqlType(BaseType.DECIMAL, precision=MAX_PRECISION)
        return Sum().sum_type(sql_type)

    def of(self, engine: Engine, total: str, count: str) -> str:
        return f"{engine.cast(total, DOUBLE)} / {count}"


class SumList(Sum):
    """SUM_LIST(x): SUM over the items of all arrays, NULL items and arrays left out; 0 of an empty array.

    x                   SUM_LIST(x)
    [1, 2], [NULL, 4]   7
    """

    name = "SUM_LIST"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if sql_type.base is not BaseType.ARRAY or not sql_type.args[0].is_numeric:
            raise self.refuse(sql_type, "arrays of numbers")
        return Bound(arguments, types, self.variant(), self.result_type(sql_type.args[0]))

    def value_type(self, call: AggregateCall) -> SqlType:
        item = self.sum_type(call.argument_types[0].args[0])
        return _EXACT if _is_widened(call, item) else item

    def form(self, call: AggregateCall) -> int:
        item = self.sum_type(call.argument_types[0].args[0])
        return FORM if _is_widened(call, item) else super().form(call)

    def value(self, engine: Engine, call: AggregateCall, argument: str) -> str:
        sql_type = self.value_type(call)
        items = engine.cast(argument, array(sql_type))
        return f"CASE WHEN {argument} IS NOT NULL THEN {engine.total(items, sql_type)} END"


# BOOL_AND, EVERY, BOOL_OR, ANY: counts of TRUE and FALSE, so that a retraction is added with the opposite sign.


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

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
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
