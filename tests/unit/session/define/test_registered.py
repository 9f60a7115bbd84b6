"""Columns that a CREATE leaves to the schema registry: taken once, and kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema

from strandline.jobs.ingest.formats.registry import LocalRegistry, open_registry
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout

_ENVELOPE: list[dict[str, Any]] = [
    {"name": "before", "type": ["null", {"type": "record", "name": "Row", "fields": [
        {"name": "id", "type": "int"},
        {"name": "Shop", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    ]}]},
    {"name": "after", "type": ["null", "Row"]},
    {"name": "op", "type": "string"},
]  # fmt: skip


@pytest.fixture
def registry(settings: Settings) -> LocalRegistry:
    found = open_registry(settings, LakeLayout(settings.lake))
    assert isinstance(found, LocalRegistry)
    return found


def register(registry: LocalRegistry, subject: str, *fields: dict[str, Any]) -> int:
    text = json.dumps({"type": "record", "name": "r", "fields": fields})
    return registry.register_schema(subject, Schema(text, "AVRO"))


def columns(session: Interpreter, text: str, name: str = "orders") -> list[tuple[str, str, bool]]:
    for _ in session.run(text):
        pass
    found = session.catalog.get(name)
    assert isinstance(found, Source)
    return [(column.name, str(column.type), column.key) for column in found.columns]


def test_columns_are_those_of_the_newest_schema_and_stay(session: Interpreter, registry: LocalRegistry) -> None:
    text = "CREATE STREAM orders WITH (KAFKA_TOPIC = 'shop.orders', VALUE_FORMAT = 'AVRO')"
    first = register(registry, "shop.orders-value", {"name": "ID", "type": "long"})
    assert columns(session, text) == [("id", "BIGINT", False)]
    later = register(registry, "shop.orders-value", {"name": "ID", "type": "long"}, {"name": "n", "type": "int"})
    assert columns(session, text) == [("id", "BIGINT", False)]
    said = text.removesuffix(")") + ", VALUE_SCHEMA_ID = {})"
    assert columns(session, said.format(first)) == [("id", "BIGINT", False)]
    assert columns(session, said.format(later)) == [("id", "BIGINT", False), ("n", "INT", False)]


def test_a_key_is_declared_or_registered_too(session: Interpreter, registry: LocalRegistry) -> None:
    register(registry, "orders-value", {"name": "id", "type": "long"}, {"name": "n", "type": "int"})
    made = columns(session, "CREATE TABLE orders (id BIGINT PRIMARY KEY) WITH (VALUE_FORMAT = 'AVRO')")
    assert made == [("id", "BIGINT", True), ("n", "INT", False)]
    registry.register_schema("both-key", Schema('"string"', "AVRO"))
    register(registry, "both-value", {"name": "n", "type": "int"})
    made = columns(session, "CREATE TABLE both WITH (FORMAT = 'AVRO')", "both")
    assert made == [("rowkey", "VARCHAR", True), ("n", "INT", False)]
    # A table of keys alone stays one where nothing is registered.
    made = columns(session, "CREATE TABLE seen (id BIGINT PRIMARY KEY) WITH (VALUE_FORMAT = 'AVRO')", "seen")
    assert made == [("id", "BIGINT", True)]


def test_a_change_stream_s_columns_are_those_of_the_row(session: Interpreter, registry: LocalRegistry) -> None:
    register(registry, "db.orders-value", *_ENVELOPE)
    register(registry, "db.orders-key", {"name": "id", "type": "int"})
    made = columns(session, "CREATE TABLE orders WITH (KAFKA_TOPIC = 'db.orders', VALUE_FORMAT = 'DEBEZIUM_AVRO')")
    assert made == [("id", "INT", True), ("shop", "VARCHAR", False), ("at", "TIMESTAMP", False)]


def test_a_bare_value_is_a_column_of_its_own(session: Interpreter, registry: LocalRegistry) -> None:
    registry.register_schema("orders-value", Schema('"int"', "AVRO"))
    said = "CREATE STREAM orders WITH (VALUE_FORMAT = 'AVRO', WRAP_SINGLE_VALUE = 'false')"
    assert columns(session, said) == [("rowval", "INT", False)]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "CREATE STREAM s WITH (KAFKA_TOPIC = 'one', VALUE_FORMAT = 'AVRO', WRAP_SINGLE_VALUE = 'false')",
            OptionRefused,
            "the schema of the values is a record",
        ),
        (
            "CREATE STREAM s WITH (KAFKA_TOPIC = 't')",
            InvalidQuery,
            "'s' has no columns, and the format JSON has no sch",
        ),
        ("CREATE STREAM s", InvalidQuery, "'s' has no columns"),
        ("CREATE STREAM s WITH (VALUE_FORMAT = 'AVRO')", InvalidQuery, "the registry has no schema 's-value'"),
        ("CREATE STREAM s WITH (VALUE_FORMAT = 'AVRO', VALUE_SCHEMA_ID = 9)", OptionRefused, "no schema with id 9"),
        (
            "CREATE STREAM s WITH (VALUE_FORMAT = 'AVRO', VALUE_SCHEMA_ID = 'x')",
            OptionRefused,
            "the number of a schema",
        ),
        ("CREATE STREAM s (a INT) WITH (VALUE_FORMAT = 'AVRO', VALUE_SCHEMA_ID = 1)", OptionRefused, "says it too"),
        ("CREATE STREAM s (a INT) WITH (VALUE_SCHEMA_ID = 1)", OptionRefused, "VALUE_SCHEMA_ID is for AVRO"),
        ("CREATE TABLE t WITH (KAFKA_TOPIC = 'one', VALUE_FORMAT = 'AVRO')", InvalidQuery, "the table 't' has no key"),
        ("CREATE TABLE t WITH (KAFKA_TOPIC = 'one', FORMAT = 'AVRO')", NotSupported, "a record of one field, 'id'"),
        ("CREATE STREAM s WITH (KAFKA_TOPIC = 'bare', VALUE_FORMAT = 'AVRO')", NotSupported, "not a record of columns"),
        ("CREATE STREAM s WITH (KAFKA_TOPIC = 'twice', VALUE_FORMAT = 'AVRO')", NotSupported, "'a' is there twice"),
        ("CREATE STREAM s WITH (KAFKA_TOPIC = 'one', VALUE_FORMAT = 'JSON_SR')", NotSupported, "is a AVRO schema"),
    ],
)
def test_what_the_registry_cannot_tell_is_refused(
    session: Interpreter, registry: LocalRegistry, text: str, error: type[SqlError], message: str
) -> None:
    register(registry, "one-value", {"name": "id", "type": "long"})
    register(registry, "one-key", {"name": "id", "type": "long"})
    register(registry, "twice-value", {"name": "a", "type": "int"}, {"name": "A", "type": "int"})
    registry.register_schema("bare-value", Schema('"int"', "AVRO"))
    with pytest.raises(error, match=message):
        columns(session, text)
