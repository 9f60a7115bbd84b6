"""The accumulator of sums of DOUBLE: it forgets a value that is retracted, which a plain sum does not.

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

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import GroupChanges
from strandline.jobs.model.types import BIGINT, DOUBLE, SqlType, struct

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
FORM = 2
"""The number of this stored form; 1 was the sum and the number of values alone."""


def sums_type() -> SqlType:
    """The type of the accumulator."""
    return struct(*((name, DOUBLE) for name in _DOUBLES), *((name, BIGINT) for name in _COUNTS))


def added(engine: Engine, changes: GroupChanges, value: str) -> str:
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


def merged(engine: Engine, old: str, new: str) -> str:
    """Both accumulators as one; all zero when no value is left, so that rounding errors do not outlive their values."""

    def both(name: str) -> str:
        return f"COALESCE({engine.field(old, name)}, 0) + {engine.field(new, name)}"

    zero = engine.cast("0", DOUBLE)
    doubles = [(name, f"CASE WHEN {both('n')} = 0 THEN {zero} ELSE {both(name)} END") for name in _DOUBLES]
    return engine.struct([*doubles, *((name, both(name)) for name in _COUNTS)])


def total(engine: Engine, kept: str) -> str:
    """The sum that an accumulator stands for: DOUBLE."""
    low, high, nan, up, down = (engine.field(kept, name) for name in ("sum", "high", "nan", "up", "down"))

    def double(word: str) -> str:
        return engine.cast(f"'{word}'", DOUBLE)

    return (
        f"CASE WHEN {nan} > 0 OR ({up} > 0 AND {down} > 0) THEN {double('NaN')}"
        f" WHEN {up} > 0 THEN {double('Infinity')} WHEN {down} > 0 THEN {double('-Infinity')}"
        f" WHEN {high} = 0 THEN {low} ELSE ({high} + {low} * {SCALE!r}) / {SCALE!r} END"
    )


def retracted(engine: Engine, changes: GroupChanges, value: str) -> str:
    """Aggregate over changes: the number of retracted values that were added up."""
    return engine.cast(changes.went("COUNT(*)", f"ABS({value}) <= {_GREATEST!r}"), BIGINT)


def is_worn(engine: Engine, kept: str, lost: str) -> str:
    """TRUE if values were retracted and the accumulator may have lost digits of what is left."""
    size, ever = engine.field(kept, "size"), engine.field(kept, "ever")
    return f"COALESCE({lost}, 0) > 0 AND COALESCE({size} < {ever} * {_LEAST_LEFT!r}, TRUE)"
