"""What is written reads back in every format, and what a topic cannot carry is not written."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ingest.formats import columns
from strandline.jobs.ingest.formats.coerce import wire_value
from strandline.jobs.ingest.formats.format import FORMATS, check_source, open_format
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.errors import EncodeFailed, OptionRefused
from strandline.jobs.model.types import SqlType
from tests.support.examples import examples
from tests.unit.ingest.formats.decoding import decode, no_registry, source

_SCALARS: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (t.BOOLEAN, st.booleans()),
    (t.INT, st.integers(-(2**31), 2**31 - 1)),
    (t.BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (t.DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
    (t.decimal(20, 6), st.decimals(-(10**13), 10**13, places=6)),
    (t.VARCHAR, st.text(min_size=1, max_size=20)),
    (t.DATE, st.dates()),
    (t.TIME, st.integers(0, 86_399_999)),
    (t.TIMESTAMP, st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda ms: ms)),
]
_NESTED: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (t.BYTES, st.binary(max_size=20)),
    (t.array(t.decimal(20, 6)), st.lists(st.none() | st.decimals(-(10**13), 10**13, places=6), max_size=4)),
    (t.map_of(t.VARCHAR, t.BIGINT), st.dictionaries(st.text(max_size=5), st.none() | st.integers(-9, 9), max_size=4)),
    (
        t.struct(("x", t.VARCHAR), ("y", t.struct(("z", t.DATE)))),
        st.fixed_dictionaries({"x": st.none() | st.text(max_size=5), "y": st.fixed_dictionaries({"z": st.dates()})}),
    ),
]


def _rows(kinds: list[tuple[SqlType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({f"c{n}": st.none() | values for n, (_, values) in enumerate(kinds)})


def _round_trip(form: str, kinds: list[tuple[SqlType, Any]], row: dict[str, Any], registry: Any) -> None:
    of = source(form, *((f"c{n}", kind) for n, (kind, _) in enumerate(kinds)))
    writer = open_format(of, "value", registry)
    assert writer is not None
    payload = writer.encode({column.name: wire_value(row[column.name], column) for column in of.columns})
    rows, errors = decode(of, [payload], registry=registry)
    assert errors == {}
    expected = {}
    for column in of.columns:
        errors = {}
        expected[column.name] = columns.build(column, [row[column.name]], errors).to_pylist()[0]
        assert errors == {}
    assert rows == [expected]


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "KAFKA" and not name.startswith("PROTOBUF")])
@settings(deadline=None, max_examples=examples(10))
@given(data=st.data())
def test_what_insert_writes_reads_back(form: str, memory: SchemaRegistryClient, data: st.DataObject) -> None:
    """Property: decode(encode(row)) = row, for every type and NULL anywhere. PROTOBUF has a test of its own."""
    kinds = _SCALARS if form == "DELIMITED" else _SCALARS + _NESTED
    _round_trip(form, kinds, data.draw(_rows(kinds)), lambda: memory)


def test_what_topics_cannot_carry_is_not_written() -> None:
    moment = Column("at", t.TIMESTAMP)
    assert wire_value("2024-01-01T00:00:00.123", moment) == 1704067200123
    with pytest.raises(EncodeFailed, match="whole milliseconds"):
        wire_value("2024-01-01T00:00:00.123456", moment)
    with pytest.raises(EncodeFailed, match="column 'n'"):
        wire_value("x", Column("n", t.INT))
    form = open_format(source("DELIMITED", ("a", t.VARCHAR), ("b", t.INT)), "value", no_registry)
    assert form is not None
    with pytest.raises(EncodeFailed, match="empty string"):
        form.encode({"a": "", "b": 1})


_BARE: list[tuple[SqlType, Any]] = [(t.INT, -5), (t.BIGINT, 2**63 - 1), (t.VARCHAR, 'a"b'), (t.DOUBLE, 0.1)]


@pytest.mark.parametrize(
    ("form", "kind", "value"),
    [
        *((form, *each) for form in ("JSON", "JSON_SR", "AVRO", "KAFKA") for each in _BARE),
        *((form, t.array(t.INT), [1, None]) for form in ("JSON", "JSON_SR", "AVRO")),
    ],
)
def test_a_value_of_one_column_may_be_bare(form: str, kind: SqlType, value: Any, memory: SchemaRegistryClient) -> None:
    of = source(form, ("k", t.INT), ("v", kind), WRAP_SINGLE_VALUE="false")
    writer = open_format(of, "value", lambda: memory)
    assert writer is not None
    payload = writer.encode({"v": value})
    assert payload is not None
    assert b"v" not in payload.removeprefix(b"\0")[4:], "the column has no name there"
    assert decode(of, [payload, None], registry=lambda: memory) == ([{"v": value}, {"v": None}], {})


def test_a_bare_null_is_no_tombstone_in_json() -> None:
    of = source("JSON", ("k", t.INT), ("v", t.INT), WRAP_SINGLE_VALUE="false", key_format="JSON")
    value, key = open_format(of, "value", no_registry), open_format(of, "key", no_registry)
    assert value is not None
    assert key is not None
    assert (value.encode({"v": None}), key.encode({"k": None})) == (b"null", None)
    assert decode(of, [b"null", b"7", b"{}", b'{"v": 1}']) == (
        [{"v": None}, {"v": 7}, {"v": None}, {"v": None}],
        {2: "column 'v': {} is not a INT", 3: "column 'v': {\"v\":1} is not a INT"},
    )


@pytest.mark.parametrize(
    ("form", "wanted", "wrap", "message"),
    [
        ("JSON", ("v", "w"), "false", "a value of one column, not 2: v, w"),
        ("PROTOBUF_NOSR", ("v",), "false", "the format PROTOBUF_NOSR has no values with WRAP_SINGLE_VALUE = 'false'"),
        ("DELIMITED", ("v",), "true", "the format DELIMITED has no values"),
        ("KAFKA", ("v",), "true", "the format KAFKA has no values"),
        ("DEBEZIUM_JSON", ("v",), "false", "the format DEBEZIUM_JSON has no values"),
    ],
)
def test_values_are_not_bare_in_every_format(form: str, wanted: tuple[str, ...], wrap: str, message: str) -> None:
    of = source(form, ("k", t.INT), *((name, t.INT) for name in wanted), WRAP_SINGLE_VALUE=wrap)
    with pytest.raises(OptionRefused, match=message):
        check_source(of)
