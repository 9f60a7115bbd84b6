"""The kept keys of a partial view: their rows as bytes, the least recently read ones let go when memory is full."""

from __future__ import annotations

import struct
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from strandline.jobs.partial.upquery import Key

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
