"""The changelog as rows with weights: +1 for a row inserted, −1 for a row retracted.

In Arrow form it has the table's visible columns and three more: `_commit_version` (BIGINT), `_commit_timestamp`
(TIMESTAMP) and `__weight` (BIGINT). Within a version, retractions come before insertions.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from strandline.state_store.errors import NegativeWeight
from strandline.state_store.python_values import python_values
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    import pyarrow as pa

META = (VERSION, TIMESTAMP, WEIGHT)


def visible(changes: pa.Table) -> list[str]:
    """The names of a changelog's columns that belong to the table."""
    return [name for name in changes.column_names if name not in META]


def consolidate(changes: pa.Table) -> pa.Table:
    """Consolidate a changelog: add up the weights of equal rows of one version, leave out rows of weight 0.

    A commit that changed only `__state` retracts and inserts the same visible row: here it disappears. Sorted by
    version, then −1 before +1; otherwise rows stay in order.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = visible(changes)
    changes = changes.append_column("__order", pa.array(range(changes.num_rows), pa.int64()))
    signs = changes.group_by(VERSION).aggregate([(WEIGHT, "min"), (WEIGHT, "max")])
    both = signs.filter(pc.not_equal(signs[f"{WEIGHT}_min"], signs[f"{WEIGHT}_max"]))[VERSION]
    mixed = pc.is_in(changes[VERSION], value_set=both)
    kept = pa.concat_tables([changes.filter(pc.invert(mixed)), _cancelled(changes.filter(mixed), names)])
    order = [(VERSION, "ascending"), (WEIGHT, "ascending"), ("__order", "ascending")]
    return kept.sort_by(order).drop_columns(["__order"])


def fold(changes: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """Add up a changelog from version 0 to the table's rows, as a multiset.

    Args:
        columns: the columns to keep; without it, all visible ones.

    Raises:
        NegativeWeight: a row is retracted that is not there.
    """
    names = list(columns) if columns is not None else visible(changes)
    changes = changes.sort_by([(VERSION, "ascending"), (WEIGHT, "ascending")])
    present: dict[Hashable, list[int]] = {}
    rows = zip(_frozen_rows(changes, names), changes[WEIGHT].to_pylist(), strict=True)
    for place, (row, weight) in enumerate(rows):
        held = present.setdefault(row, [])
        if weight > 0:
            held.extend([place] * weight)
        elif len(held) >= -weight:
            del held[weight:]
        else:
            version = changes[VERSION][place].as_py()
            raise NegativeWeight(f"version {version} takes away a row that is not there: {row}")
    return _take(changes.select(names), sorted(place for held in present.values() for place in held))


def _cancelled(changes: pa.Table, names: Sequence[str]) -> pa.Table:
    """The changes without pairs of equal rows of opposite weight in one version."""
    keys = list(zip(changes[VERSION].to_pylist(), _frozen_rows(changes, names), strict=True))
    weights = changes[WEIGHT].to_pylist()
    totals: Counter[Hashable] = Counter()
    for key, weight in zip(keys, weights, strict=True):
        totals[key] += weight
    kept = []
    for place, (key, weight) in enumerate(zip(keys, weights, strict=True)):
        if totals[key] * weight > 0:
            totals[key] -= weight
            kept.append(place)
    return _take(changes, kept)


def _take(rows: pa.Table, places: list[int]) -> pa.Table:
    import pyarrow as pa

    return rows.take(pa.array(places, pa.int64()))


def _frozen_rows(changes: pa.Table, names: Sequence[str]) -> list[Hashable]:
    columns = [[_frozen(value) for value in python_values(changes[name], maps=None)] for name in names]
    return list(zip(*columns, strict=True)) if columns else [()] * changes.num_rows


def _frozen(value: Any) -> Hashable:
    """The value in a hashable form. Arrow's maps are lists of pairs; elements of an array are never pairs."""
    if isinstance(value, list):
        items = [_frozen(item) for item in value]
        return frozenset(items) if value and all(isinstance(item, tuple) for item in value) else tuple(items)
    if isinstance(value, tuple):
        return tuple(_frozen(item) for item in value)
    if isinstance(value, dict):
        return tuple((name, _frozen(item)) for name, item in value.items())
    if isinstance(value, float) and value != value:
        return "NaN"
    hashable: Hashable = value
    return hashable
