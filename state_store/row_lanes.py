"""Lanes of rows in Arrow form: two hashes of 64 bits for each row, as `state_store.digest` defines them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from strandline.state_store.errors import CorruptState

# xxHash64 of many values at once, each with a seed of its own, or with several: one result for each.
#
# Seeds are an array whose last axis is that of the values, or has one element, which stands for all values: (lanes,
# n) or (lanes, 1) for n values. So what does not depend on a seed is computed once for all lanes.
#
# Numbers are hashed by arithmetic on whole columns. So are texts and bytes of fewer than 32 bytes, by their 8-byte
# words, then 4 bytes, then single ones, as the algorithm has it (Collet, xxHash specification, §XXH64); longer ones,
# which it reads in four strands, are left to the library, one by one.

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


LANES: Final = (1, 2)
_SEED: Final = 42
"""Spark's xxhash64 begins with it."""
_PRESENT: Final = np.uint64(0)
"""What stands in the chain before a value."""
_ABSENT: Final = np.uint64(1)
"""What stands there for NULL."""
_FEW: Final = 100
"""Arrays that are longer than others, of so few rows, are hashed value by value: measured, a step of all of them costs
60 µs, and each value by itself 0.6 µs."""
_LONG_DIGITS: Final = 18
"""Decimals of up to this precision are stored and hashed as 64-bit integers."""


def row_lanes(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """The lanes of each row: uint64, of shape (lanes, rows)."""
    hashes = _start(len(LANES))
    for column in batch.columns:
        hashes = _feed(hashes, column)
    return _for_each(hashes, batch.num_rows)


def key_hashes(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """A hash of each row: the same for rows that SQL does not tell apart, NULL, NaN and both zeros among their values.

    Of decimals both halves are hashed as numbers: lanes have them as Spark does, one by one.
    """
    hashes = _start(1)
    for column in batch.columns:
        for part in _halves(column) if pa.types.is_decimal(column.type) else [column]:
            hashes = _feed(hashes, part)
    found: NDArray[np.uint64] = _for_each(hashes, batch.num_rows)[0]
    return found


def _halves(values: pa.Array) -> list[pa.Array]:
    """Decimals of 16 bytes as two columns of 64-bit integers."""
    numbers = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values))]
    absent = np.asarray(values.is_null())
    return [pa.array(numbers[half::2], mask=absent) for half in (0, 1)]


def _start(lanes: int) -> Any:
    """The seeds of the first value, the same for all rows: of shape (lanes, 1)."""
    return _STARTS[:lanes].copy()


_STARTS: Final = hash4(np.full((len(LANES), 1), _SEED, np.uint64), np.array(LANES, np.uint64)[:, np.newaxis])


def _for_each(seeds: Any, rows: int) -> NDArray[np.uint64]:
    """The seeds as an array with an element for each row, to be written to."""
    each: NDArray[np.uint64] = seeds if seeds.shape[-1] == rows else np.repeat(seeds, rows, axis=-1)
    return each


def _feed(seeds: Any, values: pa.Array) -> Any:
    """The chain extended by one value: of shape (lanes, rows), or (lanes, 1) as long as all rows have the same one."""
    if values.null_count == 0 and not pa.types.is_struct(values.type):
        return _feed_present(hash4(seeds, _PRESENT), values) if len(values) else seeds
    if values.null_count == len(values) and not pa.types.is_struct(values.type):
        return hash4(seeds, _ABSENT)
    valid = np.asarray(values.is_valid())
    hashes = hash4(seeds, (~valid).astype(np.uint64))
    if pa.types.is_struct(values.type):
        for child in values.flatten():  # a null struct's fields come out null
            hashes = _feed(hashes, child)
        return hashes
    rows = np.flatnonzero(valid)
    hashes[:, rows] = _feed_present(hashes[:, rows], values.take(pa.array(rows)))
    return hashes


def _feed_present(seeds: Any, values: pa.Array) -> Any:
    arrow_type = values.type
    if pa.types.is_boolean(arrow_type) or pa.types.is_date32(arrow_type) or pa.types.is_int32(arrow_type):
        return hash4(seeds, np.asarray(values.cast(pa.int32())).view(np.uint32).astype(np.uint64))
    if pa.types.is_int64(arrow_type):
        return hash8(seeds, np.asarray(values).view(np.uint64))
    if pa.types.is_timestamp(arrow_type):
        micros = values.cast(pa.timestamp("us", arrow_type.tz)).cast(pa.int64())
        return hash8(seeds, np.asarray(micros).view(np.uint64))
    if pa.types.is_float64(arrow_type):
        return hash8(seeds, _one_zero_and_nan(values).view(np.uint64))
    if pa.types.is_decimal(arrow_type):
        return _feed_decimals(seeds, values)
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return hash_bytes(seeds, values.cast(pa.large_binary()))
    if pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type) or pa.types.is_binary_view(arrow_type):
        return hash_bytes(seeds, values.cast(pa.large_binary()))
    if pa.types.is_map(arrow_type):
        return _feed_maps(seeds, values)
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return _feed_lists(seeds, values)
    raise CorruptState(f"a column of type {arrow_type} has no digest")


