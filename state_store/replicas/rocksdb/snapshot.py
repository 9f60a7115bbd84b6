"""Reads of RocksDB as of one moment.

The binding's snapshots give point reads of their moment, but their iterators see later writes. An iterator by itself
stands still from when it is made. So a moment is a snapshot and an iterator, made while no write came between them.
An iterator that meets a broken block just ends: only its status says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.replicas.base.store import Snapshot
from strandline.state_store.replicas.codec.keys import ROWS
from strandline.state_store.replicas.rocksdb.errors import ours, rocksdb_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rocksdict import Rdict

STATE: Final = b"\x00state"
"""Sorts before every row."""

_MISSING: Final = "key not found"


class RocksSnapshot(Snapshot):
    """One moment of a database; it pins what it sees until nothing holds it."""

    def __init__(self, db: Rdict, path: Path) -> None:
        self._db = db
        self._path = path
        # Which range the iterator is at.
        self._turn = 0
        with rocksdb_errors(path):
            while True:
                self._sequence = db.latest_sequence_number()
                self._moment, self._rows = db.snapshot(), db.iter()
                if db.latest_sequence_number() == self._sequence:
                    return

    def release(self) -> None:
        """Pin nothing any more; nothing can be read from then on. The database stays open while something is pinned."""
        del self._moment, self._rows

    def state(self) -> bytes | None:
        return self.get(STATE)

    def get(self, key: bytes) -> bytes | None:
        try:
            found: bytes = self._moment[key]
        except Exception as error:
            if str(error) == _MISSING:
                return None
            raise ours(error, self._path) from error
        return found

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        # In one call, if nothing was written since: the binding's snapshots take one key at a time.
        with rocksdb_errors(self._path):
            found: Any = self._db.get(list(keys))
            if self._db.latest_sequence_number() == self._sequence:
                return list(found)
        return [self.get(key) for key in keys]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._turn += 1
        return self._range(low, high, self._turn)

    def values(self) -> Iterator[bytes]:
        # Twice as fast as our own iterator, and of this moment only if nothing was written since.
        with rocksdb_errors(self._path):
            fast: Iterator[bytes] = self._db.values(from_key=ROWS)
            same = self._db.latest_sequence_number() == self._sequence
        return self._guarded(fast) if same else super().values()

    def _range(self, low: bytes, high: bytes, turn: int) -> Iterator[tuple[bytes, bytes]]:
        with rocksdb_errors(self._path):
            found = self._rows
            found.seek(low)
            valid, key, value, advance = found.valid, found.key, found.value, found.next
            while valid():
                name = key()
                if name >= high:
                    return
                yield name, value()
                if turn != self._turn:
                    raise RuntimeError("a range was read on after another one of the same snapshot was begun")
                advance()
            found.status()

    def _guarded(self, values: Iterator[bytes]) -> Iterator[bytes]:
        with rocksdb_errors(self._path):
            yield from values
