"""Variances, standard deviations, CORRELATION: moments around the mean, merged as Chan, Golub and LeVeque do.

Sums of squares would be linear, and lose all digits for values far from zero. Taking a value out of central moments
loses them as well, so a group that loses a row is computed again.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, GroupChanges, OverNothing
from strandline.jobs.functions.aggregates.linear import WHEN_EMPTY
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, DOUBLE, SqlType, struct


class _Moments(AggregateFunction):
    """The base of both classes: rows count where no argument is NULL; a group that loses one is computed again."""

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return BIGINT

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        return engine.cast(changes.went("COUNT(*)", *_present(changes)), BIGINT)

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return f"COALESCE({lost}, 0) > 0"


class Spread(_Moments):
    """VARIANCE, STDDEV_SAMPLE and their kin: DOUBLE; NULL over no value, and over one where n − 1 divides.

        x        VAR_POP  VARIANCE  STDDEV_SAMPLE
        1, 3, 5  2.67     4         2

    Args:
        population: divide by n, not by n − 1.
        root: the deviation, not the variance.
        zero: ksqlDB's way: 0 where there are too few values.
    """

    def __init__(self, name: str, *, population: bool = False, root: bool = True, zero: bool = False) -> None:
        self.name = name
        self.population = population
        self.root = root
        self.zero = zero

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        sql_type = self.one_value(arguments, types)
        if not sql_type.is_numeric:
            raise self.refuse(sql_type, "numbers")
        return Bound(arguments, types, (WHEN_EMPTY,) if self.zero else (), DOUBLE)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return struct(("n", BIGINT), ("mean", DOUBLE), ("m2", DOUBLE))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        value = engine.cast(changes.arguments[0], DOUBLE)
        count, mean, spread = _moments(engine, changes, value)
        return engine.struct([("n", engine.cast(count, BIGINT)), ("mean", mean), ("m2", spread)])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        a, b = ({part: engine.field(side, part) for part in ("n", "mean", "m2")} for side in (old, new))
        share, apart = _share(engine, old, new), f"({b['mean']} - {a['mean']})"
        merged = engine.struct(
            [
                ("n", f"({a['n']} + {b['n']})"),
                ("mean", f"{a['mean']} + {apart} * {share}"),
                ("m2", f"{a['m2']} + {b['m2']} + {apart} * {apart} * {a['n']} * {share}"),
            ]
        )
        return _merged(engine, old, new, merged)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        count, spread = engine.field(kept, "n"), engine.field(kept, "m2")
        variance = f"{spread} / {count}" if self.population else f"{spread} / ({count} - 1)"
        value = f"SQRT({variance})" if self.root else variance
        empty = " ELSE 0" if WHEN_EMPTY in call.parameters else ""
        return f"CASE WHEN {count} > {0 if self.population else 1} THEN {value}{empty} END"


DEVIATION = "deviation"
"""The parameter of a call of STDDEV_SAMP that means what SQL means by it."""


class StddevSamp(Spread):
    """STDDEV_SAMP: the deviation, as STDDEV_SAMPLE; bound by ksqlDB's semantics the variance, as ksqlDB has it."""

    def __init__(self) -> None:
        super().__init__("STDDEV_SAMP", root=False)

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        found = super().check(arguments, types)
        return replace(found, parameters=(*found.parameters, DEVIATION))

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        found = super().result(engine, call, kept)
        return f"SQRT({found})" if DEVIATION in call.parameters else found


class Correlation(_Moments):
    """CORRELATION(x, y): DOUBLE, Pearson's coefficient of the rows where neither is NULL; NULL over fewer than two
    rows, and where x or y is the same in all.

        x  y     CORRELATION(x, y)
        1  2
        2  4     1.0
        3  NULL  1.0

    Args:
        nan: ksqlDB's way: NaN where there is no coefficient.
    """

    name = "CORRELATION"

    def __init__(self, *, nan: bool = False) -> None:
        self.nan = nan

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        if len(arguments) != 2:
            raise TypeMismatch(f"{self.name} takes two arguments, not {len(arguments)}", hint=f"{self.name}(x, y)")
        for sql_type in types:
            if not self.known(sql_type).is_numeric:
                raise self.refuse(sql_type, "numbers")
        return Bound(arguments, types, (WHEN_EMPTY,) if self.nan else (), DOUBLE)

    def accumulator(self, call: AggregateCall) -> SqlType:
        return struct(("n", BIGINT), *((name, DOUBLE) for name in ("mean_x", "mean_y", "m2_x", "m2_y", "c")))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        x, y = (engine.cast(argument, DOUBLE) for argument in changes.arguments)
        count, mean_x, m2_x = _moments(engine, changes, x)
        _, mean_y, m2_y = _moments(engine, changes, y)
        within = [*_present(changes), _within(x), _within(y)]
        covariance = f"COALESCE({changes.came(f'COVAR_POP({x}, {y})', *within)}, 0) * {count}"
        together = _nan_beyond(engine, changes, [x, y], covariance)
        parts = [("mean_x", mean_x), ("mean_y", mean_y), ("m2_x", m2_x), ("m2_y", m2_y), ("c", together)]
        return engine.struct([("n", engine.cast(count, BIGINT)), *parts])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        def sum_of(part: str) -> str:
            return f"{engine.field(old, part)} + {engine.field(new, part)}"

        n, share = engine.field(old, "n"), _share(engine, old, new)
        x, y = (f"({engine.field(new, mean)} - {engine.field(old, mean)})" for mean in ("mean_x", "mean_y"))
        merged = engine.struct(
            [
                ("n", sum_of("n")),
                ("mean_x", f"{engine.field(old, 'mean_x')} + {x} * {share}"),
                ("mean_y", f"{engine.field(old, 'mean_y')} + {y} * {share}"),
                ("m2_x", f"{sum_of('m2_x')} + {x} * {x} * {n} * {share}"),
                ("m2_y", f"{sum_of('m2_y')} + {y} * {y} * {n} * {share}"),
                ("c", f"{sum_of('c')} + {x} * {y} * {n} * {share}"),
            ]
        )
        return _merged(engine, old, new, merged)

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        x, y, c = (engine.field(kept, part) for part in ("m2_x", "m2_y", "c"))
        none = f" ELSE {engine.cast(chr(39) + 'NaN' + chr(39), DOUBLE)}" if WHEN_EMPTY in call.parameters else ""
        return f"CASE WHEN {x} > 0 AND {y} > 0 THEN {c} / (SQRT({x}) * SQRT({y})){none} END"


