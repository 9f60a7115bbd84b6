"""The schemas that INSERT registers for the records it writes: Avro and JSON Schema from a source's columns."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.definitions import Column

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_AVRO: dict[BaseType, Any] = {
    BaseType.BOOLEAN: "boolean",
    BaseType.INT: "int",
    BaseType.BIGINT: "long",
    BaseType.DOUBLE: "double",
    BaseType.VARCHAR: "string",
    BaseType.BYTES: "bytes",
    BaseType.DATE: {"type": "int", "logicalType": "date"},
    BaseType.TIME: {"type": "int", "logicalType": "time-millis"},
    BaseType.TIMESTAMP: {"type": "long", "logicalType": "timestamp-millis"},
}
_JSON: dict[BaseType, dict[str, Any]] = {
    BaseType.BOOLEAN: {"type": "boolean"},
    BaseType.INT: {"type": "integer", "connect.type": "int32"},
    BaseType.BIGINT: {"type": "integer", "connect.type": "int64"},
    BaseType.DOUBLE: {"type": "number", "connect.type": "float64"},
    BaseType.DECIMAL: {"type": "number", "title": "org.apache.kafka.connect.data.Decimal"},
    BaseType.VARCHAR: {"type": "string"},
    BaseType.BYTES: {"type": "string", "connect.type": "bytes"},
    BaseType.DATE: {"type": "integer", "title": "org.apache.kafka.connect.data.Date"},
    BaseType.TIME: {"type": "integer", "title": "org.apache.kafka.connect.data.Time"},
    BaseType.TIMESTAMP: {"type": "integer", "title": "org.apache.kafka.connect.data.Timestamp"},
}


def avro_schema(columns: Sequence[Column], *, bare: bool) -> str:
    """The Avro schema: a record of nullable fields; with `bare`, the type of the one column.

    Raises:
        EncodeFailed: a column cannot be written in Avro.
    """
    if bare:
        return json.dumps(_avro(columns[0].type, columns[0].name))
    return json.dumps(_record("KsqlDataSourceSchema", [(column.name, column.type) for column in columns]))


def json_schema(columns: Sequence[Column], *, bare: bool) -> str:
    """The JSON Schema: an object of nullable members; with `bare`, the type of the one column."""
    if bare:
        return json.dumps(_json(columns[0].type))
    return json.dumps(_object([(column.name, column.type) for column in columns]))


def _avro(sql_type: SqlType, path: str) -> Any:
    match sql_type.base:
        case BaseType.DECIMAL:
            return {"type": "bytes", "logicalType": "decimal", "precision": sql_type.precision, "scale": sql_type.scale}
        case BaseType.ARRAY:
            return {"type": "array", "items": _optional(_avro(sql_type.args[0], path))}
        case BaseType.MAP:
            if sql_type.args[0].base is not BaseType.VARCHAR:
                raise EncodeFailed(f"column '{path}': AVRO maps have VARCHAR keys", hint="use JSON")
            return {"type": "map", "values": _optional(_avro(sql_type.args[1], path))}
        case BaseType.STRUCT:
            # A record's name must be unique within the schema.
            return _record(f"KsqlDataSourceSchema_{path}", list(sql_type.fields))
        case _:
            return _AVRO[sql_type.base]


def _record(name: str, fields: Sequence[tuple[str, SqlType]]) -> dict[str, Any]:
    prefix = name.removeprefix("KsqlDataSourceSchema").lstrip("_")
    members = []
    for field, sql_type in fields:
        if not _AVRO_NAME.fullmatch(field):
            raise EncodeFailed(f"AVRO has no field named '{field}'", hint="letters, digits and _ only, or use JSON")
        path = f"{prefix}_{field}" if prefix else field
        members.append({"name": field, "type": _optional(_avro(sql_type, path)), "default": None})
    return {"type": "record", "name": name, "namespace": "io.confluent.ksql.avro_schemas", "fields": members}


def _optional(schema: Any) -> list[Any]:
    return ["null", schema]


def _json(sql_type: SqlType) -> dict[str, Any]:
    match sql_type.base:
        case BaseType.ARRAY:
            return {"type": "array", "items": _nullable(_json(sql_type.args[0]))}
        case BaseType.MAP:
            return {"type": "object", "additionalProperties": _nullable(_json(sql_type.args[1]))}
        case BaseType.STRUCT:
            return _object(sql_type.fields)
        case _:
            return _JSON[sql_type.base]


def _object(fields: Sequence[tuple[str, SqlType]]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: _nullable(_json(sql_type)) for name, sql_type in fields}}


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]}
