"""A partial view at work in a reading process: keys are computed once, kept while they are read, and kept fresh.

    read(keys) ──kept──> hit
        └─ missing ──> pending ──upquery at the present cut──> kept, unless a change touched it meanwhile
    advance()  changes since the cut ──traced──> touched keys are dropped, kept and pending ones; then the next cut

What is kept equals the view at the present cut, always. A change of a key that is not kept is nothing to do: whoever
asks for it later computes it from what is there then. Readers of a key that is being computed wait for that one
computation; of one that was touched meanwhile, those who came before get what they asked for, the rows at the cut at
which they came, and those who come later compute it anew.
"""

from __future__ import annotations

import struct
import sys
from collections import Counter, OrderedDict
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.partial.pull import MOST_VALUES, CutReader, key_required, values_of
from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, newest_snapshot
from strandline.jobs.serve.terms import NO_LIMITS, QueryBudget, QueryLimits
from strandline.state_store.delta import reader
from strandline.state_store.errors import StoreError, TableMissing, VersionGone
from strandline.state_store.replicas.row_bytes import RowCodec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.partial.plan import PartialPlan, Route
    from strandline.jobs.partial.pull import Key, Upqueries
    from strandline.jobs.serve.lookup import KeyValues, Lookup
    from strandline.state_store.commits import TableVersion
    from strandline.state_store.layout import LakeLayout


Row = dict[str, Any]
"""The visible columns by name, as Arrow's `to_pylist` gives them."""


@dataclass(frozen=True)
class KeyRows:
    """The rows of the keys that were asked for, in their order, all of one cut of the view's inputs."""

    rows: list[list[Row]]
    cut: ConsistentSnapshot


@dataclass(frozen=True)
class CacheCounts:
    """What was done since the view was opened.

    Attributes:
        hits: keys that were kept when they were asked for.
        misses: keys that were not; of these `shared` waited for another reader's upquery.
        dropped: keys that were kept, or being computed, when a change touched them.
        evictions: keys that were let go for the budget.
        kept, bytes: the keys that are kept now, and their size.
    """

    hits: int
    misses: int
    shared: int
    upqueries: int
    dropped: int
    evictions: int
    kept: int
    bytes: int


class _Fill:
    """One upquery that is under way, and the rows that it will give, by key."""

    def __init__(self, keys: Sequence[Key], cut: ConsistentSnapshot) -> None:
        self.keys = keys
        self.cut = cut
        self.rows: Future[dict[Key, list[bytes]]] = Future()


