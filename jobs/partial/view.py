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

from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from strandline.jobs.partial.cache import KeyCache
from strandline.jobs.partial.tracing import touched
from strandline.jobs.serve.cut import Cut, newest_cut
from strandline.jobs.serve.limits import NO_LIMITS, Limits, Spent
from strandline.state_store.delta import reader
from strandline.state_store.errors import StoreError
from strandline.state_store.replicas.row_bytes import RowCodec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.jobs.partial.plan import PartialPlan
    from strandline.jobs.partial.tracing import Touched
    from strandline.jobs.partial.upquery import Key, Upqueries
    from strandline.state_store.commits import TableVersion
    from strandline.state_store.layout import Lake

Row = dict[str, Any]
"""The visible columns by name, as Arrow's `to_pylist` gives them."""


@dataclass(frozen=True)
class KeyRows:
    """The rows of the keys that were asked for, in their order, all of one cut of the view's inputs."""

    rows: list[list[Row]]
    cut: Cut


@dataclass(frozen=True)
class Counts:
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

    def __init__(self, keys: Sequence[Key], cut: Cut) -> None:
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
        self, plan: PartialPlan, lake: Lake, upqueries: Upqueries, budget: int, limits: Limits = NO_LIMITS
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
        self._cut: Cut | None = None
        self._tables: dict[str, TableVersion] = {}
        self._with_null = False

    @property
    def cut(self) -> Cut | None:
        """The cut of the inputs that readers see; None before the first `advance`."""
        return self._cut

    @property
    def counts(self) -> Counts:
        """What was done so far."""
        with self._lock:
            done = self._counted
            return Counts(
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

        Raises as `jobs.partial.upquery.Upqueries.rows`, and as `advance` where nothing was read before.
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
            NoConsistentCut: there is none among the versions that are kept. The present cut stays.
            CorruptState, ForeignWrite: an input cannot be read.
        """
        with self._advancing:
            before, after = self._cut, newest_cut(self.plan.inputs, self._lake)
            if before is not None and before.versions == after.versions and self._are_the_same():
                return False
            tables = {name: reader.version_at(self._lake.table(name), at) for name, at in after.versions.items()}
            keys = None
            if before is not None and self._are_the_same():
                keys = touched(self.plan, before, after, self._lake, Spent(self._limits))
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
