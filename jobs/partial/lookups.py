"""Look-ups of a partial view: the keys that one asks for, and of their rows those that it wants."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from strandline.jobs.partial.asked import key_required

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.upquery import Key
    from strandline.jobs.partial.view import KeyRows, Row
    from strandline.jobs.serve.lookup import KeyValues, Lookup


def keys_of(lookup: Lookup, plan: PartialPlan) -> list[Key]:
    """The keys to read for a look-up.

    Raises:
        KeyRequired: it asks for a range, or gives fewer columns than a reader must.
    """
    if lookup.keys is None:
        raise key_required(plan, plan.key[0])
    return [_key(values, plan) for values in lookup.keys]


def rows_of(lookup: Lookup, plan: PartialPlan, found: KeyRows) -> list[Row]:
    """The rows that a look-up wants, of those of its keys."""
    return list(islice(_wanted(lookup, plan, found), lookup.limit))


def _wanted(lookup: Lookup, plan: PartialPlan, found: KeyRows) -> Iterator[Row]:
    for values, rows in zip(lookup.keys or (), found.rows, strict=True):
        given = dict(zip(plan.relation.key, values, strict=False))
        for row in rows:
            if all(_same(row[name], value) for name, value in given.items()) and lookup.windows.holds(row):
                yield row


def _same(one: Any, other: Any) -> bool:
    """True if GROUP BY takes them for one value: NaN is one, which Python's `==` denies."""
    return bool(one == other or (one != one and other != other))


def _key(values: KeyValues, plan: PartialPlan) -> Key:
    given = dict(zip(plan.relation.key, values, strict=False))
    missing = [name for name in plan.key if name not in given]
    if missing:
        raise key_required(plan, missing[0])
    return tuple(given[name] for name in plan.key)
