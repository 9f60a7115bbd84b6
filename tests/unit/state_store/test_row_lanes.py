"""Hashes of whole columns are xxHash64's, value by value."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.row_lanes import hash4, hash8, hash_bytes

SEEDS = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(SEEDS, st.binary(max_size=80)), min_size=1), st.integers(0, 3))
def test_bytes_of_any_length_with_seeds_of_their_own(values: list[tuple[int, bytes]], skipped: int) -> None:
    seeds = np.array([seed for seed, _ in values], np.uint64)
    array = pa.array([b"before"] * skipped + [value for _, value in values], pa.large_binary()).slice(skipped)
    found = hash_bytes(seeds, array).tolist()
    assert found == [xxhash.xxh64_intdigest(value, seed) for seed, value in values]


@pytest.mark.parametrize("size", range(70))
def test_every_length(size: int) -> None:
    value = bytes((7 * n + 200) % 256 for n in range(size))
    found = hash_bytes(np.array([42, 2**64 - 1], np.uint64), pa.array([value, value], pa.large_binary()))
    assert found.tolist() == [xxhash.xxh64_intdigest(value, seed) for seed in (42, 2**64 - 1)]


@given(st.lists(st.tuples(SEEDS, SEEDS), min_size=1))
def test_numbers(values: list[tuple[int, int]]) -> None:
    seeds, numbers = (np.array([pair[place] for pair in values], np.uint64) for place in (0, 1))
    eight = [xxhash.xxh64_intdigest(n.to_bytes(8, "little"), seed) for seed, n in values]
    four = [xxhash.xxh64_intdigest((n % 2**32).to_bytes(4, "little"), seed) for seed, n in values]
    assert hash8(seeds, numbers).tolist() == eight
    assert hash4(seeds, numbers % np.uint64(2**32)).tolist() == four
