"""Linear aggregate functions: their accumulators add up, so that a retraction is added with the opposite sign.

COUNT, SUM, AVG, SUM_LIST. Exact for integers and decimals: an overflow is an error of the engine,
never a wrap. Sums of DOUBLE agree with a recomputation up to rounding; a group
that lost too many digits by a retraction is computed again.

The accumulator of sums of DOUBLE forgets a value that is retracted, which a plain sum does not:

    values              sum  high  nan  up  down  size   ever      (size and ever times 2^64)
    1, 5, 1e17          1e17   0    0    0   0    1e17   1e17
    without 1e17        0      0    0    0   0    0      2e17      the 1 and the 5 were lost in the rounding
    … computed again    6      0    0    0   0    6      6
    and Infinity, NaN   6      0    1    1   0    6      6         shown: NaN
    without both        6      0    0    0   0    6      6

NaN and the infinities are counted and never added: one of them would stay for good. Values from 2^960 on are added up
by themselves, scaled down, so that no part of a sum is too large for a DOUBLE while the whole is not; the others cannot
get there, since a group has less than 2^63 rows.

`size` is the sum of the magnitudes of the values that are there, `ever` that of all that came or went since the group
was last computed. Rounding errors are as large as a part of `ever`, so a group that holds too little of it after a
retraction is computed again.
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp

from strandline.jobs.engines.arrays import addend
from strandline.jobs.engines.engine import Engine
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

LARGE = 2.0**960
"""The values from which on a sum of 2^63 values can be too large for a DOUBLE (2^1024)."""
SCALE = 2.0**-64
"""The factor by which large values, and magnitudes, are scaled down: 2^63 of them can be added up. A power of two, so
that no digit is lost but of values below 2^-958, whose sums are all but exact."""

_GREATEST = 1.7976931348623157e308

# A sum of m values in any order is off by about sqrt(m) · 2^-53 of their magnitudes; by 1e-13 for a million of them.
# The digits beside 1e-9 are lost when less than that part of the magnitudes is left. Doubling it costs nothing: a group
# whose rows are all replaced again and again is computed once in five thousand times.
_LEAST_LEFT = 2e-4

_DOUBLES = ("sum", "high", "size", "ever")
_COUNTS = ("n", "nan", "up", "down")
DOUBLES_FORM = 2
"""The number of this stored form; 1 was the sum and the number of values alone."""


def doubles_type() -> SqlType:
    """The type of the accumulator."""
    return struct(*((name, DOUBLE) for name in _DOUBLES), *((name, BIGINT) for name in _COUNTS))


def doubles_added(engine: Engine, changes: GroupChanges, value: str) -> str:
    """Aggregate over changes: the accumulator of the DOUBLEs `value`, where it is not NULL."""
    retracted = f"{changes.weight} < 0"
    scale, finite = repr(SCALE), f"ABS({value}) <= {_GREATEST!r}"
    signed = f"CASE WHEN {retracted} THEN -({value}) ELSE {value} END"
    size = f"CASE WHEN {retracted} THEN -ABS({value}) ELSE ABS({value}) END"
    large = f"ABS({value}) >= {LARGE!r}"

    def total(sql: str, *conditions: str) -> str:
        return engine.cast(f"COALESCE({changes.only(f'SUM({sql})', *conditions)}, 0)", DOUBLE)

    def count(condition: str) -> str:
        return engine.cast(f"COALESCE({changes.only(f'SUM({changes.weight})', condition)}, 0)", BIGINT)

    parts = {
        "sum": total(signed, f"ABS({value}) < {LARGE!r}"),
        "high": total(f"({signed}) * {scale}", large, finite),
        "size": total(f"({size}) * {scale}", finite),
        "ever": total(f"ABS({value}) * {scale}", finite),
        "n": count(f"{value} IS NOT NULL"),
        "nan": count(f"isnan({value})"),
        "up": count(f"{value} > {_GREATEST!r} AND NOT isnan({value})"),
        "down": count(f"{value} < -{_GREATEST!r}"),
    }
    return engine.struct([(name, parts[name]) for name in (*_DOUBLES, *_COUNTS)])


def doubles_merged(engine: Engine, old: str, new: str) -> str:
    """Both accumulators as one; all zero when no value is left, so that rounding errors do not outlive their values."""

    def both(name: str) -> str:
        return f"COALESCE({engine.field(old, name)}, 0) + {engine.field(new, name)}"

    zero = engine.cast("0", DOUBLE)
    doubles = [(name, f"CASE WHEN {both('n')} = 0 THEN {zero} ELSE {both(name)} END") for name in _DOUBLES]
    return engine.struct([*doubles, *((name, both(name)) for name in _COUNTS)])


def doubles_total(engine: Engine, kept: str) -> str:
    """The sum that an accumulator stands for: DOUBLE."""
    low, high, nan, up, down = (engine.field(kept, name) for name in ("sum", "high", "nan", "up", "down"))

    def double(word: str) -> str:
        return engine.cast(f"'{word}'", DOUBLE)

    return (
        f"CASE WHEN {nan} > 0 OR ({up} > 0 AND {down} > 0) THEN {double('NaN')}"
        f" WHEN {up} > 0 THEN {double('Infinity')} WHEN {down} > 0 THEN {double('-Infinity')}"
        f" WHEN {high} = 0 THEN {low} ELSE ({high} + {low} * {SCALE!r}) / {SCALE!r} END"
    )


def doubles_retracted(engine: Engine, changes: GroupChanges, value: str) -> str:
    """Aggregate over changes: the number of retracted values that were added up."""
    return engine.cast(changes.went("COUNT(*)", f"ABS({value}) <= {_GREATEST!r}"), BIGINT)


def doubles_are_worn(engine: Engine, kept: str, lost: str) -> str:
    """TRUE if values were retracted and the accumulator may have lost digits of what is left."""
    size, ever = engine.field(kept, "size"), engine.field(kept, "ever")
    return f"COALESCE({lost}, 0) > 0 AND COALESCE({size} < {ever} * {_LEAST_LEFT!r}, TRUE)"


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
            return doubles_type()
        return struct(("sum", self.kept_type(call)), ("n", BIGINT))

    def kept_type(self, call: AggregateCall) -> SqlType:
        """The type in which the values of a call are added up."""
        found = self.sum_type(self.value_type(call))
        return _EXACT if _is_widened(call, found) else found

    def form(self, call: AggregateCall) -> int:
        if _is_widened(call, self.sum_type(self.value_type(call))):
            return FORM
        return DOUBLES_FORM if self._of_doubles(call) else super().form(call)

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return BIGINT if self._of_doubles(call) else None

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        if not self._of_doubles(call):
            return None
        return doubles_retracted(engine, changes, self.value(engine, call, changes.arguments[0]))

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return doubles_are_worn(engine, merged, lost)

    def _of_doubles(self, call: AggregateCall) -> bool:
        return self.sum_type(self.value_type(call)).base is BaseType.DOUBLE

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        sql_type = self.kept_type(call)
        value = self.value(engine, call, changes.arguments[0])
        if self._of_doubles(call):
            return doubles_added(engine, changes, value)
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
            return doubles_merged(engine, old, new)
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
        total = doubles_total(engine, kept) if self._of_doubles(call) else engine.field(kept, "sum")
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
