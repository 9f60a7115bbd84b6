"""Rows compared as a test means them: in any order, over the columns that it names, doubles to a part in 10⁹."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_RELATIVE: Final = 1e-9
"""How far two doubles may be apart, relative to the larger: sums of them depend on the order of their addends."""

Values = dict[str, Any]


@dataclass(frozen=True)
class RowsDiffer:
    """What stands between the rows that are expected and those that are there; falsy when nothing does."""

    missing: tuple[Values, ...] = ()
    unexpected: tuple[Values, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def rows_differ(expected: Sequence[Values], actual: Sequence[Values]) -> RowsDiffer:
    """Match each expected row with one that is there. Both have the same columns."""
    left = list(actual)
    missing = []
    for row in expected:
        place = next((place for place, each in enumerate(left) if _equal(row, each)), None)
        if place is None:
            missing.append(row)
        else:
            del left[place]
    return RowsDiffer(tuple(missing), tuple(left))


def net(changes: Sequence[tuple[Values, int]]) -> tuple[list[Values], list[Values]]:
    """Rows inserted and rows retracted, of which none is both: the sum of the weights of each row."""
    distinct: list[Values] = []
    weights: list[int] = []
    for row, weight in changes:
        place = next((place for place, each in enumerate(distinct) if _equal(row, each)), None)
        if place is None:
            distinct.append(row)
            weights.append(weight)
        else:
            weights[place] += weight
    inserted = [row for row, weight in zip(distinct, weights, strict=True) for _ in range(weight)]
    retracted = [row for row, weight in zip(distinct, weights, strict=True) for _ in range(-weight)]
    return inserted, retracted


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_RELATIVE) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def row_text(row: Mapping[str, Any]) -> str:
    """A row as a test's file writes it."""
    return "{" + ", ".join(f"{name}: {value_text(value)}" for name, value in row.items()) + "}"


def value_text(value: Any) -> str:
    """A value as YAML writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value if value.isalnum() and not value.isdigit() else repr(value)
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dict():
            return row_text({str(key): each for key, each in value.items()})
        case list():
            return f"[{', '.join(value_text(each) for each in value)}]"
        case _:
            return str(value)
