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
from typing import TYPE_CHECKING, Any, Final

from state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy as np
    import pyarrow as pa

LANES: Final = (1, 2)
_SEED: Final = 42
_MASK: Final = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_LONG_DIGITS: Final = 18
"""Decimals of up to this precision are stored and hashed as 64-bit integers."""


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
    total = Digest()
    for record_batch in batches:
        sums = [int(lane.sum(dtype=lane.dtype)) for lane in row_lanes(record_batch)]
        total += Digest(sums[0], sums[1], record_batch.num_rows)
    return total


def row_lanes(batch: pa.RecordBatch) -> list[np.ndarray[Any, np.dtype[np.uint64]]]:
    """The lanes of each row: two arrays of uint64, as long as the record batch."""
    lanes = []
    for lane in LANES:
        hashes = _start(lane, batch.num_rows)
        for column in batch.columns:
            hashes = _feed(hashes, column)
        lanes.append(hashes)
    return lanes


def _start(lane: int, rows: int) -> Any:
    import numpy as np

    return _hash4(np.full(rows, _SEED, np.uint64), np.full(rows, lane, np.uint64))


def _feed(seeds: Any, values: pa.Array) -> Any:
    """The chain extended by one value: `seeds` and the result are uint64, one for each of `values`."""
    import numpy as np
    import pyarrow as pa

    valid = np.asarray(values.is_valid())
    hashes = _hash4(seeds, (~valid).astype(np.uint64))
    if pa.types.is_struct(values.type):
        for child in values.flatten():  # a null struct's fields come out null
            hashes = _feed(hashes, child)
        return hashes
    rows = np.flatnonzero(valid)
    if len(rows):
        hashes[rows] = _feed_present(hashes[rows], values if len(rows) == len(values) else values.take(pa.array(rows)))
    return hashes


def _feed_present(seeds: Any, values: pa.Array) -> Any:
    import numpy as np
    import pyarrow as pa

    arrow_type = values.type
    if pa.types.is_boolean(arrow_type) or pa.types.is_date32(arrow_type) or pa.types.is_int32(arrow_type):
        return _hash4(seeds, np.asarray(values.cast(pa.int32())).view(np.uint32).astype(np.uint64))
    if pa.types.is_int64(arrow_type):
        return _hash8(seeds, np.asarray(values).view(np.uint64))
    if pa.types.is_timestamp(arrow_type):
        micros = values.cast(pa.timestamp("us", arrow_type.tz)).cast(pa.int64())
        return _hash8(seeds, np.asarray(micros).view(np.uint64))
    if pa.types.is_float64(arrow_type):
        plain = np.asarray(values) + 0.0  # −0.0 + 0.0 is 0.0
        plain[np.isnan(plain)] = np.nan
        return _hash8(seeds, plain.view(np.uint64))
    if pa.types.is_decimal(arrow_type):
        return _feed_decimals(seeds, values)
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return _feed_bytes(seeds, [text.encode() for text in values.to_pylist()])
    if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type) or pa.types.is_binary_view(arrow_type):
        return _feed_bytes(seeds, values.to_pylist())
    if pa.types.is_map(arrow_type):
        return _feed_maps(seeds, values)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return _feed_lists(seeds, values)
    raise CorruptState(f"a column of type {arrow_type} has no digest")


def _feed_bytes(seeds: Any, values: list[bytes]) -> Any:
    import numpy as np
    import xxhash

    hashes = (xxhash.xxh64_intdigest(value, seed) for value, seed in zip(values, seeds.tolist(), strict=True))
    return np.fromiter(hashes, np.uint64, len(values))


def _feed_decimals(seeds: Any, values: pa.Array) -> Any:
    import decimal

    import numpy as np

    with decimal.localcontext(decimal.Context(prec=80)):
        whole = [int(value.scaleb(values.type.scale)) for value in values.to_pylist()]
    if values.type.precision <= _LONG_DIGITS:
        return _hash8(seeds, np.array(whole, np.int64).view(np.uint64))
    sizes = (((n if n >= 0 else ~n).bit_length() // 8 + 1) for n in whole)
    return _feed_bytes(seeds, [n.to_bytes(size, "big", signed=True) for n, size in zip(whole, sizes, strict=True)])


def _feed_lists(seeds: Any, values: pa.Array) -> Any:
    import numpy as np
    import pyarrow as pa

    offsets = np.asarray(values.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    hashes = _hash4(seeds, sizes.astype(np.uint64))
    for position in range(int(sizes.max())):  # all first elements, all second ones, …
        rows = np.flatnonzero(sizes > position)
        elements = values.values.take(pa.array(offsets[rows] + position))
        hashes[rows] = _feed(hashes[rows], elements)
    return hashes


def _feed_maps(seeds: Any, values: pa.Array) -> Any:
    import numpy as np
    import pyarrow as pa

    offsets = np.asarray(values.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    places = pa.array(np.arange(offsets[0], offsets[-1]))
    keys, items = values.keys.take(places), values.items.take(places)
    mixed = np.zeros(len(values), np.uint64)
    entries = _feed(_feed(_start(LANES[0], len(keys)), keys), items)
    np.bitwise_xor.at(mixed, np.repeat(np.arange(len(values)), sizes), entries)
    return _hash8(_hash4(seeds, sizes.astype(np.uint64)), mixed)


def _hash4(seeds: Any, values: Any) -> Any:
    """xxHash64 of 4 bytes, held in the low half of each uint64."""
    hashes = (seeds + _u(_P5) + _u(4)) ^ (values * _u(_P1))
    return _finish(_rotate(hashes, 23) * _u(_P2) + _u(_P3))


def _hash8(seeds: Any, values: Any) -> Any:
    """xxHash64 of 8 bytes."""
    hashes = (seeds + _u(_P5) + _u(8)) ^ (_rotate(values * _u(_P2), 31) * _u(_P1))
    return _finish(_rotate(hashes, 27) * _u(_P1) + _u(_P4))


def _finish(hashes: Any) -> Any:
    hashes = (hashes ^ (hashes >> _u(33))) * _u(_P2)
    hashes = (hashes ^ (hashes >> _u(29))) * _u(_P3)
    return hashes ^ (hashes >> _u(32))


def _rotate(values: Any, bits: int) -> Any:
    return (values << _u(bits)) | (values >> _u(64 - bits))


def _u(constant: int) -> np.uint64:
    import numpy as np

    return np.uint64(constant)
