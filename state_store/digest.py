"""The digest of a table's visible rows: a hash of 128 bits that ignores their order, and their count.

Each row has two 64-bit hashes, the lanes. A lane is a chain of xxHash64, as Spark's `xxhash64` chains its arguments:
the number of the lane is hashed with seed 42, and each result is the seed of the next part. The parts of a value are

| value | parts |
| --- | --- |
| any | whether it is NULL (INT 0 or 1); a NULL has no further parts, but for a STRUCT |
| BOOLEAN, INT, DATE | 4 bytes, little-endian |
| BIGINT, TIMESTAMP (µs), DOUBLE (−0.0 as 0.0, one NaN), DECIMAL of ≤ 18 digits (unscaled) | 8 bytes, little-endian |
| DECIMAL of more | the unscaled integer, big-endian, as few bytes as hold it |
| VARCHAR (UTF-8), BYTES | its bytes |
| STRUCT | the parts of its fields (of NULLs, when it is NULL) |
| ARRAY | its length (INT), then the parts of its elements in order |
| MAP | its size (INT), then (BIGINT) the XOR of a hash per entry, so that the order of entries does not matter |

A table's digest is the sum of its rows' lanes, mod 2^64. So a commit updates it from the rows that it inserts and
deletes, without reading the table. `row_hash` has the same lanes as Spark expressions. Not a cryptographic hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_PIECE_ROWS: Final = 32_768
"""Rows that are hashed at a time: their columns of 64 bits stay in the processor's cache."""
_MASK: Final = (1 << 64) - 1


@dataclass(frozen=True)
class Digest:
    """The sum of each lane over the rows, mod 2^64, and the number of rows."""

    first: int = 0
    second: int = 0
    count: int = 0

    def __str__(self) -> str:
        return f"{self.first:016x}{self.second:016x}:{self.count}"

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            (self.first + other.first) & _MASK, (self.second + other.second) & _MASK, self.count + other.count
        )

    def __sub__(self, other: Digest) -> Digest:
        return self + Digest(-other.first, -other.second, -other.count)

    @classmethod
    def parse(cls, text: str) -> Digest:
        """The digest in the text that `str` writes; the empty text is the digest of no rows.

        Raises:
            CorruptState: the text is not a digest.
        """
        if not text:
            return cls()
        lanes, _, count = text.partition(":")
        try:
            return cls(int(lanes[:16], 16), int(lanes[16:], 16), int(count))
        except ValueError as error:
            raise CorruptState(f"'{text}' is not a digest") from error


def digest_of_table(batches: Iterable[pa.RecordBatch]) -> Digest:
    """The digest of rows in Arrow form; the columns must be the visible ones, in the table's order.

    Raises:
        CorruptState: a column has a type that our tables do not have.
    """
    from strandline.state_store.row_lanes import row_lanes

    total = Digest()
    for record_batch in (part for batch in batches for part in _pieces(batch)):
        first, second = row_lanes(record_batch).sum(axis=1, dtype="uint64").tolist()
        total += Digest(first, second, record_batch.num_rows)
    return total


def digests_by(batch: pa.RecordBatch, groups: NDArray[np.int64]) -> dict[int, Digest]:
    """The digest of the rows of each group; columns and errors as of `digest_of_table`.

    Args:
        groups: the group of each row, small numbers.
    """
    import numpy as np

    from strandline.state_store.row_lanes import row_lanes

    found: dict[int, Digest] = {}
    if batch.num_rows:
        lanes, counts = row_lanes(batch), np.bincount(groups)
        for group in np.flatnonzero(counts).tolist():
            first, second = lanes[:, groups == group].sum(axis=1, dtype="uint64").tolist()
            found[group] = Digest(first, second, int(counts[group]))
    return found


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(first, _PIECE_ROWS) for first in range(0, batch.num_rows, _PIECE_ROWS))
