"""Columns by the schemas of a registry: an Avro record or a JSON Schema of an object becomes names and types.

    record orders {id: long, tags: [null, array<string>], price: bytes decimal(10, 2)}
    -> id BIGINT, tags ARRAY<VARCHAR>, price DECIMAL(10, 2)

A type that the language does not have is refused with its column; nothing is left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from strandline.jobs.ingest.formats.connect_values import (
    DATES,
    DECIMAL,
    TIMES,
    TIMESTAMPS,
    VARIABLE_DECIMAL,
    Schema,
    schema_of_avro,
)
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.types import MAX_PRECISION, SqlType

_PLAIN: Final[Mapping[str, SqlType]] = {
    "boolean": t.BOOLEAN,
    "int": t.INT,
    "long": t.BIGINT,
    "float": t.DOUBLE,
    "double": t.DOUBLE,
    "string": t.VARCHAR,
    "enum": t.VARCHAR,
    "bytes": t.BYTES,
    "fixed": t.BYTES,
}
_LOGICAL: Final[Mapping[str, SqlType]] = {
    "date": t.DATE,
    "time-millis": t.TIME,
    "time-micros": t.TIME,
    "timestamp-millis": t.TIMESTAMP,
    "timestamp-micros": t.TIMESTAMP,
    "local-timestamp-millis": t.TIMESTAMP,
    "local-timestamp-micros": t.TIMESTAMP,
    "uuid": t.VARCHAR,
}
_JSON: Final[Mapping[str, SqlType]] = {
    "boolean": t.BOOLEAN,
    "integer": t.BIGINT,
    "number": t.DOUBLE,
    "string": t.VARCHAR,
}
_JSON_CONNECT: Final[Mapping[str, SqlType]] = {
    "org.apache.kafka.connect.data.Date": t.DATE,
    "org.apache.kafka.connect.data.Time": t.TIME,
    "org.apache.kafka.connect.data.Timestamp": t.TIMESTAMP,
    "int8": t.INT,
    "int16": t.INT,
    "int32": t.INT,
    "bytes": t.BYTES,
}

Found = dict[str, SqlType]
"""{field as the schema names it: its type}"""


class NoColumn(Exception):
    """A part of a schema has no type of ours; the text says what it is."""


def columns_of_avro(text: str, *, changes: bool) -> Found | SqlType:
    """The fields of an Avro record, or the type of a schema that is no record.

    Args:
        changes: numbers whose Connect name says what they count are read by it, as those of change streams are.

    Raises:
        NotSupported: a field has a type that the language does not have.
    """
    schema = schema_of_avro(json.loads(text), {})
    if schema["type"] == "struct":
        return _fields(schema, changes)
    try:
        return _avro_type(schema, changes)
    except NoColumn as error:
        raise _refused(error) from None


def columns_of_envelope(text: str) -> Found:
    """The fields of a row, by the Avro schema of a change stream's values.

    Raises:
        NotSupported: it is no such schema, or a field has a type that the language does not have.
    """
    schema = schema_of_avro(json.loads(text), {})
    row = next((each for each in schema.get("fields") or () if each["field"] == "after"), None)
    if row is None or row["type"] != "struct":
        raise NotSupported("the schema of the values is no Debezium envelope: it has no record 'after'")
    return _fields(row, True)


def columns_of_json(text: str) -> Found | SqlType:
    """The members of a JSON Schema of an object, or the type of one of a bare value.

    Raises:
        NotSupported: a member has a type that the language does not have.
    """
    schema = json.loads(text)
    members = schema.get("properties")
    try:
        if not isinstance(members, Mapping):
            return _json_type(schema)
        found: Found = {}
        # Connect notes the places of members, whose order JSON does not keep.
        for name in sorted(members, key=lambda each: members[each].get("connect.index", 0)):
            found[name] = _in(name, _json_type, members[name])
    except NoColumn as error:
        raise _refused(error) from None
    return found


def _fields(schema: Schema, changes: bool) -> Found:
    try:
        return {each["field"]: _in(each["field"], _avro_type, each, changes) for each in schema["fields"]}
    except NoColumn as error:
        raise _refused(error) from None
    except RecursionError:
        raise NotSupported("the registered schema has a record within itself: declare the columns") from None


def _refused(error: NoColumn) -> NotSupported:
    return NotSupported(
        f"the registered schema: {error}, which the language does not have", hint="declare the columns that you need"
    )


def _in(name: str, read: Callable[..., SqlType], *arguments: object) -> SqlType:
    """The type of a field; what has none is named with it."""
    try:
        return read(*arguments)
    except NoColumn as error:
        raise NoColumn(f"{name}: {error}" if str(error).startswith("it is") else f"{name}.{error}") from None


def _avro_type(schema: Schema, changes: bool) -> SqlType:
    name, kind = schema.get("name"), schema["type"]
    if name == DECIMAL or schema.get("logicalType") == "decimal":
        parameters = schema.get("parameters") or {}
        precision = parameters.get("connect.decimal.precision", schema.get("precision"))
        return _decimal(precision, schema.get("scale", parameters.get("scale", 0)))
    if schema.get("logicalType") in _LOGICAL:
        return _LOGICAL[schema["logicalType"]]
    if changes and (name in DATES or name in TIMES or name in TIMESTAMPS):
        return t.DATE if name in DATES else t.TIME if name in TIMES else t.TIMESTAMP
    if changes and name == VARIABLE_DECIMAL:
        return t.VARCHAR  # every digit, whatever the scale
    match kind:
        case "array":
            return t.array(_avro_type(schema["items"], changes))
        case "map":
            return t.map_of(t.VARCHAR, _avro_type(schema["values"], changes))
        case "struct" if schema.get("fields"):
            fields = ((each["field"], _in(each["field"], _avro_type, each, changes)) for each in schema["fields"])
            return t.struct(*((field.lower(), sql_type) for field, sql_type in fields))
    if kind not in _PLAIN:
        raise NoColumn(f"it is {'a union' if kind == 'union' else kind}")
    return _PLAIN[kind]


def _decimal(precision: object, scale: object) -> SqlType:
    """Connect's default precision, 64, stands for one that is not known."""
    digits = int(str(precision)) if precision is not None else MAX_PRECISION
    return t.decimal(min(digits, MAX_PRECISION), int(str(scale)))


def _json_type(schema: Any) -> SqlType:
    """The type of a member that may be null."""
    branches = [each for each in schema.get("oneOf", schema.get("anyOf", ())) if each.get("type") != "null"]
    if len(branches) > 1:
        raise NoColumn("it is one of several types")
    if branches:
        return _json_type(branches[0])
    title = schema.get("title")
    if title == DECIMAL:
        parameters = schema.get("connect.parameters") or {}
        return _decimal(parameters.get("connect.decimal.precision"), parameters.get("scale", 0))
    for said in (title, schema.get("connect.type")):
        if said in _JSON_CONNECT:
            return _JSON_CONNECT[said]
    return _plain_json_type(schema)


def _plain_json_type(schema: Any) -> SqlType:
    kind = schema.get("type")
    if isinstance(kind, list):
        kinds = [each for each in kind if each != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    match kind:
        case "array" if isinstance(schema.get("items"), Mapping):
            return t.array(_json_type(schema["items"]))
        case "object" if schema.get("properties"):
            members = schema["properties"]
            return t.struct(*((name.lower(), _in(name, _json_type, members[name])) for name in members))
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return t.map_of(t.VARCHAR, _json_type(schema["additionalProperties"]))
        case str() if kind in _JSON:
            return _JSON[kind]
    raise NoColumn(f"it is {kind or 'of several types'}")
