"""Columns by the schemas of a registry: which types they become, and which are refused with their name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.jobs.ingest.formats.confluent import avro_schema, json_schema
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.session.define.registered import columns_of_avro, columns_of_envelope, columns_of_json

_COLUMNS = (
    Column("b", t.BOOLEAN),
    Column("i", t.INT),
    Column("l", t.BIGINT),
    Column("d", t.DOUBLE),
    Column("s", t.VARCHAR),
    Column("x", t.BYTES),
    Column("day", t.DATE),
    Column("clock", t.TIME),
    Column("at", t.TIMESTAMP),
    Column("list", t.array(t.BIGINT)),
    Column("pairs", t.map_of(t.VARCHAR, t.INT)),
    Column("inner", t.struct(("a", t.INT), ("c", t.array(t.VARCHAR)))),
)


def record(*fields: tuple[str, Any]) -> str:
    members = [{"name": name, "type": each} for name, each in fields]
    return json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": members})


def test_what_we_register_comes_back_as_its_columns() -> None:
    wanted = {column.name: column.type for column in _COLUMNS}
    price = Column("price", t.decimal(12, 3))
    avro = avro_schema([*_COLUMNS, price], bare=False)
    assert columns_of_avro(avro, changes=False) == wanted | {"price": price.type}
    text = json_schema(_COLUMNS, bare=False)
    assert columns_of_json(text) == wanted | {"l": t.BIGINT}
    assert columns_of_avro(avro_schema([price], bare=True), changes=False) == price.type
    assert columns_of_json(json_schema(_COLUMNS[:1], bare=True)) == t.BOOLEAN


@pytest.mark.parametrize(
    ("avro", "plain", "changed"),
    [
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, t.BIGINT, t.TIMESTAMP),
        ({"type": "int", "connect.name": "io.debezium.time.Date"}, t.INT, t.DATE),
        ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, t.VARCHAR, t.VARCHAR),
        (["null", {"type": "string", "logicalType": "uuid"}], t.VARCHAR, t.VARCHAR),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, t.VARCHAR, t.VARCHAR),
        ({"type": "fixed", "name": "f", "size": 2}, t.BYTES, t.BYTES),
        ({"type": "long", "logicalType": "timestamp-micros"}, t.TIMESTAMP, t.TIMESTAMP),
        (
            {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": 64,
                "scale": 2,
                "connect.name": "org.apache.kafka.connect.data.Decimal",
                "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            },
            t.decimal(10, 2),
            t.decimal(10, 2),
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 64, "scale": 2}, t.decimal(38, 2), t.decimal(38, 2)),
    ],
)
def test_an_avro_type_is_a_type_of_ours(avro: Any, plain: Any, changed: Any) -> None:
    assert columns_of_avro(record(("v", avro)), changes=False) == {"v": plain}
    envelope = record(("before", ["null", json.loads(record(("v", avro)))]), ("after", ["null", "n.r"]))
    row = {**json.loads(record(("v", avro))), "name": "row"}
    envelope = record(("before", ["null", row]), ("after", ["null", "n.row"]), ("op", "string"))
    assert columns_of_envelope(envelope) == {"v": changed}


def test_a_json_schema_of_others() -> None:
    members = {
        "id": {"type": "integer", "connect.index": 1},
        "at": {"oneOf": [{"type": "null"}, {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp"}]},
        "tags": {"type": ["array", "null"], "items": {"type": "string"}},
    }
    found = columns_of_json(json.dumps({"type": "object", "properties": members}))
    assert found == {"at": t.TIMESTAMP, "tags": t.array(t.VARCHAR), "id": t.BIGINT}


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (columns_of_envelope, record(("id", "int")), "no Debezium envelope"),
        (columns_of_envelope, '"int"', "no Debezium envelope"),
        (columns_of_json, '{"properties": {"v": {"anyOf": [{"type": "string"}, {"type": "array"}]}}}', "v: it is one"),
        (columns_of_json, '{"properties": {"v": {"$ref": "#/x"}}}', "v: it is of several types"),
    ],
)  # fmt: skip
def test_a_schema_without_columns_is_refused(read: Any, text: str, message: str) -> None:
    with pytest.raises(NotSupported, match=message):
        read(text)


def test_a_field_without_a_type_of_ours_is_named() -> None:
    inner = json.loads(record(("u", ["int", "string"])))
    with pytest.raises(NotSupported, match=r"the registered schema: outer\.u: it is a union"):
        columns_of_avro(
            json.dumps({**json.loads(record(("outer", {**inner, "name": "i"}))), "name": "o"}), changes=False
        )
    loop = record(("next", ["null", "n.r"]))
    with pytest.raises(NotSupported, match="a record within itself"):
        columns_of_avro(loop, changes=False)
