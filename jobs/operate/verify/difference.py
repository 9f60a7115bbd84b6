"""The difference of two tables as multisets of rows, doubles compared at 1e-9: sums may be added up in any order."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from strandline.state_store.digest import digest_of_table
from strandline.state_store.python_values import python_values

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pyarrow as pa

_NEAR = 1e-9
"""Relative to the value and, near zero, absolute: what is left of a sum whose terms cancel."""

Row = tuple[Any, ...]
_Doubles = tuple[tuple[bool, float], ...]


def difference(stored: pa.Table, computed: pa.Table, lasting: Sequence[int] | None = None) -> str:
    """What is wrong with the stored rows, in words; empty when nothing is.

    Args:
        stored, computed: the same columns in the same order.
        lasting: the places of the key's columns, if a key that is no longer computed may stay; empty if the key is not
            visible, so that any row too many may be of such a key.
    """
    computed = computed.rename_columns(stored.column_names)
    if digest_of_table(stored.to_batches()) == digest_of_table(computed.to_batches()):
        return ""
    here, there = _rows(stored), _rows(computed)
    more, less = _unmatched(here, there)
    if lasting is not None:
        keys = {_key(row, lasting) for row in there}
        more = [row for row in more if lasting and _key(row, lasting) in keys]
    parts = []
    for rows, what in ((more, "too many"), (less, "missing")):
        if rows:
            example = ", ".join(f"{name}={value!r}" for name, value in zip(stored.column_names, rows[0], strict=True))
            parts.append(f"{len(rows)} {what}, as ({example})")
    return "; ".join(parts)


def _key(row: Row, places: Sequence[int]) -> Hashable:
    return tuple(_shape(row[place], []) for place in places)


def _rows(table: pa.Table) -> list[Row]:
    columns = [python_values(table[name]) for name in table.column_names]
    return list(zip(*columns, strict=True))


def _unmatched(here: Sequence[Row], there: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of each side that have no partner on the other: equal in all but doubles, and those near."""
    left, right = _by_shape(here), _by_shape(there)
    more: list[Row] = []
    less: list[Row] = []
    for shape in left.keys() | right.keys():
        ours, theirs = sorted(left[shape], key=_first), sorted(right[shape], key=_first)
        at = to = 0
        while at < len(ours) and to < len(theirs):
            (mine, row), (its, other) = ours[at], theirs[to]
            if all(map(_near, mine, its)):
                at, to = at + 1, to + 1
            elif mine < its:
                more.append(row)
                at += 1
            else:
                less.append(other)
                to += 1
        more += [row for _, row in ours[at:]]
        less += [row for _, row in theirs[to:]]
    return more, less


def _first(pair: tuple[_Doubles, Row]) -> _Doubles:
    return pair[0]


def _by_shape(rows: Sequence[Row]) -> defaultdict[Hashable, list[tuple[_Doubles, Row]]]:
    """{all of a row but its doubles: its doubles, and the row}."""
    found: defaultdict[Hashable, list[tuple[_Doubles, Row]]] = defaultdict(list)
    for row in rows:
        doubles: list[tuple[bool, float]] = []
        shape = tuple(_shape(value, doubles) for value in row)
        found[shape].append((tuple(doubles), row))
    return found


def _shape(value: Any, doubles: list[tuple[bool, float]]) -> Hashable:
    match value:
        case float():
            doubles.append((True, 0.0) if math.isnan(value) else (False, value))
            return float
        case list():
            return tuple(_shape(item, doubles) for item in value)
        case dict():
            return tuple((key, _shape(value[key], doubles)) for key in sorted(value, key=repr))
    hashable: Hashable = value
    return hashable


def _near(one: tuple[bool, float], other: tuple[bool, float]) -> bool:
    return one[0] == other[0] and math.isclose(one[1], other[1], rel_tol=_NEAR, abs_tol=_NEAR)
