"""Keys of stored rows as bytes: the key columns' bytes in order, of bounded length, below one prefix.

LMDB takes keys of 511 bytes at most, DynamoDB 1,024. A longer key keeps its first bytes and a hash of all: it finds its
row, stands in the right place among keys that differ earlier, and in any place among those that do not.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.errors import KeyRefused
from strandline.state_store.replicas.value_bytes import encoder, joined, ordered

if TYPE_CHECKING:
    from collections.abc import Sequence


ROWS: Final = b"r"
"""The first byte of every row's key. A backend keeps what is not a row elsewhere."""
ROWS_END: Final = b"s"

KEPT_BYTES: Final = 384
_HASH_BYTES: Final = 16
LONGEST_BYTES: Final = KEPT_BYTES + _HASH_BYTES
"""Of a key with its prefix; all of our backends take it."""

# Greater than the flag of any value: what begins with a key's first columns sorts before it.
_AFTER: Final = b"\xff"


@dataclass(frozen=True)
class KeyRange:
    """The rows between two keys, or first columns of keys.

    Attributes:
        low: the first key; None: from the beginning.
        high: the last one; None: to the end.
        after_low: leave out the rows whose key begins with `low`.
        with_high: keep the rows whose key begins with `high`; otherwise the range ends before them.
    """

    low: Sequence[Any] | None = None
    high: Sequence[Any] | None = None
    after_low: bool = False
    with_high: bool = False

    @classmethod
    def of_prefix(cls, *values: Any) -> KeyRange:
        """All rows whose key begins with these values."""
        return cls(values, values, with_high=True)


class KeyCodec:
    """Keys of some columns of a schema.

    Args:
        key: the key columns in their order.
    """

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        self._places = [schema.get_field_index(name) for name in key]
        self._names = list(key)
        self._encoders = [encoder(schema.field(name).type) for name in key]

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        """The key of each row."""
        prefix = pa.repeat(pa.scalar(ROWS, pa.large_binary()), batch.num_rows)
        found = joined([prefix, ordered([batch.column(place) for place in self._places], batch.num_rows)])
        keys: list[bytes] = found.to_pylist()
        if batch.num_rows and pc.max(pc.binary_length(found)).as_py() > LONGEST_BYTES:
            return [_bounded(key) for key in keys]
        return keys

    def of_values(self, values: Sequence[Any]) -> bytes:
        """The key of these values, one for each key column.

        Raises:
            KeyRefused: there are too few or too many, or one is not of its column's type.
        """
        if len(values) != len(self._encoders):
            raise KeyRefused(f"a key has {len(self._encoders)} columns ({', '.join(self._names)}), not {len(values)}")
        return _bounded(self._start(values))

    def bounds(self, wanted: KeyRange) -> tuple[bytes, bytes]:
        """The first key of a range, and the first behind it.

        Raises:
            KeyRefused: a bound has too many values, one of another type, or is longer than keys are ordered by.
        """
        low = ROWS if wanted.low is None else self._bound(wanted.low, after=wanted.after_low)
        high = ROWS_END if wanted.high is None else self._bound(wanted.high, after=wanted.with_high)
        return low, high

    def _start(self, values: Sequence[Any]) -> bytes:
        if len(values) == 1:
            # Most keys have one column; the list below takes twice as long as its encoding.
            return ROWS + self._encoders[0](values[0])
        return ROWS + b"".join([encode(value) for encode, value in zip(self._encoders, values, strict=False)])

    def _bound(self, values: Sequence[Any], *, after: bool) -> bytes:
        if len(values) > len(self._encoders):
            raise KeyRefused(f"a key has {len(self._encoders)} columns ({', '.join(self._names)}), not {len(values)}")
        bound = self._start(values)
        if len(bound) > KEPT_BYTES:
            raise KeyRefused(f"the bound of a range has {len(bound)} bytes; keys are in order by {KEPT_BYTES}")
        return bound + _AFTER if after else bound


def _bounded(key: bytes) -> bytes:
    if len(key) <= LONGEST_BYTES:
        return key
    return key[:KEPT_BYTES] + hashlib.blake2b(key, digest_size=_HASH_BYTES).digest()