def _feed_decimals(seeds: Any, values: pa.Array) -> Any:
    if values.type.precision <= _LONG_DIGITS:
        return hash8(seeds, _low_halves(values))
    return hash_bytes(seeds, _digits(values))


def _low_halves(values: pa.Array) -> NDArray[np.uint64]:
    """Of the 16 bytes that Arrow has of a decimal, little-endian, the first 8: all of a short one."""
    halves = np.frombuffer(values.buffers()[1], np.uint64)[2 * values.offset : 2 * (values.offset + len(values))]
    return halves[::2]


def _digits(values: pa.Array) -> pa.LargeBinaryArray:
    """The unscaled integers of decimals, none of them NULL, big-endian, of as few bytes as hold each with its sign."""
    raw = np.frombuffer(values.buffers()[1], np.uint8)[16 * values.offset : 16 * (values.offset + len(values))]
    whole = raw.reshape(-1, 16)[:, ::-1]
    # Without the bytes that only repeat the sign; one of them stays where the next would have another sign.
    told = whole ^ np.where(whole[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    first = np.where(told.any(axis=1), (told != 0).argmax(axis=1), 15)
    first -= (told[np.arange(len(told)), first] >= 0x80).astype(np.int64)
    sizes = 16 - first
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    data = whole[np.arange(16) >= first[:, np.newaxis]]
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(sizes), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


def _feed_lists(seeds: Any, values: pa.Array) -> Any:
    offsets = np.asarray(values.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    hashes = _for_each(hash4(seeds, sizes.astype(np.uint64)), len(values))
    for position in range(int(sizes.max())):  # all first elements, all second ones, …
        rows = np.flatnonzero(sizes > position)
        if rows.size < _FEW and int(sizes.max()) - position > _FEW and not pa.types.is_nested(values.type.value_type):
            _feed_one_by_one(hashes, values.values, rows, offsets[rows] + position, offsets[rows + 1])
            break
        elements = values.values.take(pa.array(offsets[rows] + position))
        hashes[:, rows] = _feed(hashes[:, rows], elements)
    return hashes


def _feed_one_by_one(
    hashes: NDArray[np.uint64],
    elements: pa.Array,
    rows: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> None:
    """The chains of a few rows extended by the elements from `starts` to `ends`, by the library: a step of a whole
    column costs as much as some hundred of its calls."""
    import xxhash

    present, absent = (int(mark).to_bytes(4, "little") for mark in (_PRESENT, _ABSENT))
    hashed = xxhash.xxh64_intdigest
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist(), strict=True):
        parts = _bytes_of(elements.slice(start, end - start))
        for lane in range(hashes.shape[0]):
            seed = int(hashes[lane, row])
            for part in parts:
                seed = hashed(absent, seed) if part is None else hashed(part, hashed(present, seed))
            hashes[lane, row] = seed


def _bytes_of(values: pa.Array) -> list[bytes | None]:
    """The bytes that are hashed of each value, of a type that is not nested; None: it is NULL."""
    arrow_type = values.type
    if pa.types.is_decimal(arrow_type) and arrow_type.precision > _LONG_DIGITS:
        known = iter(_digits(values.drop_null()).to_pylist())
        return [next(known) if valid else None for valid in values.is_valid().to_pylist()]
    if pa.types.is_decimal(arrow_type):
        numbers: NDArray[Any] = _low_halves(values)
    elif pa.types.is_boolean(arrow_type) or pa.types.is_date32(arrow_type) or pa.types.is_int32(arrow_type):
        numbers = np.asarray(values.cast(pa.int32()).fill_null(0))
    elif pa.types.is_int64(arrow_type):
        numbers = np.asarray(values.fill_null(0))
    elif pa.types.is_timestamp(arrow_type):
        numbers = np.asarray(values.cast(pa.timestamp("us", arrow_type.tz)).cast(pa.int64()).fill_null(0))
    elif pa.types.is_float64(arrow_type):
        numbers = _one_zero_and_nan(values.fill_null(0.0))
    else:
        found: list[bytes | None] = values.cast(pa.large_binary()).to_pylist()
        return found
    width = numbers.dtype.itemsize
    raw = np.ascontiguousarray(numbers).tobytes()
    valid = values.is_valid().to_pylist()
    return [
        raw[place : place + width] if there else None
        for place, there in zip(range(0, len(raw), width), valid, strict=True)
    ]


def _one_zero_and_nan(values: pa.Array) -> NDArray[np.float64]:
    plain: NDArray[np.float64] = np.asarray(values) + 0.0  # −0.0 + 0.0 is 0.0
    plain[np.isnan(plain)] = np.nan
    return plain


def _feed_maps(seeds: Any, values: pa.Array) -> Any:
    offsets = np.asarray(values.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    places = pa.array(np.arange(offsets[0], offsets[-1]))
    keys, items = values.keys.take(places), values.items.take(places)
    mixed = np.zeros(len(values), np.uint64)
    entries = _for_each(_feed(_feed(_start(1), keys), items), len(keys))[0]
    np.bitwise_xor.at(mixed, np.repeat(np.arange(len(values)), sizes), entries)
    return hash8(hash4(seeds, sizes.astype(np.uint64)), mixed)
