"""PROTOBUF and PROTOBUF_NOSR: what is written reads back, broken records, and what neither format can hold."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.ingest.formats import columns
from strandline.jobs.ingest.formats.coerce import wire_value
from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.ingest.formats.protobuf_format import message_class
from strandline.jobs.ingest.formats.protobuf_schema import schema_of
from strandline.jobs.ingest.formats.registry import LocalRegistry
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import BaseType, SqlType
from strandline.state_store.layout import LakeLayout
from tests.support.examples import examples
from tests.unit.ingest.formats.decoding import decode, no_registry, source

NULLABLE = "VALUE_PROTOBUF_NULLABLE_REPRESENTATION"

_KINDS: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (t.BOOLEAN, st.booleans()),
    (t.INT, st.integers(-(2**31), 2**31 - 1)),
    (t.BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (t.DOUBLE, st.floats(allow_nan=False)),
    (t.VARCHAR, st.text(max_size=9)),
    (t.BYTES, st.binary(max_size=9)),
    (t.decimal(20, 6), st.decimals(-(10**13), 10**13, places=6)),
    (t.DATE, st.dates()),
    (t.TIME, st.integers(0, 86_399_999)),
    (t.TIMESTAMP, st.integers(-62_135_596_800_000, 253_402_300_799_999)),
    (t.array(t.decimal(20, 6)), st.lists(st.decimals(-(10**13), 10**13, places=6), max_size=4)),
    (t.map_of(t.VARCHAR, t.DATE), st.dictionaries(st.text(max_size=5), st.dates(), max_size=4)),
    (
        t.struct(("x", t.VARCHAR), ("y", t.struct(("z", t.array(t.INT))))),
        st.fixed_dictionaries(
            {
                "x": st.none() | st.text(max_size=5),
                "y": st.none() | st.fixed_dictionaries({"z": st.lists(st.integers(-9, 9), max_size=3)}),
            }
        ),
    ),
]
_DEFAULTS = {
    BaseType.BOOLEAN: False,
    BaseType.INT: 0,
    BaseType.BIGINT: 0,
    BaseType.DOUBLE: 0.0,
    BaseType.VARCHAR: "",
    BaseType.BYTES: b"",
}


def _columns() -> list[tuple[str, SqlType]]:
    return [(f"c{number}", kind) for number, (kind, _) in enumerate(_KINDS)]


def _written(of: Source, row: dict[str, Any], registry: Any) -> bytes:
    form = open_format(of, "value", registry)
    assert form is not None
    payload = form.encode({column.name: wire_value(row[column.name], column) for column in of.columns})
    assert payload is not None
    return payload


def _expected(value: Any, kind: SqlType, *, defaults: bool) -> Any:
    """A value as PROTOBUF gives it back: lists and maps are never NULL, plain values only where that was asked for."""
    if kind.base is BaseType.STRUCT and value is not None:
        return {name: _expected(value[name], inner, defaults=defaults) for name, inner in kind.fields}
    if value is None:
        empty: dict[BaseType, object] = {BaseType.ARRAY: [], BaseType.MAP: {}}
        return (_DEFAULTS | empty if defaults else empty).get(kind.base)
    return dict(sorted(value.items())) if kind.base is BaseType.MAP else value


@pytest.mark.parametrize("form", ["PROTOBUF", "PROTOBUF_NOSR"])
@pytest.mark.parametrize("nullable", ["", "OPTIONAL", "WRAPPER"])
@settings(deadline=None, max_examples=examples(10))
@given(data=st.data())
def test_what_insert_writes_reads_back(
    form: str, nullable: str, memory: SchemaRegistryClient, data: st.DataObject
) -> None:
    """Property: decode(encode(row)) = row, but for the NULLs that PROTOBUF has not."""
    row = {f"c{n}": data.draw(st.none() | values) for n, (_, values) in enumerate(_KINDS)}
    of = source(form, *_columns(), **({NULLABLE: nullable} if nullable else {}))
    rows, errors = decode(of, [_written(of, row, lambda: memory)], registry=lambda: memory)
    assert errors == {}
    for column in of.columns:
        wanted = _expected(row[column.name], column.type, defaults=not nullable)
        assert [rows[0][column.name]] == columns.build(column, [wanted], errors).to_pylist()
    assert errors == {}


def test_the_schema_is_that_of_kafka_connect() -> None:
    """Fields in the order of the columns, and the messages that stand for types without a scalar."""
    kind = t.struct(("at", t.TIMESTAMP))
    of = source("PROTOBUF", ("id", t.BIGINT), ("x", t.decimal(8, 2)), ("by_area", t.map_of(t.VARCHAR, kind)))
    file = schema_of(of.columns, None)
    assert list(file.dependency) == [
        "confluent/type/decimal.proto",
        "confluent/meta.proto",
        "google/protobuf/timestamp.proto",
    ]
    [message] = file.message_type
    fields = [(field.name, field.number, field.type, field.type_name) for field in message.field]
    assert (file.syntax, message.name) == ("proto3", "ConnectDefault1")
    assert fields == [
        ("id", 1, 3, ""),
        ("x", 2, 11, ".confluent.type.Decimal"),
        ("by_area", 3, 11, ".ConnectDefault1.ByAreaEntry"),
    ]
    assert [each.name for each in message.nested_type] == ["ByAreaEntry", "ConnectDefault2"]


# --- frames and registries ------------------------------------------------------------------------------------------


def test_broken_payloads_are_told_apart_from_null(memory: SchemaRegistryClient) -> None:
    of = source("PROTOBUF", ("v", t.VARCHAR))
    good = _written(of, {"v": "abc"}, lambda: memory)
    payloads: list[bytes | None] = [
        good,
        None,
        b"",
        b"\1" + good[1:],
        b"\0\0\0\xff\xff" + good[5:],
        good[:-1],
        good[:5] + b"\x02\x08" + good[6:],  # the message at place 4, of one
        good[:5] + b"\x80",
    ]
    rows, errors = decode(of, payloads, registry=lambda: memory)
    assert [row["v"] for row in rows] == ["abc"] + [None] * 7
    assert set(errors) == {2, 3, 4, 5, 6, 7}
    assert errors[6] == "not readable with its Protobuf schema: ValueError: the schema has no message 4"
    plain = source("PROTOBUF_NOSR", ("v", t.VARCHAR))
    rows, errors = decode(plain, [good[6:], None, b"", good[6:-1]])
    assert ([row["v"] for row in rows], set(errors)) == (["abc", None, "", None], {3})


def test_schemas_lie_in_the_lake_without_a_registry(lake: LakeLayout) -> None:
    of = source("PROTOBUF", ("k", t.VARCHAR), ("v", t.INT), key_format="PROTOBUF")
    form = open_format(of, "key", lambda: LocalRegistry(lake.registry))
    assert form is not None
    key = form.encode({"k": "me"})
    assert decode(of, [key], "key", registry=lambda: LocalRegistry(lake.registry)) == ([{"k": "me"}], {})


# --- what it cannot hold --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value"),
    [(t.array(t.INT), [1, None]), (t.map_of(t.VARCHAR, t.INT), {"a": None})],
)
def test_a_null_inside_is_not_written(kind: SqlType, value: object) -> None:
    with pytest.raises(EncodeFailed, match="'v' has a NULL inside"):
        _written(source("PROTOBUF_NOSR", ("v", kind)), {"v": value}, no_registry)


def test_a_key_that_is_null_is_not_written_as_a_default() -> None:
    keys = (("k1", t.INT), ("k2", t.INT))
    form = open_format(source("JSON", *keys, key_format="PROTOBUF_NOSR"), "key", no_registry)
    assert form is not None
    with pytest.raises(EncodeFailed, match="'k2' is NULL"):
        form.encode({"k1": 1, "k2": None})
    option = {"KEY_PROTOBUF_NULLABLE_REPRESENTATION": "OPTIONAL"}
    of = source("JSON", *keys, key_format="PROTOBUF_NOSR", **option)
    form = open_format(of, "key", no_registry)
    assert form is not None
    assert decode(of, [form.encode({"k1": 0, "k2": None})], "key") == ([{"k1": 0, "k2": None}], {})


def test_a_name_that_is_none_of_protobuf_is_refused_at_create() -> None:
    with pytest.raises(EncodeFailed, match="no field named 'a b'"):
        open_format(source("PROTOBUF_NOSR", ("a b", t.INT)), "value", no_registry)


def test_every_class_is_of_its_own_schema() -> None:
    """Two schemas declare different messages of one name."""
    made: list[type[Message]] = [
        message_class([schema_of(source("PROTOBUF", ("v", kind)).columns, None)], [0]) for kind in (t.INT, t.VARCHAR)
    ]
    assert [each.DESCRIPTOR.full_name for each in made] == ["ConnectDefault1"] * 2
    assert made[0].FromString(b"\x08\x05").v == 5
    assert made[1].FromString(b"\x0a\x01x").v == "x"
