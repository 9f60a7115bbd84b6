"""PROTOBUF written by others: their schemas, with references, and registries that do not give them."""

from __future__ import annotations

import datetime as dt
from base64 import b64encode
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from strandline.jobs.ingest.formats.protobuf_format import message_class
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SourceUnavailable
from tests.unit.ingest.formats.decoding import decode, source

_TIME = dt.datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=dt.UTC)
_EVENT = """
name: "event.proto" syntax: "proto3" package: "shop"
message_type { name: "Event" field { name: "TIMESTAMP" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL } }
"""
_ORDER = """
name: "order.proto" syntax: "proto3" package: "shop" dependency: "event.proto"
dependency: "google/protobuf/wrappers.proto" dependency: "google/protobuf/timestamp.proto"
message_type { name: "Other" }
message_type {
  name: "Orders"
  nested_type {
    name: "Order"
    enum_type { name: "Suit" value { name: "SPADES" number: 0 } value { name: "CLUBS" number: 4 } }
    oneof_decl { name: "paid" }
    oneof_decl { name: "_note" }
    field { name: "N" number: 1 type: TYPE_UINT64 label: LABEL_OPTIONAL }
    field { name: "suit" number: 2 type: TYPE_ENUM type_name: ".shop.Orders.Order.Suit" label: LABEL_OPTIONAL }
    field { name: "cash" number: 3 type: TYPE_SINT32 label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "card" number: 4 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 0 }
    field { name: "note" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL oneof_index: 1 proto3_optional: true }
    field { name: "event" number: 6 type: TYPE_MESSAGE type_name: ".shop.Event" label: LABEL_OPTIONAL }
    field { name: "parts" number: 7 type: TYPE_MESSAGE type_name: ".shop.Orders.Order" label: LABEL_REPEATED }
    field { name: "rate" number: 8 type: TYPE_FLOAT label: LABEL_OPTIONAL }
    field { name: "w" number: 9 type: TYPE_MESSAGE type_name: ".google.protobuf.UInt32Value" label: LABEL_OPTIONAL }
    field { name: "at" number: 10 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL }
    field { name: "unread" number: 11 type: TYPE_BYTES label: LABEL_OPTIONAL }
  }
}
"""
_FILES = [text_format.Parse(text, FileDescriptorProto()) for text in (_EVENT, _ORDER)]
_THEIRS = source(
    "PROTOBUF",
    ("n", t.BIGINT),
    ("suit", t.VARCHAR),
    ("cash", t.INT),
    ("card", t.VARCHAR),
    ("note", t.VARCHAR),
    ("event", t.struct(("timestamp", t.BIGINT))),
    ("parts", t.array(t.struct(("n", t.INT), ("suit", t.VARCHAR)))),
    ("rate", t.DOUBLE),
    ("w", t.BIGINT),
    ("at", t.TIMESTAMP),
    ("absent", t.INT),
)
_NOTHING: dict[str, Any] = dict.fromkeys([column.name for column in _THEIRS.columns])


def _theirs(text: str, registry: SchemaRegistryClient) -> bytes:
    """The payload of an Order, the first message inside the second of its file, in protobuf's text format."""
    message = text_format.Parse(text, message_class(_FILES, [1, 0])())
    payload = ProtobufSerializer(message.__class__, registry, conf={"subject.name.strategy.type": "TOPIC"})(
        message, SerializationContext("theirs", MessageField.VALUE)
    )
    assert isinstance(payload, bytes)
    return payload


def test_messages_of_others_meet_columns_by_name(memory: SchemaRegistryClient) -> None:
    full = _theirs(
        "N: 7 suit: CLUBS cash: 0 event { TIMESTAMP: 9 } parts { N: 1 suit: 9 } rate: 0.5 w { value: 0 }"
        " at { seconds: -1 nanos: 500000999 } unread: 'x'",
        memory,
    )
    rows, errors = decode(_THEIRS, [full, _theirs("", memory)], registry=lambda: memory)
    assert errors == {}
    assert rows[0] == {
        **_NOTHING,
        **{"n": 7, "suit": "CLUBS", "cash": 0, "event": {"timestamp": 9}, "parts": [{"n": 1, "suit": "9"}]},
        **{"rate": 0.5, "w": 0, "at": _TIME},
    }
    assert rows[1] == {**_NOTHING, "n": 0, "suit": "SPADES", "parts": [], "rate": 0.0}


def test_a_value_that_does_not_fit_is_refused_and_not_cut(memory: SchemaRegistryClient) -> None:
    late = "at { seconds: 999999999999 }"
    payloads: list[bytes | None] = [_theirs(text, memory) for text in ("N: 9223372036854775808", late, "N: 1")]
    rows, errors = decode(_THEIRS, payloads, registry=lambda: memory)
    assert set(errors) == {0, 1}
    assert "out of the range of BIGINT" in errors[0]
    assert rows[2]["n"] == 1


def test_proto2_has_defaults_of_its_own_and_fields_that_are_not_there(memory: SchemaRegistryClient) -> None:
    text = """name: "p.proto" message_type { name: "P"
      field { name: "a" number: 1 type: TYPE_INT32 label: LABEL_OPTIONAL default_value: "5" }
      field { name: "b" number: 2 type: TYPE_INT32 label: LABEL_OPTIONAL } }"""
    file = text_format.Parse(text, FileDescriptorProto())
    identity = memory.register_schema("p-value", Schema(b64encode(file.SerializeToString()).decode(), "PROTOBUF"))
    payload = b"\0" + identity.to_bytes(4, "big") + b"\0"
    of = source("PROTOBUF", ("a", t.INT), ("b", t.INT))
    assert decode(of, [payload], registry=lambda: memory) == ([{"a": 5, "b": None}], {})


# --- registries -----------------------------------------------------------------------------------------------------


class _Text(SchemaRegistryClient):
    """A registry that knows no other form of a schema than its text."""

    def get_schema(self, *_: object, **__: object) -> Schema:
        return Schema('syntax = "proto3"; message A { int32 v = 1; }', "PROTOBUF")


def test_a_registry_that_gives_text_breaks_no_record() -> None:
    of = source("PROTOBUF", ("v", t.INT))
    with pytest.raises(SourceUnavailable, match="as text only"):
        decode(of, [b"\0\0\0\0\1\0\x08\x01"], registry=lambda: _Text({"url": "http://localhost"}))


def test_a_schema_with_an_import_that_nobody_has_breaks_its_records(memory: SchemaRegistryClient) -> None:
    [event, order] = _FILES
    alone = Schema(b64encode(order.SerializeToString()).decode(), "PROTOBUF")
    identity = memory.register_schema("alone-value", alone)
    lost = Schema(alone.schema_str, "PROTOBUF", [SchemaReference("event.proto", "nowhere", 1)])
    other = memory.register_schema("lost-value", lost)
    payloads: list[bytes | None] = [b"\0" + each.to_bytes(4, "big") + b"\0" for each in (identity, other)]
    _, errors = decode(source("PROTOBUF", ("n", t.INT)), payloads, registry=lambda: memory)
    assert "imports 'event.proto', which it does not refer to" in errors[0]
    assert set(errors) == {0, 1}
    assert event.name == "event.proto"
