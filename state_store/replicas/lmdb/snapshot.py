"""Reads of LMDB: a read transaction sees one state for as long as it lasts, and blocks nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.state_store.replicas.base.store import Snapshot
from strandline.state_store.replicas.lmdb.errors import lmdb_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import lmdb

STATE: Final = b"\x00state"
"""Sorts before every row."""


class LmdbSnapshot(Snapshot):
    """The store as a transaction sees it."""

    def __init__(self, transaction: lmdb.Transaction[bytes], path: Path) -> None:
        self._transaction = transaction
        self._path = path

    def state(self) -> bytes | None:
        return self.get(STATE)

    def get(self, key: bytes) -> bytes | None:
        return self.multi_get([key])[0]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        get = self._transaction.get
        with lmdb_errors(self._path):
            return [get(key) for key in keys]

    def range(self, low: bytes, high: bytes) -> Iterator[tuple[bytes, bytes]]:
        with lmdb_errors(self._path), self._transaction.cursor() as cursor:
            if not cursor.set_range(low):
                return
            for key, value in cursor.iternext():
                if key >= high:
                    return
                yield key, value