class OfPairs(Correlation):
    """COVAR_POP, COVAR_SAMP and SQL's REGR_… (y, x): what the moments of the pairs say of the line y = a + b · x.

        y  x     COVAR_POP  REGR_SLOPE  REGR_INTERCEPT
        3  1
        7  3     2.0        2.0         1.0

    Args:
        value: the result; `{n}`, `{my}`, `{mx}` are the number and means, `{yy}`, `{xx}`, `{xy}` the sums of squares
            and products of the distances from the means.
        known: the condition under which there is one.
        count: it is a number of rows.
    """

    def __init__(self, name: str, value: str, known: str = "{n} > 0", *, count: bool = False) -> None:
        super().__init__()
        self.name = name
        self.value = value
        self.known_if = known
        self.count = count

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        bound = super().check(arguments, types)
        return replace(bound, type=BIGINT) if self.count else bound

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        return "zero" if self.count else "null"

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        parts = {"n": "n", "my": "mean_x", "mx": "mean_y", "yy": "m2_x", "xx": "m2_y", "xy": "c"}
        read = {name: engine.field(kept, part) for name, part in parts.items()}
        otherwise = "0" if self.count else "NULL"
        return f"CASE WHEN {self.known_if.format(**read)} THEN {self.value.format(**read)} ELSE {otherwise} END"


OF_PAIRS = (
    OfPairs("COVAR_POP", "{xy} / {n}"),
    OfPairs("COVAR_SAMP", "{xy} / ({n} - 1)", "{n} > 1"),
    OfPairs("REGR_COUNT", "{n}", count=True),
    OfPairs("REGR_AVGX", "{mx}"),
    OfPairs("REGR_AVGY", "{my}"),
    OfPairs("REGR_SXX", "{xx}"),
    OfPairs("REGR_SYY", "{yy}"),
    OfPairs("REGR_SXY", "{xy}"),
    OfPairs("REGR_SLOPE", "{xy} / {xx}", "{xx} > 0"),
    OfPairs("REGR_INTERCEPT", "{my} - {xy} / {xx} * {mx}", "{xx} > 0"),
    OfPairs("REGR_R2", "CASE WHEN {yy} > 0 THEN {xy} / {xx} * {xy} / {yy} ELSE 1 END", "{xx} > 0"),
)
"""The functions of pairs beside CORRELATION."""


def _present(changes: GroupChanges) -> list[str]:
    return [f"{argument} IS NOT NULL" for argument in changes.arguments]


LARGEST = 1e150
"""Of larger values, of NaN and of infinities, there is no variance: a square may be no DOUBLE, and whether a sum of
such is infinite or NaN would depend on their order. The moments of a group are NaN while it has one."""


def _within(value: str) -> str:
    return f"ABS({value}) <= {LARGEST!r}"


def _nan_beyond(engine: Engine, changes: GroupChanges, values: list[str], moment: str) -> str:
    """The moment, or NaN where one of the rows has a value beyond."""
    beyond = " OR ".join(f"NOT {_within(each)}" for each in values)
    some = f"COALESCE({changes.came('COUNT(*)', *_present(changes), f'({beyond})')}, 0) > 0"
    return f"CASE WHEN {some} THEN {engine.cast(chr(39) + 'NaN' + chr(39), DOUBLE)} ELSE {moment} END"


def _moments(engine: Engine, changes: GroupChanges, value: str) -> tuple[str, str, str]:
    """Aggregates over the inserted rows that have all arguments: their number, mean, and sum of squared distances.

    The mean of equal values is that value: a sum divided by their number is not always, and would make a spread of
    rounding errors out of none.
    """
    present = _present(changes)
    within = [*present, _within(value)]
    low, high, mean = (changes.came(f"{name}({value})", *within) for name in ("MIN", "MAX", "AVG"))
    count = changes.came("COUNT(*)", *present)
    between = f"COALESCE(GREATEST({low}, LEAST({high}, {mean})), 0)"
    spread = f"COALESCE({changes.came(f'VAR_POP({value})', *within)}, 0) * {count}"
    return (
        count,
        _nan_beyond(engine, changes, [value], between),
        _nan_beyond(engine, changes, [value], spread),
    )


def _share(engine: Engine, old: str, new: str) -> str:
    """The part of all rows that are new ones. It is computed first: counts multiplied with each other overflow from
    three thousand million on."""
    count = engine.field(new, "n")
    return f"({engine.cast(count, DOUBLE)} / ({engine.field(old, 'n')} + {count}))"


def _merged(engine: Engine, old: str, new: str, merged: str) -> str:
    empty = f"COALESCE({engine.field(old, 'n')}, 0) = 0"
    return f"CASE WHEN {empty} THEN {new} WHEN {engine.field(new, 'n')} = 0 THEN {old} ELSE {merged} END"
