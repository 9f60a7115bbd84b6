"""Hashes of whole columns are xxHash64's, value by value."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Context, Decimal, localcontext

import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store import row_lanes
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


ELEMENTS: dict[pa.DataType, list[object]] = {
    pa.int64(): [-5, 0, 2**62],
    pa.int32(): [-5, 0, 7],
    pa.bool_(): [True, False],
    pa.date32(): [date(2024, 1, 1), date(1969, 1, 1)],
    pa.timestamp("us", "UTC"): [datetime(2024, 1, 1, tzinfo=UTC)],
    pa.float64(): [0.0, -0.0, math.nan, 1.5, -math.inf],
    pa.string(): ["", "a", "ü" * 40],
    pa.binary(): [b"", b"x" * 33],
    pa.decimal128(9, 2): [Decimal("1.25"), Decimal("-3.10")],
    pa.decimal128(38, 2): [Decimal("1.25"), Decimal("-3.10")],
    pa.struct([("x", pa.int32())]): [{"x": 1}, {"x": None}],
}


@pytest.mark.parametrize("element", ELEMENTS, ids=str)
@pytest.mark.parametrize("others", [0, 150])
def test_a_long_array_has_the_same_lanes_by_columns_and_value_by_value(
    element: pa.DataType, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = [*ELEMENTS[element], None] * 100
    rows = [None, long, None, long[:5], [], long[:250], *[long[:7]] * others]
    array = pa.array(rows, pa.list_(element)).slice(1)
    found = row_lanes.row_lanes(pa.record_batch({"a": array}))
    monkeypatch.setattr(row_lanes, "_FEW", 0)
    assert np.array_equal(found, row_lanes.row_lanes(pa.record_batch({"a": array})))


@given(st.lists(st.tuples(SEEDS, SEEDS), min_size=1))
def test_numbers(values: list[tuple[int, int]]) -> None:
    seeds, numbers = (np.array([pair[place] for pair in values], np.uint64) for place in (0, 1))
    eight = [xxhash.xxh64_intdigest(n.to_bytes(8, "little"), seed) for seed, n in values]
    four = [xxhash.xxh64_intdigest((n % 2**32).to_bytes(4, "little"), seed) for seed, n in values]
    assert hash8(seeds, numbers).tolist() == eight
    assert hash4(seeds, numbers % np.uint64(2**32)).tolist() == four


@given(
    st.lists(st.integers(-(10**38) + 1, 10**38 - 1) | st.sampled_from([0, -1, 127, 128, -128, -129, 2**63, -(2**126)]))
)
def test_long_decimals_are_as_few_bytes_as_hold_them_with_their_sign(numbers: list[int]) -> None:
    """As Java's BigInteger, and so Spark, has them."""
    with localcontext(Context(prec=80)):
        values = pa.array([Decimal(1), *(Decimal(number) for number in numbers)], pa.decimal128(38, 0)).slice(1)
    expected = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in numbers]
    assert row_lanes._digits(values).to_pylist() == expected
