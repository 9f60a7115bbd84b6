"""xxHash64 of many values at once, each with a seed of its own, or with several: one result for each.

Seeds are an array whose last axis is that of the values, or has one element, which stands for all values: (lanes, n) or
(lanes, 1) for n values. So what does not depend on a seed is computed once for all lanes.

Numbers are hashed by arithmetic on whole columns. So are texts and bytes of fewer than 32 bytes, by their 8-byte words,
then 4 bytes, then single ones, as the algorithm has it (Collet, xxHash specification, §XXH64); longer ones, which it
reads in four strands, are left to the library, one by one.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_Hashes = NDArray[np.uint64]
_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_LONG: Final = 32
"""Bytes from which on the algorithm reads four strands."""


def hash4(seeds: _Hashes, values: _Hashes | np.uint64) -> _Hashes:
    """The hashes of 4 bytes each, held in the low half of `values`; of one number for all of them too."""
    return _finish(_four(seeds + (_P5 + np.uint64(4)), values))


def hash8(seeds: _Hashes, values: _Hashes) -> _Hashes:
    """The hashes of 8 bytes each."""
    return _finish(_eight(seeds + (_P5 + np.uint64(8)), values))


def hash_bytes(seeds: _Hashes, values: pa.LargeBinaryArray) -> _Hashes:
    """The hashes of byte strings, none of them NULL."""
    _, offset_bytes, data_bytes = values.buffers()
    offsets = np.frombuffer(offset_bytes, np.int64)[values.offset : values.offset + len(values) + 1]
    data = np.frombuffer(data_bytes if data_bytes is not None else b"", np.uint8)
    starts, sizes = offsets[:-1], np.diff(offsets)
    hashes = seeds + _P5 + sizes.astype(np.uint64)
    long = sizes >= _LONG
    done = np.where(long, sizes, 0)  # bytes that are hashed already
    for width, mix in ((8, _eight), (4, _four), (1, _one)):
        # At most three words, one half word and three bytes are left in turn.
        while (rows := np.flatnonzero(sizes - done >= width)).size:
            mixed = mix(np.take(hashes, rows, axis=-1), _taken(data, starts[rows] + done[rows], width))
            if rows.size == sizes.size:
                hashes = mixed
            else:
                hashes[..., rows] = mixed
            done[rows] += width
    hashes = _finish(hashes)
    if long.any():
        _hash_long(hashes, np.broadcast_to(seeds, hashes.shape), values, np.flatnonzero(long))
    return hashes


def _hash_long(hashes: _Hashes, seeds: _Hashes, values: pa.LargeBinaryArray, rows: NDArray[np.int64]) -> None:
    import xxhash

    texts = values.take(pa.array(rows)).to_pylist()
    for lane in np.ndindex(hashes.shape[:-1]):
        numbers = seeds[lane][rows].tolist()
        hashes[lane][rows] = [xxhash.xxh64_intdigest(text, seed) for text, seed in zip(texts, numbers, strict=True)]


def _taken(data: NDArray[np.uint8], starts: NDArray[np.int64], width: int) -> _Hashes:
    """The little-endian numbers of `width` bytes from those places on."""
    # A view of the bytes in which a number begins at every byte.
    numbers: NDArray[Any] = np.ndarray((len(data) - width + 1,), f"<u{width}", data, strides=(1,))
    return numbers[starts].astype(np.uint64)


# What follows changes `hashes` in place and gives it back: a new array for each of some thirty operations would cost
# more than the operations. Only a seed that stands for all values becomes an array of them.


def _eight(hashes: _Hashes, words: _Hashes) -> _Hashes:
    mixed = _rotate(words * _P2, 31)
    mixed *= _P1
    hashes = _mixed_in(hashes, mixed)
    _rotate(hashes, 27)
    hashes *= _P1
    hashes += _P4
    return hashes


def _four(hashes: _Hashes, halves: _Hashes | np.uint64) -> _Hashes:
    hashes = _mixed_in(hashes, halves * _P1)
    _rotate(hashes, 23)
    hashes *= _P2
    hashes += _P3
    return hashes


def _one(hashes: _Hashes, singles: _Hashes) -> _Hashes:
    hashes = _mixed_in(hashes, singles * _P5)
    _rotate(hashes, 11)
    hashes *= _P1
    return hashes


def _mixed_in(hashes: _Hashes, mixed: _Hashes | np.uint64) -> _Hashes:
    if np.ndim(mixed) and hashes.shape[-1] != np.shape(mixed)[-1]:
        return hashes ^ mixed
    hashes ^= mixed
    return hashes


def _finish(hashes: _Hashes) -> _Hashes:
    hashes ^= hashes >> np.uint64(33)
    hashes *= _P2
    hashes ^= hashes >> np.uint64(29)
    hashes *= _P3
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _rotate(values: _Hashes, bits: int) -> _Hashes:
    low = values >> np.uint64(64 - bits)
    values <<= np.uint64(bits)
    values |= low
    return values