class PartialView:
    """One view, in one process. Any thread may read, and any may advance it.

    Args:
        budget: the most bytes of the keys that are kept.
        limits: of what `advance` takes; the limits of upqueries are their own.
    """

    def __init__(
        self, plan: PartialPlan, lake: LakeLayout, upqueries: Upqueries, budget: int, limits: QueryLimits = NO_LIMITS
    ) -> None:
        self.plan = plan
        self._lake = lake
        self._upqueries = upqueries
        self._limits = limits
        self._codec = RowCodec(plan.schema)
        self._lock = Lock()
        self._advancing = Lock()
        self._cache = KeyCache(budget)
        self._pending: dict[Key, _Fill] = {}
        self._counted: Counter[str] = Counter()
        self._cut: ConsistentSnapshot | None = None
        self._tables: dict[str, TableVersion] = {}
        self._with_null = False

    @property
    def cut(self) -> ConsistentSnapshot | None:
        """The cut of the inputs that readers see; None before the first `advance`."""
        return self._cut

    @property
    def counts(self) -> CacheCounts:
        """What was done so far."""
        with self._lock:
            done = self._counted
            return CacheCounts(
                hits=done["hits"],
                misses=done["misses"],
                shared=done["shared"],
                upqueries=done["upqueries"],
                dropped=done["dropped"],
                evictions=self._cache.evictions,
                kept=len(self._cache),
                bytes=self._cache.bytes,
            )

    def kept(self, keys: Sequence[Key]) -> KeyRows | None:
        """The rows of these keys if all are kept: without waiting for anything. The values are of the key's columns."""
        with self._lock:
            found = [self._cache.get(key) for key in keys]
            if self._cut is None or None in found:
                return None
            self._counted["hits"] += len(keys)
            cut = self._cut
        return KeyRows([self._decoded(rows or ()) for rows in found], cut)

    def read(self, keys: Sequence[Key]) -> KeyRows:
        """The rows of these keys at the present cut; what is not kept is computed.

        Raises as `jobs.partial.pull.Upqueries.rows`, and as `advance` where nothing was read before.
        """
        if self._cut is None:
            self.advance()
        with self._lock:
            cut = self._cut
            assert cut is not None
            found = {key: rows for key in keys if (rows := self._cache.get(key)) is not None}
            missing = [key for key in dict.fromkeys(keys) if key not in found]
            waited = {key: self._pending[key] for key in missing if key in self._pending}
            own = _Fill([key for key in missing if key not in waited], cut)
            self._pending |= dict.fromkeys(own.keys, own)
            hits = sum(key in found for key in keys)
            self._counted.update(hits=hits, misses=len(keys) - hits, shared=len(waited), upqueries=bool(own.keys))
        if own.keys:
            found |= self._filled(own)
        found |= {key: fill.rows.result()[key] for key, fill in waited.items()}
        return KeyRows([self._decoded(found[key]) for key in keys], cut)

    def advance(self) -> bool:
        """Go to the newest consistent cut of the inputs; False when that is the present one.

        Raises:
            NoConsistentSnapshot: there is none among the versions that are kept. The present cut stays.
            CorruptState, ForeignWrite: an input cannot be read.
        """
        with self._advancing:
            before, after = self._cut, newest_snapshot(self.plan.inputs, self._lake)
            if before is not None and before.versions == after.versions and self._are_the_same():
                self._cut = after  # which may reflect more of the topics, see `state_store.commits`
                return False
            tables = {name: reader.version_at(self._lake.table(name), at) for name, at in after.versions.items()}
            keys = None
            if before is not None and self._are_the_same():
                keys = touched(self.plan, before, after, self._lake, QueryBudget(self._limits))
            with self._lock:
                self._drop(keys)
                self._cut, self._tables = after, tables
            return True

    def _are_the_same(self) -> bool:
        """False if an input was made anew since the present cut, or its commit there is no longer known."""
        try:
            return all(reader.version_at(self._lake.table(name), at.version) == at for name, at in self._tables.items())
        except StoreError:
            return False

    def _drop(self, keys: Sequence[Touched] | None) -> None:
        """Forget the keys that a change touched, and those with a NULL; None: all."""
        whole = tuple(range(len(self.plan.key)))
        named = [key for each in keys or () if each.places == whole for key in each.values]
        parts = [each for each in keys or () if each.places != whole]

        def is_touched(key: Key) -> bool:
            return keys is None or None in key or any(each.holds(key) for each in parts)

        gone = [*named, *(key for key in self._pending if is_touched(key))]
        dropped = self._cache.drop(named)
        if keys is None or parts or self._with_null:
            dropped += self._cache.drop_where(is_touched)
        dropped += sum(self._pending.pop(key, None) is not None for key in gone)
        self._with_null = False
        self._counted["dropped"] += dropped

    def _filled(self, fill: _Fill) -> dict[Key, list[bytes]]:
        """The rows of the keys of an upquery, by running it; they are kept where no change has touched them."""
        try:
            rows = self._computed(fill)
        except BaseException as error:
            with self._lock:
                self._settle(fill)
            fill.rows.set_exception(error)
            raise
        with self._lock:
            for key in self._settle(fill):
                self._with_null |= None in key
                self._cache.put(key, rows[key])
        fill.rows.set_result(rows)
        return rows

    def _settle(self, fill: _Fill) -> list[Key]:
        """Take the keys of an upquery off the pending ones; those among them that no change has touched."""
        own = [key for key in fill.keys if self._pending.get(key) is fill]
        for key in own:
            del self._pending[key]
        return own

    def _computed(self, fill: _Fill) -> dict[Key, list[bytes]]:
        table = self._upqueries.rows(fill.keys, fill.cut)
        found: dict[Key, list[bytes]] = {key: [] for key in fill.keys}
        for batch in table.to_batches():
            keys = zip(*(batch.column(name).to_pylist() for name in self.plan.key), strict=True)
            for key, row in zip(keys, self._codec.encode(batch), strict=True):
                found[key].append(row)
        return found

    def _decoded(self, rows: Iterable[bytes]) -> list[Row]:
        return [self._codec.decode(row) for row in rows]


