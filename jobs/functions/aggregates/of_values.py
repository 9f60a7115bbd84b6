"""MODE, PERCENTILE_CONT, PERCENTILE_DISC, BIT_AND, BIT_OR, BIT_XOR: aggregates over a bag of the group's values.

A bag keeps how often each value is there, so that a retraction is added with the opposite sign. NULL is no value, and
over no value each is NULL.
"""

from __future__ import annotations

from abc import abstractmethod
from decimal import Decimal, InvalidOperation

from sqlglot import exp

from strandline.jobs.engines.comparable import comparable
from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.bag import bag_of, bag_type, merge_bags
from strandline.jobs.functions.aggregates.contract import SORTABLE, AggregateFunction, Bound, Changes
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, DOUBLE, BaseType, SqlType


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

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
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
