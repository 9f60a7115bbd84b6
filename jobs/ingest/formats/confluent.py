"""AVRO and JSON_SR: payloads after a frame (a zero byte, four bytes of schema id), the schema in a registry.

A record whose id the registry does not know is broken. A registry that does not answer is not the record's fault: it
stops the micro-batch, which is tried again.
"""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from confluent_kafka.schema_registry import SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_reader
from httpx2 import HTTPError

from strandline.jobs.ingest.formats import columns
from strandline.jobs.ingest.formats.binary_columns import MANY, AvroRecords, Run, Unreadable
from strandline.jobs.ingest.formats.coerce import json_text
from strandline.jobs.ingest.formats.json_format import JsonFormat, from_objects
from strandline.jobs.ingest.formats.registry import NOT_FOUND
from strandline.jobs.model.errors import EncodeFailed, SourceUnavailable
from strandline.jobs.model.types import BaseType, SqlType
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from numpy.typing import NDArray

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.model.definitions import Column


FRAME = 5
_SCHEMAS = 8
"""Schemas of a run whose records are read by columns: each takes a look at all of them."""
# Subjects are `<topic>-key` and `<topic>-value`, as ksqlDB names them. The library's newer default asks the registry
# for associations first, which older registries do not have.
STRATEGY = {"subject.name.strategy.type": "TOPIC"}


class Framed:
    """The base of the formats with a registry: the frame, and what is the record's fault and what the registry's."""

    def __init__(
        self, wanted: tuple[Column, ...], registry: SchemaRegistryClient, topic: str, *, key: bool, bare: bool
    ) -> None:
        self._columns = wanted
        self._registry = registry
        self._bare = bare
        self._context = SerializationContext(topic, MessageField.KEY if key else MessageField.VALUE)
        self._schemas: dict[int, Schema | None] = {}

    def framed(self, payload: bytes | None, row: int, errors: Errors) -> Schema | None:
        """The schema that a payload names; None without a payload, or (with an error) without frame or schema."""
        if payload is None:
            return None
        if len(payload) <= FRAME or payload[0] != 0:
            errors.setdefault(row, "no schema id before the payload")
            return None
        identity = int.from_bytes(payload[1:FRAME], "big")
        if identity not in self._schemas:
            self._schemas[identity] = self._ask(identity)
        if self._schemas[identity] is None:
            errors.setdefault(row, f"the registry has no schema with id {identity}")
        return self._schemas[identity]

    def by_schema(self, payloads: Sequence[bytes | None]) -> tuple[Run, list[tuple[Schema, NDArray[np.intp]]]]:
        """A run of records behind their frames, and by schema the rows of those that have one; of many schemas some."""
        run = Run(payloads)
        has_frame = np.flatnonzero((run.ends - run.at > FRAME) & (run.bytes_at(0) == 0))
        identities = run.bytes_at(1).astype(np.int64)
        for place in range(2, FRAME):
            identities = identities << 8 | run.bytes_at(place)
        found = []
        for identity in np.unique(identities[has_frame])[:_SCHEMAS].tolist():
            rows = has_frame[identities[has_frame] == identity]
            schema = self.framed(payloads[rows[0]], 0, {})
            if schema is not None:
                found.append((schema, rows))
        run.at[has_frame] += FRAME
        return run, found

    def get_schema(self, identity: int) -> Schema:
        """The schema of that id."""
        return self._registry.get_schema(identity)

    def _ask(self, identity: int) -> Schema | None:
        try:
            with answering():
                return self.get_schema(identity)
        except SchemaRegistryError:
            return None