# The kept keys of a partial view: their rows as bytes, the least recently read ones let go when memory is full.

_LENGTH: Final = struct.Struct("<I")
_ENTRY_BYTES: Final = 106
"""Of an `OrderedDict` for each entry, beside key and rows: the most of 81 to 106 that tracemalloc says of 60,000,
100,000 and 150,000 entries of CPython 3.11, whose table is more or less full."""


class KeyCache:
    """Rows by key. One thread at a time works with it.

    A key without rows is kept as well: that it has none took an upquery to find out.

    Args:
        budget: the most bytes of all keys together, with what Python needs for them.

    Attributes:
        bytes: of all keys that are kept.
        evictions: keys that were let go for the budget.
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._entries: OrderedDict[Key, bytes] = OrderedDict()
        self.bytes = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Key) -> list[bytes] | None:
        """The rows of a key, now the most recently read one; None when it is not kept."""
        found = self._entries.get(key)
        if found is None:
            return None
        self._entries.move_to_end(key)
        return _apart(found)

    def put(self, key: Key, rows: Sequence[bytes]) -> None:
        """Keep the rows of a key, unless they alone are above the budget."""
        self.drop([key])
        joined = b"".join(piece for row in rows for piece in (_LENGTH.pack(len(row)), row))
        size = _size(key, joined)
        if size > self._budget:
            return
        self._entries[key] = joined
        self.bytes += size
        while self.bytes > self._budget:
            self._forget(next(iter(self._entries)))
            self.evictions += 1

    def drop(self, keys: Iterable[Key]) -> int:
        """Forget these keys where they are kept; how many were."""
        kept = {key for key in keys if key in self._entries}
        for key in kept:
            self._forget(key)
        return len(kept)

    def drop_where(self, holds: Callable[[Key], bool]) -> int:
        """Forget the keys for which something holds; how many did."""
        return self.drop([key for key in self._entries if holds(key)])

    def _forget(self, key: Key) -> None:
        self.bytes -= _size(key, self._entries.pop(key))


def _size(key: Key, joined: bytes) -> int:
    values: tuple[Any, ...] = key
    return _ENTRY_BYTES + sys.getsizeof(key) + sum(sys.getsizeof(value) for value in values) + sys.getsizeof(joined)


def _apart(joined: bytes) -> list[bytes]:
    rows, at = [], 0
    while at < len(joined):
        (length,) = _LENGTH.unpack_from(joined, at)
        at += _LENGTH.size
        rows.append(joined[at : at + length])
        at += length
    return rows


# Tracing: from the changes of a partial view's inputs to the keys whose rows may be others now.
#
#     changed rows of visits ──product──> rows of info with those products, before and after ──> their categories
#
# A changed row goes up its leaf's route, through the rows above it as they were before and as they are after: it was,
# or is, on the route of the keys that are found so, and of no others (`jobs.partial.plan`).


@dataclass(frozen=True)
class Touched:
    """Keys whose rows may have changed: all that have one of these tuples of values at these places."""

    places: tuple[int, ...]
    values: frozenset[tuple[Any, ...]]

    def holds(self, key: Key) -> bool:
        """True if a key is one of them."""
        return tuple(key[place] for place in self.places) in self.values


def touched(
    plan: PartialPlan, before: ConsistentSnapshot, after: ConsistentSnapshot, lake: LakeLayout, spent: QueryBudget
) -> list[Touched] | None:
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


def _touched(
    plan: PartialPlan, before: ConsistentSnapshot, after: ConsistentSnapshot, lake: LakeLayout, spent: QueryBudget
) -> list[Touched] | None:
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

    def __init__(
        self,
        plan: PartialPlan,
        before: ConsistentSnapshot,
        after: ConsistentSnapshot,
        lake: LakeLayout,
        spent: QueryBudget,
    ) -> None:
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


def _changes(
    plan: PartialPlan, name: str, before: ConsistentSnapshot, after: ConsistentSnapshot, lake: LakeLayout
) -> pa.Table | None:
    """The changed rows of a table; None when it went back to an older version, or is gone.

    Raises as `reader.read_changes`.
    """
    old, new = before.version(name), after.version(name)
    if new is None or (old is not None and new < old):
        return None
    return reader.read_changes(lake.table(name), old, new, state=plan.reads_hidden(name))


# Look-ups of a partial view: the keys that one asks for, and of their rows those that it wants.


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
