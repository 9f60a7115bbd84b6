"""AVRO and JSON_SR: frames, schemas of others, and a registry that does not answer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import SourceUnavailable
from tests.unit.ingest.formats.decoding import decode, source


@pytest.mark.parametrize("form", ["AVRO", "JSON_SR"])
def test_a_registry_frame_is_asked_for(form: str, memory: SchemaRegistryClient) -> None:
    of = source(form, ("v", t.INT))
    writer = open_format(of, "value", lambda: memory)
    assert writer is not None
    good = writer.encode({"v": 3})
    assert good is not None
    assert good[0] == 0
    payloads: list[bytes | None] = [good, b"", b"\0\0\0\0\1", b"\1" + good[1:], b"\0\0\0\xff\xff" + good[5:], None]
    rows, errors = decode(of, payloads, registry=lambda: memory)
    assert [row["v"] for row in rows] == [3] + [None] * 5
    assert set(errors) == {1, 2, 3, 4}
    assert errors[4] == "the registry has no schema with id 65535"


def test_avro_bytes_that_are_not_of_the_schema_are_broken(memory: SchemaRegistryClient) -> None:
    of = source("AVRO", ("v", t.VARCHAR), ("w", t.BIGINT))
    writer = open_format(of, "value", lambda: memory)
    assert writer is not None
    good = writer.encode({"v": "abcdef", "w": 5})
    assert good is not None
    cut = [good[:end] for end in range(6, len(good))]
    rows, errors = decode(of, [good, *cut], registry=lambda: memory)
    assert rows[0] == {"v": "abcdef", "w": 5}
    assert set(errors) == set(range(1, len(cut) + 1))


def test_avro_written_by_others_meets_columns_by_name(memory: SchemaRegistryClient) -> None:
    """Upper-case fields, another order, fields we do not know, a narrower number, a bare string as key."""
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    fields = [{"name": "EXTRA", "type": "string"}, {"name": "N", "type": "int"}, {"name": "V", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "theirs", "fields": fields})
    conf = {"subject.name.strategy.type": "TOPIC"}
    value = AvroSerializer(memory, schema, conf=conf)(
        {"EXTRA": "e", "N": 4, "V": "x"}, SerializationContext("topic", MessageField.VALUE)
    )
    of = source("AVRO", ("k", t.VARCHAR), ("v", t.VARCHAR), ("n", t.BIGINT), key_format="AVRO")
    assert decode(of, [value], registry=lambda: memory) == ([{"v": "x", "n": 4}], {})
    key = AvroSerializer(memory, '"string"', conf=conf)("me", SerializationContext("topic", MessageField.KEY))
    assert decode(of, [key], "key", registry=lambda: memory) == ([{"k": "me"}], {})


class _Silent(SchemaRegistryClient):
    def get_schema(self, *_: object, **__: object) -> Any:
        raise SchemaRegistryError(503, 50301, "leader not known")


def test_a_registry_that_does_not_answer_breaks_no_record() -> None:
    """It stops the batch, to be tried again: a record is only broken when the registry says so."""
    silent = _Silent({"url": "http://localhost"})
    with pytest.raises(SourceUnavailable, match="503"):
        decode(source("AVRO", ("v", t.INT)), [b"\0\0\0\0\1x"], registry=lambda: silent)
    closed = SchemaRegistryClient({"url": "http://127.0.0.1:9", "max.retries": 0})
    with pytest.raises(SourceUnavailable, match="does not answer"):
        decode(source("JSON_SR", ("v", t.INT)), [b"\0\0\0\0\1{}"], registry=lambda: closed)
