"""Stored rows: whole columns and single rows have the same bytes, and come back as they were."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import CorruptState
from strandline.state_store.replicas.row_bytes import COUNT, RowCodec
from tests.unit.state_store.replicas.test_value_bytes import NAMES, TYPES, same


@given(st.lists(NAMES, min_size=1, max_size=11), st.data())
def test_rows_come_back_one_by_one_and_all_at_once(names: list[str], data: st.DataObject) -> None:
    """Up to eleven columns: the bits of NULLs need a second byte from the ninth on."""
    schema = pa.schema([(f"{number} {name}", TYPES[name][0]) for number, name in enumerate(names)])
    drawn = st.tuples(*(st.none() | TYPES[name][1] for name in names))
    rows = data.draw(st.lists(drawn, max_size=4))
    columns = [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(schema)]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema).slice(data.draw(st.integers(0, len(rows))))
    codec = RowCodec(schema)
    encoded = codec.encode(batch)
    assert len(set(map(len, encoded))) <= len(rows)
    for value, row in zip(encoded, batch.to_pylist(), strict=True):
        assert COUNT.unpack_from(value) == (1,)
        assert_same(schema, codec.decode(value), row)
    together = codec.decode_all(encoded)
    assert together.schema == schema
    together.validate(full=True)
    for found, row in zip(together.to_pylist(), batch.to_pylist(), strict=True):
        assert_same(schema, found, row)
    assert codec.encode(together) == encoded, "equal rows have equal bytes"


def assert_same(schema: pa.Schema, found: dict[str, Any], row: dict[str, Any]) -> None:
    assert list(found) == schema.names
    assert all(same(field.type, found[field.name], row[field.name]) for field in schema)


@given(
    st.lists(st.none() | st.dictionaries(st.text(max_size=2), st.none() | st.integers(-9, 9), max_size=3), max_size=4)
)
def test_maps_come_back_as_pairs(maps: list[dict[str, int | None] | None]) -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64())), ("k", pa.int32())])
    rows = [{"m": None if each is None else list(each.items()), "k": 1} for each in maps]
    codec = RowCodec(schema)
    encoded = codec.encode(pa.RecordBatch.from_pylist(rows, schema))
    found = [codec.decode(value)["m"] for value in encoded]
    assert [None if each is None else dict(each) for each in found] == maps
    assert codec.decode_all(encoded).column("m").to_pylist() == found


SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.string()), ("d", pa.decimal128(9, 2)), ("l", pa.list_(pa.int32()))])
ROWS = [
    {"k": 1, "t": "one", "d": Decimal("1.10"), "l": [1, None]},
    {"k": 2, "t": None, "d": None, "l": None},
    {"k": 3, "t": "", "d": Decimal("-3.00"), "l": []},
]


def test_a_row_that_is_there_more_than_once_comes_back_as_often() -> None:
    codec = RowCodec(SCHEMA)
    one, two, three = codec.encode(pa.RecordBatch.from_pylist(ROWS, SCHEMA))
    twice = COUNT.pack(2) + two[COUNT.size :]
    found = codec.decode_all([one, twice, three])
    assert found.to_pylist() == [ROWS[0], ROWS[1], ROWS[1], ROWS[2]]
    expected = pa.Table.from_pylist(found.to_pylist(), SCHEMA)
    assert digest_of_table([found]) == digest_of_table(expected.to_batches())


def test_bytes_that_are_no_row_are_refused() -> None:
    codec = RowCodec(SCHEMA)
    (one,) = codec.encode(pa.RecordBatch.from_pylist(ROWS[:1], SCHEMA))
    for broken in (b"", one[:20], one[:-1], one + b"x"):
        with pytest.raises(CorruptState):
            codec.decode_all([one, broken])
        with pytest.raises(CorruptState):
            codec.decode(broken)
    at = one.index(b"one")
    with pytest.raises(CorruptState):
        codec.decode_all([one[:at] + b"\xff\xfe\xfd" + one[at + 3 :]])
    with pytest.raises(CorruptState):
        codec.decode(one[:at] + b"\xff\xfe\xfd" + one[at + 3 :])


def test_a_column_may_have_any_name() -> None:
    names = ["it's", '"', "{x}", "\n", "def", "s0", "value", "\\", "", "ü"]
    schema = pa.schema([(name, pa.string() if number % 2 else pa.date32()) for number, name in enumerate(names)])
    row = {name: f"{number}" if number % 2 else dt.date(2024, 1, number + 1) for number, name in enumerate(names)}
    codec = RowCodec(schema)
    full, empty = codec.encode(pa.RecordBatch.from_pylist([row, {}], schema))
    assert codec.decode(full) == row
    assert codec.decode(empty) == dict.fromkeys(names)


def test_a_type_that_tables_do_not_have_is_refused() -> None:
    with pytest.raises(CorruptState, match="has no place in a replica"):
        RowCodec(pa.schema([("x", pa.duration("us"))]))
