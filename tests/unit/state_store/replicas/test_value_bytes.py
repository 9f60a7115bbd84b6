"""The order-preserving codec: bytes are in the order of SQL, both ways of making them agree, and values come back."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cmp_to_key
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.errors import CorruptState, KeyRefused
from strandline.state_store.replicas.value_bytes import decoder, encoder, ordered

_TEXT = st.text(st.sampled_from("\0\x01aÄ€𐍈"), max_size=4)
_BYTES = st.binary(max_size=4) | st.lists(st.sampled_from([b"\0", b"\xff", b"\x01"])).map(b"".join)
_MICROS = st.integers(-(10**17), 2 * 10**17)
_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.struct([("d", pa.int64())]))])


def _whole(bits: int) -> st.SearchStrategy[int]:
    most = 2 ** (bits - 1)
    return st.integers(-most, most - 1) | st.sampled_from([-most, -1, 0, 1, most - 1])


def _decimals(digits: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**digits - 1
    return (st.integers(-most, most) | st.sampled_from([-most, -1, 0, most])).map(
        lambda whole: Decimal((whole < 0, tuple(map(int, str(abs(whole)))), -scale))
    )


def _maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


TYPES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "BOOLEAN": (pa.bool_(), st.booleans()),
    "TINYINT": (pa.int8(), _whole(8)),
    "SMALLINT": (pa.int16(), _whole(16)),
    "INT": (pa.int32(), _whole(32)),
    "BIGINT": (pa.int64(), _whole(64)),
    "FLOAT": (pa.float32(), st.floats(width=32)),
    "DOUBLE": (pa.float64(), st.floats()),
    "DECIMAL(5,2)": (pa.decimal128(5, 2), _decimals(5, 2)),
    "DECIMAL(38,10)": (pa.decimal128(38, 10), _decimals(38, 10)),
    "DATE": (pa.date32(), st.dates()),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
    "TIMESTAMP_NTZ": (pa.timestamp("us"), st.datetimes()),
    "VARCHAR": (pa.string(), _TEXT),
    "BYTES": (pa.binary(), _BYTES),
    "ARRAY": (pa.list_(pa.string()), st.lists(_maybe(_TEXT), max_size=3)),
    "STRUCT": (
        _STRUCT,
        st.fixed_dictionaries(
            {"a": _maybe(_whole(32)), "b": _maybe(_TEXT), "c": _maybe(st.fixed_dictionaries({"d": _maybe(_whole(64))}))}
        ),
    ),
}
NAMES = st.sampled_from(sorted(TYPES))


def compared(arrow_type: pa.DataType, one: Any, other: Any) -> int:
    """The order of SQL: NULL first, NaN last, −0.0 = 0.0, text by code points, then the rest as Python has it."""
    if one is None or other is None:
        return (one is not None) - (other is not None)
    if isinstance(one, dict):
        pairs = [(field.type, one[field.name], other[field.name]) for field in arrow_type]
        return next((found for pair in pairs if (found := compared(*pair))), 0)
    if isinstance(one, list):
        pairs = [(arrow_type.value_type, a, b) for a, b in zip(one, other, strict=False)]
        return next((found for pair in pairs if (found := compared(*pair))), len(one) - len(other))
    if isinstance(one, float):
        keys = [(math.isnan(value), 0.0 if math.isnan(value) else value) for value in (one, other)]
        return (keys[0] > keys[1]) - (keys[0] < keys[1])
    return int(one > other) - int(one < other)


def same(arrow_type: pa.DataType, one: Any, other: Any) -> bool:
    return compared(arrow_type, one, other) == 0


@given(NAMES, st.data())
def test_bytes_are_in_the_order_of_sql(name: str, data: st.DataObject) -> None:
    arrow_type, values = TYPES[name]
    drawn = data.draw(st.lists(_maybe(values), min_size=1, max_size=8))
    encode = encoder(arrow_type)
    by_bytes = sorted(drawn, key=encode)
    by_value = sorted(drawn, key=cmp_to_key(lambda one, other: compared(arrow_type, one, other)))
    assert all(same(arrow_type, one, other) for one, other in zip(by_bytes, by_value, strict=True))
    for one in drawn:
        for other in drawn:
            assert (encode(one) == encode(other)) == same(arrow_type, one, other)


@given(st.lists(NAMES, min_size=1, max_size=3), st.data())
def test_keys_of_many_columns_are_in_order_and_end_by_themselves(names: list[str], data: st.DataObject) -> None:
    types = [TYPES[name][0] for name in names]
    rows = data.draw(st.lists(st.tuples(*(_maybe(TYPES[name][1]) for name in names)), min_size=2, max_size=6))
    encoders = [encoder(each) for each in types]

    def encode(row: tuple[Any, ...]) -> bytes:
        return b"".join(each(value) for each, value in zip(encoders, row, strict=True))

    def order(one: tuple[Any, ...], other: tuple[Any, ...]) -> int:
        found = (compared(*pair) for pair in zip(types, one, other, strict=True))
        return next((each for each in found if each), 0)

    by_bytes, by_value = sorted(rows, key=encode), sorted(rows, key=cmp_to_key(order))
    assert all(order(one, other) == 0 for one, other in zip(by_bytes, by_value, strict=True))


@given(NAMES, st.data())
def test_columns_have_the_bytes_of_their_values_and_give_them_back(name: str, data: st.DataObject) -> None:
    arrow_type, values = TYPES[name]
    drawn = data.draw(st.lists(_maybe(values), max_size=6))
    column = pa.array(drawn, arrow_type)
    start = data.draw(st.integers(0, len(drawn)))
    column = column.slice(start)
    encode, decode = encoder(arrow_type), decoder(arrow_type)
    found = ordered([column], len(column)).to_pylist()
    assert found == [encode(value) for value in column.to_pylist()]
    for encoded, value in zip(found, column.to_pylist(), strict=True):
        back, end = decode(encoded + b"\x01rest", 0)
        assert same(arrow_type, back, value)
        assert end == len(encoded)


@given(st.lists(_maybe(st.dictionaries(_TEXT, _maybe(_whole(64)), max_size=4)), max_size=5), st.randoms())
def test_equal_maps_have_equal_bytes(maps: list[dict[str, int | None] | None], random: Random) -> None:
    arrow_type = pa.map_(pa.string(), pa.int64())
    turned = []
    for each in maps:
        entries = None if each is None else list(each.items())
        if entries is not None:
            random.shuffle(entries)
        turned.append(entries)
    found = ordered([pa.array(turned, arrow_type)], len(maps)).to_pylist()
    encode, decode = encoder(arrow_type), decoder(arrow_type)
    assert found == [encode(each) for each in maps]
    assert [None if value is None else dict(value) for value, _ in (decode(each, 0) for each in found)] == maps


def test_many_values_of_the_clock_keep_their_order() -> None:
    moments = [
        datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=days, microseconds=days) for days in range(0, 3_600_000, 997)
    ]
    encode = encoder(pa.timestamp("us", "UTC"))
    encoded = [encode(each) for each in moments]
    assert encoded == sorted(encoded)
    assert encoded == ordered([pa.array(moments, pa.timestamp("us", "UTC"))], len(moments)).to_pylist()


@pytest.mark.parametrize(
    ("arrow_type", "value"),
    [
        (pa.int32(), 2**31),
        (pa.int32(), "1"),
        (pa.int32(), 1.0),
        (pa.int64(), True),
        (pa.bool_(), 1),
        (pa.float64(), "x"),
        (pa.float64(), True),
        (pa.string(), b"x"),
        (pa.string(), 1),
        (pa.binary(), "x"),
        (pa.date32(), "2026-01-01"),
        (pa.timestamp("us", "UTC"), datetime(2026, 1, 1)),  # noqa: DTZ001
        (pa.timestamp("us", "UTC"), date(2026, 1, 1)),
        (pa.decimal128(5, 2), Decimal("0.001")),
        (pa.decimal128(5, 2), "1"),
        (_STRUCT, {"a": 1}),
        (pa.list_(pa.int32()), 3),
    ],
)
def test_a_value_of_another_type_is_refused(arrow_type: pa.DataType, value: Any) -> None:
    with pytest.raises(KeyRefused, match="is no value of type"):
        encoder(arrow_type)(value)


def test_a_type_that_tables_do_not_have_is_refused() -> None:
    for make in (encoder, decoder, lambda found: ordered([pa.nulls(1, found)], 1)):
        with pytest.raises(CorruptState, match="has no place in a replica"):
            make(pa.duration("us"))
