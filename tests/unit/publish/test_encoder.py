"""The bytes of keys and values: what the formats can write, and a clear error for what they cannot."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.publish.encoder import Encoder, RecordOrigin, decoded_rows
from strandline.jobs.publish.topic import NULLS_COME_BACK
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import CorruptState, DuplicateKey
from strandline.state_store.tablespec import WEIGHT

COLUMNS = (
    Column("k", t.VARCHAR, key=True),
    Column("b", t.BOOLEAN),
    Column("i", t.INT),
    Column("l", t.BIGINT),
    Column("d", t.DOUBLE),
    Column("m", t.decimal(38, 10)),
    Column("y", t.BYTES),
    Column("day", t.DATE),
    Column("tod", t.TIME),
    Column("at", t.TIMESTAMP),
    Column("a", t.array(t.decimal(5, 2))),
    Column("p", t.map_of(t.VARCHAR, t.TIMESTAMP)),
    Column("s", t.struct(("x", t.DATE), ("z", t.array(t.struct(("w", t.DOUBLE)))))),
)
AT = dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC)
FULL: dict[str, Any] = {
    "k": 'ä"\n',
    "b": False,
    "i": -(2**31),
    "l": 2**63 - 1,
    "d": 0.1,
    "m": Decimal("1234567890123456789012345678.0000000010"),
    "y": b"\x00\xff",
    "day": dt.date(1, 1, 1),
    "tod": 86_399_999,
    "at": AT,
    "a": [Decimal("1.50"), None],
    "p": [("one", AT), ("two", None)],
    "s": {"x": dt.date(9999, 12, 31), "z": [{"w": -0.0}, None]},
}


def source(columns: tuple[Column, ...] = COLUMNS, key_format: str = "JSON", value_format: str = "JSON") -> Source:
    return Source("v", "table", columns, "topic", key_format, value_format, "p", "")


def table(rows: list[dict[str, Any]], columns: tuple[Column, ...] = COLUMNS) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema([(column.name, column.type.arrow()) for column in columns]))


def no_registry() -> Any:
    raise AssertionError("no format here needs it")


def test_every_type_comes_back_as_it_was() -> None:
    """Also a row of NULLs, whose key is NULL too."""
    rows = table([FULL, dict.fromkeys(FULL)])
    encoder = Encoder(source(), no_registry)
    live = dict(zip(encoder.keys(rows), encoder.values(rows), strict=True))
    assert list(live)[1] == b"null"
    back = decoded_rows(live, source(), no_registry)
    assert digest_of_table(back.to_batches()) == digest_of_table(rows.to_batches())
    assert back.to_pylist() == rows.to_pylist()


def test_protobuf_brings_rows_back_with_their_nulls() -> None:
    """A NULL key too; only lists and maps have no NULL there."""
    full = FULL | {"a": [Decimal("1.50")], "p": [("one", AT)], "s": {"x": None, "z": [{"w": -0.0}, {"w": None}]}}
    rows = table([full, dict.fromkeys(FULL) | {"a": [], "p": []}])
    written = replace(source(key_format="PROTOBUF_NOSR", value_format="PROTOBUF_NOSR"), options=NULLS_COME_BACK)
    encoder = Encoder(written, no_registry)
    live = dict(zip(encoder.keys(rows), encoder.values(rows), strict=True))
    back = decoded_rows(live, written, no_registry)
    assert digest_of_table(back.to_batches()) == digest_of_table(rows.to_batches())


def test_the_changes_of_a_version_are_tombstones_then_rows() -> None:
    """A row that comes as it went has no record."""
    columns = (Column("k", t.BIGINT, key=True), Column("n", t.INT))
    went = [{"k": 1, "n": 1}, {"k": 2, "n": 1}, {"k": 4, "n": 4}]
    came = [{"k": 4, "n": 4}, {"k": 1, "n": 2}, {"k": 3, "n": 1}]
    changes = table(went + came, columns).append_column(WEIGHT, pa.array([-1, -1, -1, 1, 1, 1], pa.int64()))
    records = list(Encoder(source(columns), no_registry).changes(changes, RecordOrigin("t", 2, 7), 1000))
    assert [(each.key, each.value) for each in records] == [(b"2", None), (b"1", b'{"n":2}'), (b"3", b'{"n":1}')]
    assert records[2].headers == (
        ("strandline.view", b"v"),
        ("strandline.table", b"t"),
        ("strandline.generation", b"2"),
        ("strandline.version", b"7"),
        ("strandline.ordinal", b"3"),
    )
    assert {each.timestamp_ms for each in records} == {1000}


def test_two_rows_of_one_key_are_found_out() -> None:
    columns = (Column("k", t.BIGINT, key=True), Column("n", t.INT))
    rows = table([{"k": 1, "n": 1}, {"k": 1, "n": 2}], columns).append_column(WEIGHT, pa.array([1, 1], pa.int64()))
    with pytest.raises(DuplicateKey, match="version 7"):
        list(Encoder(source(columns), no_registry).changes(rows, RecordOrigin("t", 2, 7), 0))


def test_a_view_without_a_key_has_one_record() -> None:
    columns = (Column("n", t.INT),)
    encoder = Encoder(source(columns), no_registry)
    assert encoder.keys(table([{"n": 1}], columns)) == [b"{}"]
    assert decoded_rows({b"{}": b'{"n":1}'}, source(columns), no_registry).to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("column", "value", "formats", "said"),
    [
        (Column("k", t.BIGINT, key=True), None, ("KAFKA", "JSON"), "as a key, the format KAFKA has no NULL"),
        (Column("n", t.BIGINT), None, ("JSON", "KAFKA"), "a row of NULLs"),
        (Column("n", t.DOUBLE), float("nan"), ("JSON", "JSON"), "NaN"),
        (Column("n", t.TIMESTAMP), AT + dt.timedelta(microseconds=1), ("JSON", "JSON"), "whole milliseconds"),
        (Column("n", t.array(t.TIMESTAMP)), [AT - dt.timedelta(microseconds=1)], ("JSON", "JSON"), "milliseconds"),
    ],
)
def test_what_a_format_cannot_write_is_an_error(
    column: Column, value: object, formats: tuple[str, str], said: str
) -> None:
    encoder = Encoder(source((column,), *formats), no_registry)
    rows = table([{column.name: value}], (column,))
    with pytest.raises(EncodeFailed, match=said):
        (encoder.keys if column.key else encoder.values)(rows)


def test_a_record_that_is_no_row_is_an_error() -> None:
    columns = (Column("k", t.BIGINT, key=True), Column("n", t.INT))
    with pytest.raises(CorruptState, match="not a row of 'v'"):
        decoded_rows({b"1": b'{"n":1}', b"2": b"[]"}, source(columns), no_registry)
