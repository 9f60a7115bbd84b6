"""Tracing: from the changes of a partial view's inputs to the keys whose rows may be others now.

    changed rows of visits ──product──> rows of info with those products, before and after ──> their categories

A changed row goes up its leaf's route, through the rows above it as they were before and as they are after: it was, or
is, on the route of the keys that are found so, and of no others (`jobs.partial.routes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.partial.reading import MOST_VALUES, CutReader, values_of
from strandline.state_store.delta import reader
from strandline.state_store.errors import TableMissing, VersionGone

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.routes import Route
    from strandline.jobs.partial.upquery import Key
    from strandline.jobs.serve.cut import Cut
    from strandline.jobs.serve.limits import Spent
    from strandline.state_store.layout import Lake


@dataclass(frozen=True)
class Touched:
    """Keys whose rows may have changed: all that have one of these tuples of values at these places."""

    places: tuple[int, ...]
    values: frozenset[tuple[Any, ...]]

    def holds(self, key: Key) -> bool:
        """True if a key is one of them."""
        return tuple(key[place] for place in self.places) in self.values


def touched(plan: PartialPlan, before: Cut, after: Cut, lake: Lake, spent: Spent) -> list[Touched] | None:
    """The keys that the changes between two cuts may touch; None for all keys, where a change leads to none.

    A key with a NULL is not among them: every change may touch it.

    Raises:
        CorruptState: an input is broken.
        TimeLimit, TooLarge: it takes more than it may.
    """
    try:
        return _touched(plan, before, after, lake, spent)
    except (VersionGone, TableMissing):
        return None  # rows as they were before are gone, so nothing tells which keys they led to


def _touched(plan: PartialPlan, before: Cut, after: Cut, lake: Lake, spent: Spent) -> list[Touched] | None:
    trace = _Trace(plan, before, after, lake, spent)
    found: list[Touched] = []
    moved = [name for name in plan.inputs if before.version(name) != after.version(name)]
    for name in moved:
        changes = _changes(plan, name, before, after, lake)
        if changes is None:
            return None
        leaves = [leaf for leaf, relation in enumerate(plan.leaves.relations) if relation.name == name]
        for leaf in leaves if changes.num_rows else ():
            keys = trace.keys_of(leaf, [changes])
            if keys is None:
                return None
            found += keys
    return found


class _Trace:
    """The rows above a change, on both sides of it."""

    def __init__(self, plan: PartialPlan, before: Cut, after: Cut, lake: Lake, spent: Spent) -> None:
        self._plan = plan
        self._before = before
        self._after = after
        self._old = CutReader(lake, before, spent)
        self._new = CutReader(lake, after, spent)

    def keys_of(self, leaf: int, rows: Sequence[pa.Table]) -> list[Touched] | None:
        """The keys on whose route some of these rows of a leaf may be; None: maybe all."""
        route = self._plan.routes.of(leaf)
        if route.own:
            return [Touched(tuple(place for _, place in route.own), _tuples(route, rows))]
        values = values_of((table, route.column) for table in rows) if route.there else None
        if values is None or len(values) > MOST_VALUES:
            return None
        found: list[Touched] = []
        for above, column in route.origins if values else ():
            keys = self.keys_of(above, self._rows(above, column, values))
            if keys is None:
                return None
            found += keys
        return found

    def _rows(self, leaf: int, column: str, values: frozenset[Any]) -> list[pa.Table]:
        """The rows of a leaf with these values, before and after, with the columns that lead further up."""
        route, relation = self._plan.routes.of(leaf), self._plan.leaves.relations[leaf]
        names = [name for name, _ in route.own] or [route.column]
        same = self._before.version(relation.name) == self._after.version(relation.name)
        sides = (self._new,) if same else (self._old, self._new)
        return [side.rows(relation, names, {column: values}) for side in sides]


def _tuples(route: Route, rows: Sequence[pa.Table]) -> frozenset[tuple[Any, ...]]:
    found: set[tuple[Any, ...]] = set()
    for table in rows:
        found.update(zip(*(table.column(column).to_pylist() for column, _ in route.own), strict=True))
    return frozenset(each for each in found if None not in each)


def _changes(plan: PartialPlan, name: str, before: Cut, after: Cut, lake: Lake) -> pa.Table | None:
    """The changed rows of a table; None when it went back to an older version, or is gone.

    Raises as `reader.read_changes`.
    """
    old, new = before.version(name), after.version(name)
    if new is None or (old is not None and new < old):
        return None
    return reader.read_changes(lake.table(name), old, new, state=plan.reads_hidden(name))
