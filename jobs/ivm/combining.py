"""Aggregate functions that combine and cannot take a row back from their accumulator alone: MIN, MAX, HISTOGRAM,
STDDEV_SAMPLE. Their input must be append-only, until lost extremes are computed again from the group's rows.
"""

from __future__ import annotations

from sqlglot import exp

from jobs.errors import NotSupported
from jobs.ivm.aggregate_function import AggregateFunction, Bound, Changes
from jobs.ivm.engine import Engine
from jobs.ivm.stage import AggregateCall
from jobs.sql.types import BIGINT, DOUBLE, NUMERIC, VARCHAR, Kind, SqlType, map_of, struct

_ORDERED = (*NUMERIC, Kind.DATE, Kind.TIME, Kind.TIMESTAMP, Kind.VARCHAR, Kind.BYTES)


class Extreme(AggregateFunction):
    """MIN(x), MAX(x); NULL over no value. NaN is above every number; texts and bytes are compared byte by byte.

    Args:
        name: MIN or MAX.
        pick: the scalar function of both engines that takes the winner and passes over NULL.
    """

    def __init__(self, name: str, pick: str) -> None:
        self.name = name
        self.pick = pick

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        kind = self.one_value(arguments, types)
        if kind.kind not in _ORDERED:
            raise self.refuse(kind, "numbers, texts, bytes, dates and times")
        return Bound(arguments, types, (), kind)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return call.argument_types[0]

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        """NULL when the batch has no value."""
        return changes.only(f"{self.name}({changes.arguments[0]})")

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return f"{self.pick}({old}, {new})"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return kept


class Histogram(AggregateFunction):
    """HISTOGRAM(text): MAP<VARCHAR, BIGINT> from each value that is not null to its count, in the order of values."""

    name = "HISTOGRAM"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        kind = self.one_value(arguments, types)
        if kind.kind is not Kind.VARCHAR:
            raise self.refuse(kind, "VARCHAR")
        return Bound(arguments, types, (), map_of(VARCHAR, BIGINT))

    def accumulator(self, call: AggregateCall) -> SqlType:
        return call.type

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        value = changes.arguments[0]
        present = [f"{value} IS NOT NULL", *([changes.where] if changes.where else [])]
        counts = engine.counts(f"CASE WHEN {' AND '.join(present)} THEN {value} END")
        return f"COALESCE({engine.cast(counts, call.type)}, {engine.empty(call.type)})"

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        return engine.add_maps(f"COALESCE({old}, {engine.empty(call.type)})", new)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return engine.sort_map(kept)


class StddevSample(AggregateFunction):
    """STDDEV_SAMPLE(x): DOUBLE, the sample standard deviation (n − 1); NULL over fewer than two values.

    Keeps count, mean and the sum of squared distances from it, merged as Chan, Golub and LeVeque do: sums of squares
    would lose all digits for values far from zero.
    """

    name = "STDDEV_SAMPLE"

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        kind = self.one_value(arguments, types)
        if not kind.is_numeric:
            raise self.refuse(kind, "numbers")
        return Bound(arguments, types, (), DOUBLE)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return struct(("n", BIGINT), ("mean", DOUBLE), ("m2", DOUBLE))

    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        value = engine.cast(changes.arguments[0], DOUBLE)
        count = changes.only(f"COUNT({value})")
        mean = f"COALESCE({changes.only(f'AVG({value})')}, 0)"
        spread = f"COALESCE({changes.only(f'VAR_POP({value})')}, 0) * {count}"
        return engine.struct([("n", count), ("mean", engine.cast(mean, DOUBLE)), ("m2", engine.cast(spread, DOUBLE))])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        a, b = ({part: engine.field(side, part) for part in ("n", "mean", "m2")} for side in (old, new))
        count = f"({a['n']} + {b['n']})"
        apart = f"({b['mean']} - {a['mean']})"
        # The share is computed first: counts multiplied with each other overflow from three thousand million on.
        share = f"({engine.cast(b['n'], DOUBLE)} / {count})"
        merged = engine.struct(
            [
                ("n", count),
                ("mean", f"{a['mean']} + {apart} * {share}"),
                ("m2", f"{a['m2']} + {b['m2']} + {apart} * {apart} * {a['n']} * {share}"),
            ]
        )
        return f"CASE WHEN COALESCE({a['n']}, 0) = 0 THEN {new} WHEN {b['n']} = 0 THEN {old} ELSE {merged} END"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        count = engine.field(kept, "n")
        return f"CASE WHEN {count} > 1 THEN SQRT({engine.field(kept, 'm2')} / ({count} - 1)) END"


class StddevSamp(StddevSample):
    """Refused: the name means the variance in ksqlDB and the deviation in SQL."""

    name = "STDDEV_SAMP"

    def bind(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        raise NotSupported(
            "STDDEV_SAMP is the variance in ksqlDB and the standard deviation in SQL", hint="write STDDEV_SAMPLE"
        )
