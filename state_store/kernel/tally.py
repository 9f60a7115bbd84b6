"""What is counted while the rows of an epoch pass by: how many come and go, their digest, the places of those that go.

Many rows are hashed by a thread beside, while whoever counts them writes them to their file: both leave Python's lock.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64

from strandline.state_store.columns import WEIGHT
from strandline.state_store.hashing.digest import Digest, digest_of_table, digests_by

if TYPE_CHECKING:
    from collections.abc import Sequence

_FEW: Final = 200_000
"""Changes that are kept for whoever reads them next: some tens of MB."""
_MANY: Final = 16_384
"""Rows from which on a thread is worth its start, a tenth of a millisecond: hashing them takes three."""
_AHEAD: Final = 4
"""Batches that may wait for the thread. Long texts take longer to hash than to write: in the end all rows of a table
that is computed anew would wait in memory."""


@dataclass
class Tally:
    """What was counted while rows passed by.

    Attributes:
        inserted, deleted: visible rows inserted and deleted.
        retracted: {data file: positions of the stored rows that go}.
        taken: {data file: the digest of these rows}.
    """

    inserted: int = 0
    deleted: int = 0
    retracted: dict[str, BitMap64] = field(default_factory=dict)
    taken: dict[str, Digest] = field(default_factory=dict)
    _kept: list[pa.Table] | None = field(default_factory=list)
    _digest: Digest = field(default_factory=Digest)
    _batches: list[Digest] = field(default_factory=list)
    """Of each `insert`, in order."""
    _beside: ThreadPoolExecutor | None = None
    _awaited: list[Future[Digest]] = field(default_factory=list)

    def insert(self, rows: pa.Table, visible: Sequence[str]) -> None:
        """Count rows that come. Raises as `digest`."""
        self.inserted += rows.num_rows
        batches = rows.select(visible).to_batches()
        if rows.num_rows < _MANY and not self._awaited:
            self._counted(digest_of_table(batches))
        else:
            self._beside = self._beside or ThreadPoolExecutor(1, thread_name_prefix="digest")
            self._awaited.append(self._beside.submit(digest_of_table, batches))
            self._add_hashed(leaving=_AHEAD)
        self._keep(rows, 1)

    def retract(self, rows: pa.RecordBatch, visible: Sequence[str], files: Sequence[str], numbers: pa.Array) -> None:
        """Count rows that go.

        Args:
            files: the data files, and `numbers` says of each row in which of them it stands.
        """
        self.deleted += rows.num_rows
        for number, digest in digests_by(rows.select(visible), np.asarray(numbers).astype(np.int64)).items():
            self._digest -= digest
            self.taken[files[number]] = self.taken.get(files[number], Digest()) + digest
        self._keep(pa.Table.from_batches([rows]), -1)

    @property
    def digest(self) -> Digest:
        """What to add to the table's digest, once all rows are counted.

        Raises:
            CorruptState: a column has a type that has no digest.
        """
        self._add_hashed(leaving=0)
        self._end()
        return self._digest

    def by_file(self, batches: int) -> list[Digest]:
        """The digest of each file of rows that came, once all are counted.

        Args:
            batches: that a file has at most; each `insert` was one.
        """
        self._add_hashed(leaving=0)
        parts = (self._batches[first : first + batches] for first in range(0, len(self._batches), batches))
        return [sum(part, Digest()) for part in parts]

    def changes(self) -> pa.Table | None:
        """All that was counted, stored columns and `__weight`; None when it was too much to be kept."""
        return pa.concat_tables(self._kept) if self._kept else None

    def _keep(self, rows: pa.Table, weight: int) -> None:
        if self._kept is not None and self.inserted + self.deleted <= _FEW:
            marks = pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows)
            self._kept.append(rows.append_column(WEIGHT, marks))
        else:
            self._kept = None

    def _add_hashed(self, *, leaving: int) -> None:
        """Add what the thread has hashed, and wait until it is no further behind; what fails in it ends it."""
        try:
            while len(self._awaited) > leaving:
                self._counted(self._awaited[0].result())
                del self._awaited[0]
        except BaseException:
            self._end()
            raise

    def _counted(self, batch: Digest) -> None:
        self._digest += batch
        self._batches.append(batch)

    def _end(self) -> None:
        if self._beside is not None:
            self._beside.shutdown(wait=False)
            self._beside = None
