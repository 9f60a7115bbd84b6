"""The lanes of rows in Arrow form: two hashes of 64 bits each, as `state_store.hashing.digest` defines them."""

from __future__ import annotations

import decimal
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from strandline.state_store.errors import CorruptState
from strandline.state_store.hashing.xxhash64 import hash4, hash8, hash_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

LANES: Final = (1, 2)
_SEED: Final = 42
"""Spark's xxhash64 begins with it."""
_PRESENT: Final = np.uint64(0)
"""What stands in the chain before a value."""
_ABSENT: Final = np.uint64(1)
"""What stands there for NULL."""
_LONG_DIGITS: Final = 18
"""Decimals of up to this precision are stored and hashed as 64-bit integers."""


def row_lanes(batch: pa.RecordBatch) -> NDArray[np.uint64]:
    """The lanes of each row: uint64, of shape (lanes, rows)."""
    hashes = _start(LANES)
    for column in batch.columns:
        hashes = _feed(hashes, column)
    return _for_each(hashes, batch.num_rows)


def _start(lanes: Sequence[int]) -> Any:
    """The seeds of the first value, the same for all rows: of shape (lanes, 1)."""
    return hash4(np.full((len(lanes), 1), _SEED, np.uint64), np.array(lanes, np.uint64)[:, np.newaxis])


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
        plain = np.asarray(values) + 0.0  # −0.0 + 0.0 is 0.0
        plain[np.isnan(plain)] = np.nan
        return hash8(seeds, plain.view(np.uint64))
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
        # Of the 16 bytes that Arrow has, little-endian, the first 8 hold such a number.
        halves = np.frombuffer(values.buffers()[1], np.uint64)[2 * values.offset : 2 * (values.offset + len(values))]
        return hash8(seeds, halves[::2])
    with decimal.localcontext(decimal.Context(prec=80)):
        whole = [int(value.scaleb(values.type.scale)) for value in values.to_pylist()]
    sizes = (((n if n >= 0 else ~n).bit_length() // 8 + 1) for n in whole)
    raw = [n.to_bytes(size, "big", signed=True) for n, size in zip(whole, sizes, strict=True)]
    return hash_bytes(seeds, pa.array(raw, pa.large_binary()))


def _feed_lists(seeds: Any, values: pa.Array) -> Any:
    offsets = np.asarray(values.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    hashes = _for_each(hash4(seeds, sizes.astype(np.uint64)), len(values))
    for position in range(int(sizes.max())):  # all first elements, all second ones, …
        rows = np.flatnonzero(sizes > position)
        elements = values.values.take(pa.array(offsets[rows] + position))
        hashes[:, rows] = _feed(hashes[:, rows], elements)
    return hashes


def _feed_maps(seeds: Any, values: pa.Array) -> Any:
    offsets = np.asarray(values.offsets).astype(np.int64)
    sizes = np.diff(offsets)
    places = pa.array(np.arange(offsets[0], offsets[-1]))
    keys, items = values.keys.take(places), values.items.take(places)
    mixed = np.zeros(len(values), np.uint64)
    entries = _for_each(_feed(_feed(_start(LANES[:1]), keys), items), len(keys))[0]
    np.bitwise_xor.at(mixed, np.repeat(np.arange(len(values)), sizes), entries)
    return hash8(hash4(seeds, sizes.astype(np.uint64)), mixed)
