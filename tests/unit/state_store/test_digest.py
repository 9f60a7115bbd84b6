"""The digest: free of order, sensitive to every value, and kept by differences."""

from __future__ import annotations

import struct
from datetime import UTC, date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import CorruptState
from strandline.state_store.row_lanes import row_lanes

SCHEMA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("big", pa.int64()),
        ("real", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("huge", pa.decimal128(38, 5)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.int64())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("pair", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])),
    ]
)


def _decimals(digits: int, places: int) -> st.SearchStrategy[Decimal]:
    limit = 10**digits - 1
    return st.integers(-limit, limit).map(lambda n: Decimal(n).scaleb(-places) if digits <= 28 else _exact(n, places))


def _exact(unscaled: int, places: int) -> Decimal:
    sign, digits = int(unscaled < 0), tuple(int(d) for d in str(abs(unscaled)))
    return Decimal((sign, digits, -places))


LONGS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "flag": st.booleans(),
    "small": st.integers(-(2**31), 2**31 - 1),
    "big": LONGS,
    "real": st.floats(),
    "price": _decimals(10, 2),
    "huge": _decimals(38, 5),
    "text": st.text(max_size=40),
    "raw": st.binary(max_size=70),
    "day": st.dates(date(1, 1, 1), date(9999, 12, 31)),
    "at": st.datetimes(timezones=st.just(UTC)),
    "list": st.lists(st.none() | LONGS, max_size=4),
    "map": st.dictionaries(st.text(max_size=5), st.none() | LONGS, max_size=4).map(lambda d: list(d.items())),
    "pair": st.fixed_dictionaries(
        {"a": st.none() | LONGS, "b": st.none() | st.lists(st.none() | st.text(max_size=3), max_size=3)}
    ),
}
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), max_size=6)


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _digest(rows: list[dict[str, Any]]) -> Digest:
    return digest_of_table([_batch(rows)])


def _of(kind: pa.DataType, *values: Any) -> list[Digest]:
    return [digest_of_table([pa.record_batch([pa.array([value], kind)], names=["x"])]) for value in values]


@given(ROWS, st.randoms(use_true_random=False), st.integers(0, 6))
def test_neither_order_nor_batches_matter(rows: list[dict[str, Any]], random: Any, cut: int) -> None:
    shuffled = random.sample(rows, len(rows))
    table = pa.Table.from_batches([_batch(shuffled)])
    parts = [*table.slice(0, cut).to_batches(), *table.slice(cut).to_batches()]
    assert digest_of_table(parts) == _digest(rows)


@given(ROWS, ROWS)
def test_rows_are_added_and_taken_away_by_their_digests(
    left: list[dict[str, Any]], right: list[dict[str, Any]]
) -> None:
    taken = _digest(right)
    both = _digest(left) + taken
    assert both == _digest(left + right)
    assert both - taken == both + Digest(-taken.first, -taken.second, -taken.count) == _digest(left)


@given(ROWS)
def test_a_digest_reads_back_from_its_text(rows: list[dict[str, Any]]) -> None:
    digest = _digest(rows)
    assert Digest.parse(str(digest)) == digest
    assert len(str(digest).partition(":")[0]) == 32


@given(st.lists(st.none() | st.text(max_size=3) | st.just(""), min_size=2, max_size=2, unique=True))
def test_a_value_and_null_in_swapped_columns_differ(values: list[str | None]) -> None:
    """Spark's xxhash64 alone skips NULLs, so that (NULL, 'a') would equal ('a', NULL)."""
    names = ["x", "y"]
    one = pa.RecordBatch.from_pylist(
        [dict(zip(names, values, strict=True))], pa.schema([(n, pa.string()) for n in names])
    )
    other = pa.record_batch([one.column(1), one.column(0)], names=names)
    assert digest_of_table([one]) != digest_of_table([other])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(pa.list_(pa.int64())), [None, [], [None], [[]], [[1], [2]], [[1, 2]], [[1, 2], []], [[2, 1]]]),
        (
            pa.map_(pa.string(), pa.int64()),
            [None, [], [("a", None)], [("a", 1)], [("a", 1), ("b", 2)], [("a", 2), ("b", 1)]],
        ),
        (pa.struct([("a", pa.int64()), ("b", pa.int64())]), [None, {}, {"a": 1}, {"b": 1}]),
        (pa.string(), [None, "", "a", "A", "a "]),
        (pa.float64(), [None, 0.0, float("nan"), float("inf"), 1e-300]),
        (
            pa.decimal128(38, 2),
            [None, Decimal("0.00"), Decimal("0.01"), Decimal("-0.01"), Decimal("1.28"), Decimal("-1.28")],
        ),
    ],
)
def test_different_values_have_different_digests(kind: pa.DataType, values: list[Any]) -> None:
    digests = _of(kind, *values)
    assert len(set(digests)) == len(values)


def test_minus_zero_equals_zero_nans_are_one_and_maps_have_no_order() -> None:
    assert len(set(_of(pa.float64(), 0.0, -0.0))) == 1
    nans = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in (0x7FF8000000000000, 0xFFF8000000000001)]
    assert len(set(_of(pa.float64(), *nans))) == 1
    assert len(set(_of(pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]))) == 1


@given(st.lists(LONGS, min_size=1, max_size=5))
def test_a_lane_is_a_chain_of_plain_xxhash64(values: list[int]) -> None:
    """The vectorised arithmetic is xxHash64 of the bytes: lane number, null flag, value."""
    batch = pa.record_batch([pa.array(values, pa.int64())], names=["x"])
    for lane, hashes in enumerate(row_lanes(batch), start=1):
        for value, hashed in zip(values, hashes.tolist(), strict=True):
            seed = xxhash.xxh64_intdigest(struct.pack("<i", lane), 42)
            seed = xxhash.xxh64_intdigest(struct.pack("<i", 0), seed)
            assert hashed == xxhash.xxh64_intdigest(struct.pack("<q", value), seed)


@given(ROWS)
def test_slices_of_arrays_hash_as_their_rows(rows: list[dict[str, Any]]) -> None:
    """Arrow's nested arrays keep the whole buffers in a slice; only the slice's rows count."""
    batch = _batch(rows)
    total = Digest()
    for row in range(batch.num_rows):
        total += digest_of_table([batch.slice(row, 1)])
    assert total == digest_of_table([batch])


def test_no_rows_and_the_empty_text_are_the_same_digest() -> None:
    assert _digest([]) == Digest() == Digest.parse("")
    assert str(Digest()) == "0" * 32 + ":0"


def test_a_text_that_is_no_digest_is_refused() -> None:
    with pytest.raises(CorruptState, match="is not a digest"):
        Digest.parse("xyz:1")


def test_a_type_that_no_table_has_is_refused() -> None:
    with pytest.raises(CorruptState, match="has no digest"):
        digest_of_table([pa.record_batch([pa.array([1.0], pa.float32())], names=["x"])])
