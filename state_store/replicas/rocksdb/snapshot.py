"""Reads of RocksDB. An iterator that meets a broken block just ends: only its status says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from state_store.replicas.base.store import Snapshot
from state_store.replicas.codec.keys import ROWS
from state_store.replicas.rocksdb.errors import ours, rocksdb_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from rocksdict import Snapshot as Moment

STATE: Final = b"\x00state"
"""Sorts before every row."""

_MISSING: Final = "key not found"


class RocksSnapshot(Snapshot):
    """A snapshot of one database; it pins what it sees until nothing holds it."""

    def __init__(self, moment: Moment, path: Path) -> None:
        self._moment = moment
        self._path = path

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
        return [self.get(key) for key in keys]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        with rocksdb_errors(self._path):
            found = self._moment.iter()
            found.seek(low)
            valid, key, value, advance = found.valid, found.key, found.value, found.next
            while valid():
                name = key()
                if name >= high:
                    return
                yield name, value()
                advance()
            found.status()

    def values(self) -> Iterator[bytes]:
        # Twice as fast as an iterator of our own, and without a status.
        with rocksdb_errors(self._path):
            yield from self._moment.values(from_key=ROWS)
