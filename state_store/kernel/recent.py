"""Changes that this process committed a moment ago: whoever reads the table next need not read them back from disk."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

_MOST_BYTES: Final = 64 << 20
"""All that is kept. An epoch of 100,000 changed rows has some 10 MB; a larger one is read back at the speed of disk."""

_Name = tuple[str, str]


class RecentChanges:
    """Changes by table and commit, the oldest forgotten first. Safe for several threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = Lock()
        self._kept: OrderedDict[_Name, pa.Table] = OrderedDict()
        self._bytes = 0

    def put(self, table: Path, nonce: str, changes: pa.Table) -> None:
        """Keep the changes of a commit: stored columns and `__weight`. One that is too large is not kept."""
        size = changes.nbytes
        if size > self._most // 2:
            return
        with self._lock:
            self._kept[str(table), nonce] = changes
            self._bytes += size
            while self._bytes > self._most:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes

    def find(self, table: Path, nonce: str) -> pa.Table | None:
        """The changes of that commit, if they are kept."""
        with self._lock:
            return self._kept.get((str(table), nonce))
