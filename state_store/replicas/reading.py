"""Reads of a replica: rows as of one version, which every answer names."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.errors import CorruptState
from strandline.state_store.replicas.key_bytes import ROWS, ROWS_END, KeyRange
from strandline.state_store.replicas.row_bytes import COUNT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.state_store.replicas.state import Layout, ReplicaState
    from strandline.state_store.replicas.store import StoreSnapshot

Row = dict[str, Any]

# 64 k rows of some 100 bytes: as much at once as stays in a processor's cache.
_ROWS_PER_BATCH: Final = 1 << 16


class ReplicaReading:
    """A replica at one version. Rows have the values that Arrow's `to_pylist` gives.

    Each method may raise CorruptState (bytes of the store are broken) and StorageUnavailable.

    Attributes:
        state: with the version in `at`.
    """

    def __init__(self, snapshot: StoreSnapshot, state: ReplicaState, layout: Layout) -> None:
        self.state = state
        self._snapshot = snapshot
        self._layout = layout

    @property
    def version(self) -> int:
        """The table's version that the rows are of."""
        assert self.state.at is not None
        return self.state.at.version

    def get(self, key: Sequence[Any]) -> Row | None:
        """The row of a key; None without one.

        Raises:
            KeyRefused: the values do not fit the key's columns.
        """
        found = self._snapshot.get(self._layout.keys.of_values(key))
        return None if found is None else self._layout.rows.decode(found)

    def multi_get(self, keys: Sequence[Sequence[Any]]) -> list[Row | None]:
        """The rows of many keys, in the keys' order; errors as of `get`."""
        found = self._snapshot.multi_get([self._layout.keys.of_values(key) for key in keys])
        return [None if value is None else self._layout.rows.decode(value) for value in found]

    def count_of(self, key: Sequence[Any]) -> int:
        """How often the row of a key is there; errors as of `get`."""
        found = self._snapshot.get(self._layout.keys.of_values(key))
        return 0 if found is None else int(COUNT.unpack_from(found)[0])

    def range(self, wanted: KeyRange, limit: int | None = None) -> Iterator[Row]:
        """The rows of a range in the order of their keys, each as often as it is there.

        Raises:
            KeyRefused: a bound does not fit the key's columns, or is too long.
        """
        low, high = self._layout.keys.bounds(wanted)
        return islice(self._rows(low, high), limit)

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All rows in the order of their keys.

        Raises:
            CorruptState: there are not as many as were verified.
        """
        rows = 0
        for batch in batches(self._snapshot, self._layout):
            rows += batch.num_rows
            yield batch
        if rows != self.state.digest.count:
            raise CorruptState(
                f"the replica has {rows} rows, not {self.state.digest.count}",
                hint="remove its folder; it is restored from the table",
            )

    def _rows(self, low: bytes, high: bytes) -> Iterator[Row]:
        for _, value in self._snapshot.range(low, high):
            row = self._layout.rows.decode(value)
            yield row
            for _ in range(COUNT.unpack_from(value)[0] - 1):
                yield dict(row)


def batches(snapshot: StoreSnapshot, layout: Layout) -> Iterator[pa.RecordBatch]:
    """All rows as columns, in the order of their keys, without a look at their number."""
    values = snapshot.values()
    while chunk := list(islice(values, _ROWS_PER_BATCH)):
        yield layout.rows.decode_all(chunk)


def unreached(snapshot: StoreSnapshot) -> int:
    """How many rows are read one after the other and not found by their keys: what leads to them is broken."""
    keys = (key for key, _ in snapshot.range(ROWS, ROWS_END))
    lost = 0
    while chunk := list(islice(keys, _ROWS_PER_BATCH)):
        lost += snapshot.multi_get(chunk).count(None)
    return lost
