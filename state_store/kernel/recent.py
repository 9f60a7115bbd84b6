"""Changes that this process committed a moment ago: whoever reads the table next need not read them back from disk."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath

_MOST_BYTES: Final = 64 << 20
"""All that is kept. An epoch of 100,000 changed rows has some 10 MB; a larger one is read back at the speed of disk."""

_MOST_COMMITS: Final = 256
"""The last epochs of a hundred tables; whoever is further behind reads from disk. Each takes a page of memory (64 kB)
beside its rows."""
_COPIED_BYTES: Final = 1 << 20
"""Arrow's buffers may be far larger than the rows in them: DuckDB makes each for 2,048 rows at least, so the changes of
an epoch of twenty rows kept a hundred times their size. Up to here they are copied, which takes 0.1 ms."""

_Name = tuple[str, str]


class RecentChanges:
    """Changes by table and commit, the oldest forgotten first. Safe for several threads."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most = most_bytes
        self._lock = Lock()
        self._kept: OrderedDict[_Name, pa.Table] = OrderedDict()
        self._bytes = 0

    def put(self, table: LakePath, nonce: str, changes: pa.Table) -> None:
        """Keep the changes of a commit: stored columns and `__weight`. One that is too large is not kept."""
        size = changes.nbytes
        if size > self._most // 2:
            return
        if size < _COPIED_BYTES:
            changes = _copied(changes)
        with self._lock:
            self._kept[str(table), nonce] = changes
            self._bytes += changes.nbytes
            while self._bytes > self._most or len(self._kept) > _MOST_COMMITS:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes

    def find(self, table: LakePath, nonce: str) -> pa.Table | None:
        """The changes of that commit, if they are kept."""
        with self._lock:
            return self._kept.get((str(table), nonce))


def _copied(rows: pa.Table) -> pa.Table:
    """The rows in memory of their own, all in one piece."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