class AvroFormat(Framed):
    """Avro, read with the schema it was written in; fields match columns by name, without regard to case."""

    def __init__(
        self, wanted: tuple[Column, ...], registry: SchemaRegistryClient, topic: str, *, key: bool, bare: bool
    ) -> None:
        super().__init__(wanted, registry, topic, key=key, bare=bare)
        self._deserialize = AvroDeserializer(registry, conf=STRATEGY)
        # By identity: `_schemas` keeps the schemas alive as long as this object, and hashing their text costs more.
        self._readers: dict[int, Callable[[bytes], object]] = {}
        self._records: dict[int, AvroRecords | None] = {}

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`."""
        if self._bare or len(payloads) < MANY:
            return self.decode_each(payloads, errors)
        return columns.joined(self._by_columns(payloads), payloads, self.decode_each, errors)

    def _by_columns(self, payloads: Sequence[bytes | None]) -> list[columns.Part]:
        run, found = self.by_schema(payloads)
        read = ((self._records_of(schema), rows) for schema, rows in found)
        return [records.read(run, rows) for records, rows in read if records is not None]

    def _records_of(self, schema: Schema) -> AvroRecords | None:
        """The reader by columns of a schema; None where its records are read one by one."""
        if id(schema) not in self._records:
            plain = not (schema.references or schema.rule_set)
            try:
                made = AvroRecords(json.loads(schema.schema_str or ""), self._columns) if plain else None
            except (Unreadable, ValueError, KeyError):
                made = None
            self._records[id(schema)] = made
        return self._records[id(schema)]

    def decode_each(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """As `decode`, with each payload read by itself."""
        values = [self.decode_one(payload, row, errors) for row, payload in enumerate(payloads)]
        if self._bare:
            return [columns.build(self._columns[0], values, errors)]
        documents: list[dict[str, Any]] = []
        for row, value in enumerate(values):
            if value is not None and not isinstance(value, dict):
                errors.setdefault(row, "not an Avro record")
            documents.append(value if isinstance(value, dict) else {})
        return from_objects(self._columns, documents, errors)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values; registers the schema when it is new."""
        value = row[self._columns[0].name] if self._bare else dict(row)
        if value is None:
            return None
        schema = avro_schema(self._columns, bare=self._bare)
        with answering():
            serialize = AvroSerializer(self._registry, schema, conf=STRATEGY)
            payload: bytes | None = serialize(value, self._context)
        return payload

    def decode_one(self, payload: bytes | None, row: int, errors: Errors) -> object:
        """The value of a payload, as its schema has it; None without one, or with an entry in `errors`."""
        schema = self.framed(payload, row, errors)
        if schema is None or payload is None:
            return None
        try:
            return self._reader(schema)(payload)
        except StrandlineError:
            raise
        # The parser may raise anything when the bytes do not match the schema.
        except Exception as error:
            errors.setdefault(row, f"not readable with its Avro schema: {type(error).__name__}")
            return None

    def _reader(self, schema: Schema) -> Callable[[bytes], object]:
        """The reader of a schema's payloads: fastavro alone, unless the schema needs the registry's client."""
        found = self._readers.get(id(schema))
        if found is None:
            plain = not (schema.references or schema.rule_set)
            parsed = parse_schema(json.loads(schema.schema_str or "")) if plain else None
            # Confluent writes a bare BYTES without Avro's length before it.
            record = isinstance(parsed, dict) and parsed.get("type") == "record"
            found = partial(_read_plain, parsed) if record else self._read_by_client
            self._readers[id(schema)] = found
        return found

    def _read_by_client(self, payload: bytes) -> object:
        with answering():
            return self._deserialize(payload, self._context)


def _read_plain(schema: Any, payload: bytes) -> object:
    """The value of a payload, in a quarter of the time of the client's deserializer, which looks for rules."""
    stream = BytesIO(payload)
    stream.seek(FRAME)
    return schemaless_reader(stream, schema, None)


class JsonSchemaFormat(Framed):
    """JSON after a frame. The columns' types decide what fits; the registered schema is not checked."""

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`."""
        texts = [
            payload[FRAME:] if payload is not None and self.framed(payload, row, errors) is not None else None
            for row, payload in enumerate(payloads)
        ]
        return JsonFormat(self._columns, bare=self._bare).decode(texts, errors)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values; registers the schema when it is new."""
        value = row[self._columns[0].name] if self._bare else dict(row)
        if value is None:
            return None
        conf = {**STRATEGY, "validate": False}
        schema = json_schema(self._columns, bare=self._bare)
        with answering():
            serialize = JSONSerializer(schema, self._registry, conf=conf, json_encode=json_text)
            payload: bytes | None = serialize(value, self._context)
        return payload


@contextmanager
def answering() -> Iterator[None]:
    """Turn a registry that cannot be reached into SourceUnavailable; 'not found' passes through."""
    try:
        yield
    except (HTTPError, OSError) as error:
        raise SourceUnavailable(f"the schema registry does not answer: {error}", hint="see registry.url") from error
    except SchemaRegistryError as error:
        if error.http_status_code == NOT_FOUND:
            raise
        raise SourceUnavailable(
            f"the schema registry answered {error.http_status_code}: {error.error_message}"
        ) from error


# The schemas that INSERT registers for the records it writes: Avro and JSON Schema from a source's columns.

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
