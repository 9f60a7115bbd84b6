"""Keys of rows: of bounded length, in order, and ranges over their first columns."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.errors import KeyRefused
from strandline.state_store.replicas.row_bytes import KEPT_BYTES, LONGEST_BYTES, ROWS, ROWS_END, KeyCodec, KeyRange

SCHEMA = pa.schema([("v", pa.float64()), ("town", pa.string()), ("n", pa.int32())])
CODEC = KeyCodec(SCHEMA, ["town", "n"])
# LMDB's limit is the smallest of our backends'.
LMDB_LIMIT = 511
TOWNS = st.none() | st.sampled_from(["", "a", "a\0", "ab", "b", "x" * 300, "x" * 500, "x" * 499 + "y"])
ROW = st.tuples(TOWNS, st.none() | st.integers(-3, 3))


def keys_of(rows: list[tuple[str | None, int | None]]) -> list[bytes]:
    return CODEC.encode(pa.RecordBatch.from_pylist([{"v": 0.0, "town": town, "n": n} for town, n in rows], SCHEMA))


@given(st.lists(ROW, max_size=8))
def test_the_key_of_a_row_is_the_key_of_its_values(rows: list[tuple[str | None, int | None]]) -> None:
    keys = keys_of(rows)
    assert keys == [CODEC.of_values(row) for row in rows]
    assert all(ROWS <= key < ROWS_END and len(key) <= LONGEST_BYTES < LMDB_LIMIT for key in keys)
    assert len(set(keys)) == len(set(rows))


@given(
    st.lists(ROW, max_size=8),
    st.none() | ROW,
    st.none() | ROW,
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
)
def test_a_range_has_what_lies_between_its_bounds(
    rows: list[tuple[str | None, int | None]],
    lowest: tuple[str | None, int | None] | None,
    highest: tuple[str | None, int | None] | None,
    low_columns: int,
    high_columns: int,
    after_low: bool,
    with_high: bool,
) -> None:
    low, high = lowest and lowest[:low_columns], highest and highest[:high_columns]
    wanted = KeyRange(low, high, after_low=after_low, with_high=with_high)
    if any(len(str(bound[0] or "")) > KEPT_BYTES - 20 for bound in (low, high) if bound):
        with pytest.raises(KeyRefused, match="the bound of a range"):
            CODEC.bounds(wanted)
        return
    first, end = CODEC.bounds(wanted)

    def order(row: Sequence[str | int | None]) -> list[tuple[bool, object]]:
        return [(value is not None, value if value is not None else 0) for value in row]

    for row, key in zip(rows, keys_of(rows), strict=True):
        begins = [] if low is None else order(row)[: len(low)]
        ends = [] if high is None else order(row)[: len(high)]
        inside = low is None or (begins > order(low) if after_low else begins >= order(low))
        inside &= high is None or (ends <= order(high) if with_high else ends < order(high))
        assert (first <= key < end) == inside


def test_a_prefix_is_a_range() -> None:
    first, end = CODEC.bounds(KeyRange.of_prefix("a"))
    inside = [
        row for row in [("a", None), ("a", 3), ("a\0", 1), ("", 1), ("b", 1)] if first <= CODEC.of_values(row) < end
    ]
    assert inside == [("a", None), ("a", 3)]


def test_a_table_with_a_single_row_has_one_key() -> None:
    codec = KeyCodec(SCHEMA, [])
    assert codec.of_values([]) == ROWS
    assert codec.encode(pa.RecordBatch.from_pylist([{"v": 1.0, "town": "a", "n": 1}], SCHEMA)) == [ROWS]
    assert codec.bounds(KeyRange()) == (ROWS, ROWS_END)


@pytest.mark.parametrize("values", [[], ["a"], ["a", 1, 2], [1, "a"], ["a", 2**31]])
def test_values_that_are_no_key_are_refused(values: list[object]) -> None:
    with pytest.raises(KeyRefused):
        CODEC.of_values(values)
    with pytest.raises(KeyRefused):
        CODEC.bounds(KeyRange(low=["a", 1, 2]))
