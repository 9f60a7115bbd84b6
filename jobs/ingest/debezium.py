"""Change streams: Debezium's records of a database table, as the rows that come and go.

    record (key, value)                                     becomes
    {"id": 1}  {op: c|r, after: {id: 1, n: 5}}              the row id 1, n 5
    {"id": 1}  {op: u, before: …, after: {id: 1, n: 6}}     the row id 1, n 6
    {"id": 1}  {op: d, before: {id: 1, …}}                  id 1 goes
    {"id": 1}  NULL                                         id 1 goes (again)
    NULL       {op: t}                                      a stop (`source.truncated`)
    …          {op: m}                                      nothing: a message that somebody logged

With Connect's JSON schemas, {"schema": …, "payload": {op, …}}, or without. A row is known by the key columns that the
source declares, so a record that is sent again leaves the table as it is. What cannot be read is a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import orjson

from strandline.jobs.ingest.formats.coerce import Misfit, find, json_text, loads_exact
from strandline.jobs.ingest.formats.connect_values import Reading, Schema, connect_schema, schema_of_avro
from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.ingest.formats.json_format import from_objects
from strandline.jobs.ingest.logs.log import Records
from strandline.jobs.model.errors import EncodeFailed, SourceTruncated
from strandline.jobs.model.types import BaseType
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.confluent import AvroFormat
    from strandline.jobs.ingest.formats.format import Format, Role, Writer
    from strandline.jobs.model.definitions import Column, Source

_UNSENT: Final = "__debezium_unavailable_value"
_UNSENT_FORMS: Final = (_UNSENT, _UNSENT.encode(), [_UNSENT], "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""What stands for a value of PostgreSQL that is stored apart and was not changed: as text, bytes, array and base64."""
_INEXACT: Final = (float, dict, list)
_NOTHING: Final = frozenset({type(None)})
_PASSING: Final = {
    BaseType.BOOLEAN: frozenset({bool, type(None)}),
    BaseType.INT: frozenset({int, type(None)}),
    BaseType.BIGINT: frozenset({int, type(None)}),
    BaseType.DOUBLE: frozenset({int, float, type(None)}),
}
"""Types of values that are what they are, whatever a schema says."""
_FLAT: Final = "no Debezium envelope with op, before and after: of rows that are unwrapped VALUE_FORMAT is 'JSON'"


class Unreadable(ValueError):
    """A record is no change of a row; the text says why."""


class Document(NamedTuple):
    """A key or a value as it was read.

    Attributes:
        schema: of the value; None where the message has none.
        exact: reads it again, with numbers as they were written.
    """

    value: Any
    schema: Schema | None
    exact: Callable[[], Any]


class Documents(Protocol):
    """What reads the keys or the values of a topic."""

    def read(self, payload: bytes) -> Document:
        """Raises Unreadable."""
        ...


@dataclass
class ChangeRecords(Records):
    """The rows that come and go with a run of records, at most one with each.

    `values` are None where a row goes, as in any table's topic.

    Attributes:
        images: {column: value} of each row; of one that goes, its key.
        payloads: the values as they were sent.
    """

    images: list[dict[str, Any]] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)

    def add(self, records: Records, row: int, image: dict[str, Any], *, gone: bool = False) -> None:
        """Add the row that the record at a place of `records` brings or takes away."""
        self.offsets.append(records.offsets[row])
        self.timestamps.append(records.timestamps[row])
        self.keys.append(records.keys[row])
        self.values.append(None if gone else records.values[row])
        self.headers.append(records.headers[row])
        self.images.append(image)
        self.payloads.append(records.values[row])


def open_changes(source: Source, registry: Callable[[], SchemaRegistryClient]) -> ChangeStream | None:
    """What reads the records of a change stream; None for a source of any other format.

    Args:
        registry: called when a format needs one, not otherwise.
    """
    if not source.change_stream:
        return None
    values = JsonDocuments() if source.value_format == "DEBEZIUM_JSON" else _avro(source, "value", registry)
    match source.key_format.upper():
        case "NONE":
            return ChangeStream(source, values, None)
        case "JSON":
            return ChangeStream(source, values, JsonDocuments())
        case "AVRO":
            return ChangeStream(source, values, _avro(source, "key", registry))
        case _:
            return ChangeStream(source, values, _KeysOfFormat(source, open_format(source, "key", registry)))


class ChangeStream:
    """The change stream of one source: its records become rows.

    Args:
        keys: reads the records' keys; None when they are not read.
    """

    def __init__(self, source: Source, values: Documents, keys: Documents | None) -> None:
        self._source = source
        self._values = values
        self._key_documents = keys
        self._columns = tuple(column for column in source.columns if column.header is None)
        self._passing = [(column, _PASSING.get(column.type.base, _NOTHING)) for column in self._columns]
        self._keys = tuple(column for column in source.columns if column.key)
        self._reading = Reading.of(source.options)

    def open(self, records: Records, errors: Errors) -> ChangeRecords:
        """The rows that come and go. A record that cannot be read is noted in `errors`, by its place in the result.

        Raises:
            SourceTruncated: the table was emptied.
        """
        opened = ChangeRecords(records.partition, leader_epoch=records.leader_epoch)
        for row in range(len(records)):
            try:
                self._change(records, row, opened)
            except Unreadable as error:
                errors[len(opened)] = str(error)
                opened.add(records, row, {})
        return opened

    def arrays(self, records: ChangeRecords, errors: Errors) -> dict[str, pa.Array]:
        """{column: its values}, of those that are not headers."""
        found = from_objects(self._columns, records.images, errors)
        return {column.name: array for column, array in zip(self._columns, found, strict=True)}

    def _change(self, records: Records, row: int, opened: ChangeRecords) -> None:
        """Add the rows that come and go with one record."""
        key, payload = records.keys[row], records.values[row]
        value = self._values.read(payload) if payload is not None else None
        if value is None or value.value is None:
            if key is not None and self._key_documents is not None:
                opened.add(records, row, self._key_image(key), gone=True)
            return
        if not isinstance(value.value, dict):
            raise Unreadable(_FLAT)
        operation = value.value.get("op")
        match operation:
            case "c" | "r" | "u":
                opened.add(records, row, self._image(value, key))
            case "d":
                opened.add(records, row, self._key_before(value, key), gone=True)
            case "m":
                pass
            case "t":
                raise self._truncated(records, row)
            case None:
                raise Unreadable(_FLAT)
            case _:
                raise Unreadable(f"op is {json_text(operation)[:40]}, which is none of c, r, u, d, t and m")

    def _image(self, value: Document, key: bytes | None) -> dict[str, Any]:
        """{column: value} of the row that is there after a change."""
        before, after = value.value.get("before"), value.value.get("after")
        if not isinstance(after, dict):
            raise Unreadable("there is no row in 'after'")
        if isinstance(before, dict):
            self._check_same_key(before, after)
        schemas = _fields(_fields(value.schema).get("after"))
        written: Mapping[str, Any] | None = None
        image: dict[str, Any] = {}
        for column, passing in self._passing:
            name = column.name if column.name in after else find(column.name, after)
            if name is None:
                continue
            found = after[name]
            if type(found) in passing:
                image[column.name] = found
                continue
            if isinstance(found, str | bytes | list) and found in _UNSENT_FORMS:
                found = _sent_before(column, name, before)
            elif isinstance(found, _INEXACT) and column.type.base is not BaseType.DOUBLE:
                written = value.exact()["after"] if written is None else written
                found = written[name]
            image[column.name] = self._read(column, found, schemas.get(name))
        return self._with_key(image, key)

    def _key_before(self, value: Document, key: bytes | None) -> dict[str, Any]:
        """The key of a row that goes: what the database says of the row before, else the record's key."""
        before, image = value.value.get("before"), {}
        if isinstance(before, Mapping):
            schemas = _fields(_fields(value.schema).get("before"))
            for column in self._keys:
                name = find(column.name, before)
                if name is not None and before[name] is not None:
                    image[column.name] = self._read(column, before[name], schemas.get(name))
        image = self._with_key(image, key)
        missing = next((column.name for column in self._keys if image.get(column.name) is None), None)
        if missing is not None:
            raise Unreadable(f"a row goes, and neither 'before' nor the record's key has its key column '{missing}'")
        return image

    def _with_key(self, image: dict[str, Any], key: bytes | None) -> dict[str, Any]:
        """The image, with the key columns that it lacks from the record's key."""
        if key is None or self._key_documents is None or all(column.name in image for column in self._keys):
            return image
        return {**self._key_image(key), **image}

    def _key_image(self, key: bytes) -> dict[str, Any]:
        """The key columns by the record's key: the members of an object, or the one value that it is."""
        assert self._key_documents is not None, "asked for where keys are read"
        document = self._key_documents.read(key)
        if not isinstance(document.value, Mapping):
            if len(self._keys) != 1:
                raise Unreadable("the record's key is one value, and there are several key columns")
            (only,) = self._keys
            return {only.name: self._read(only, document.value, document.schema)}
        schemas, image = _fields(document.schema), {}
        for column in self._keys:
            name = find(column.name, document.value)
            if name is None:
                raise Unreadable(f"the record's key has no '{column.name}'")
            image[column.name] = self._read(column, document.value[name], schemas.get(name))
        return image

    def _read(self, column: Column, value: Any, schema: Schema | None) -> Any:
        try:
            return self._reading.value(value, column.type, schema)
        except Misfit as error:
            raise Unreadable(f"column '{column.name}': {error}") from None
        except (TypeError, AttributeError, KeyError, RecursionError):  # a schema may hold anything
            raise Unreadable(f"column '{column.name}': its schema is not one of Kafka Connect") from None

    def _check_same_key(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Check that an update leaves its row its key: of others Debezium makes a delete and a create.

        Raises:
            Unreadable: it has another, so the declared key is not the one by which records are written.
        """
        for column in self._keys:
            old, new = find(column.name, before), find(column.name, after)
            if old is not None and new is not None and before[old] is not None and before[old] != after[new]:
                raise Unreadable(
                    f"an update changes the key column '{column.name}': declare the key that the connector writes, "
                    "or have it write this one (message.key.columns)"
                )

    def _truncated(self, records: Records, row: int) -> SourceTruncated:
        where = f"partition {records.partition}, offset {records.offsets[row]}"
        return SourceTruncated(
            sentence(
                "the table behind '{}' was emptied by TRUNCATE: topic '{}', {}",
                Name(self._source.name),
                self._source.topic,
                where,
            ),
            hint="DROP it with its views, and CREATE it again over a topic that begins with a new snapshot; "
            "skipped.operations=t in the connector keeps such records out of the topic",
        )


class JsonDocuments:
    """JSON, with Connect's schema around it or without."""

    def read(self, payload: bytes) -> Document:
        """Raises Unreadable: it is not JSON."""
        try:
            parsed = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            raise Unreadable(f"not JSON: {error.msg}") from None
        if not isinstance(parsed, dict) or parsed.keys() != {"schema", "payload"}:
            return Document(parsed, None, lambda: _exactly(payload))
        return Document(parsed["payload"], parsed["schema"], lambda: _exactly(payload)["payload"])


class AvroDocuments:
    """Avro after the frame of a schema registry, as Connect's converter writes it."""

    def __init__(self, form: AvroFormat) -> None:
        self._form = form
        # By identity, as the format keeps its readers.
        self._schemas: dict[int, Schema] = {}

    def read(self, payload: bytes) -> Document:
        """Raises Unreadable: it is not Avro of a registered schema."""
        errors: Errors = {}
        value = self._form.decode_one(payload, 0, errors)
        schema = self._form.framed(payload, 0, errors)
        if schema is None or errors:
            raise Unreadable(errors[0])
        known = self._schemas.get(id(schema))
        if known is None:
            known = self._schemas[id(schema)] = schema_of_avro(json.loads(schema.schema_str or "null"), {})
        return Document(value, known, lambda: value)


class _KeysOfFormat:
    """Keys in a format that has no object of its own: KAFKA, DELIMITED, PROTOBUF."""

    def __init__(self, source: Source, form: Format | None) -> None:
        keys = [column for column in source.columns if column.key]
        self._names = [column.name for column in keys]
        self._schema = {"fields": [{**connect_schema(column.type), "field": column.name} for column in keys]}
        self._form = form

    def read(self, payload: bytes) -> Document:
        """Raises Unreadable: it is not of the format."""
        errors: Errors = {}
        arrays = self._form.decode([payload], errors) if self._form is not None else []
        if errors:
            raise Unreadable(f"the record's key: {errors[0]}")
        value = {name: array[0].as_py() for name, array in zip(self._names, arrays, strict=True)}
        return Document(value, self._schema, lambda: value)


class EnvelopeWriter:
    """Rows as records of a change stream, each created: for tests, which give a source its rows.

    Args:
        columns: of the value.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        row = {"type": "struct", "fields": [{**connect_schema(c.type), "field": c.name} for c in columns]}
        members = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
        self._schema = {"type": "struct", "fields": members}

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values (see `coerce.wire_value`)."""
        payload = {"before": None, "after": dict(row), "op": "c"}
        return json_text({"schema": self._schema, "payload": payload}).encode()


def open_writer(source: Source, role: Role, registry: Callable[[], SchemaRegistryClient]) -> Writer | None:
    """What writes a source's key or value; None when it holds no column.

    Raises:
        EncodeFailed: nothing is written in the format.
        OptionRefused, NotSupported: as of `open_format`.
    """
    if role == "key" or not source.change_stream:
        return open_format(source, role, registry)
    if source.value_format != "DEBEZIUM_JSON":
        raise EncodeFailed(
            f"nothing is written in {source.value_format}", hint="test the views with VALUE_FORMAT = 'DEBEZIUM_JSON'"
        )
    return EnvelopeWriter([column for column in source.columns if column.part == "value"])


def _avro(source: Source, role: Role, registry: Callable[[], SchemaRegistryClient]) -> AvroDocuments:
    from strandline.jobs.ingest.formats.confluent import AvroFormat

    columns = tuple(column for column in source.columns if column.part == role)
    return AvroDocuments(AvroFormat(columns, registry(), source.topic, key=role == "key", bare=False))


def _fields(schema: Any) -> dict[str, Schema]:
    """{field: its schema} of a struct; none of what is no struct."""
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list):
        return {}
    return {name: each for each in fields if isinstance(each, dict) and isinstance(name := each.get("field"), str)}


def _sent_before(column: Column, name: str, before: Any) -> Any:
    """The value of a column that was not sent since it had not changed, where the database tells what it was."""
    found = before.get(name) if isinstance(before, Mapping) else None
    if found is None or (isinstance(found, str | bytes | list) and found in _UNSENT_FORMS):
        raise Unreadable(
            f"column '{column.name}' was not sent, since a long value had not changed: "
            "ALTER TABLE … REPLICA IDENTITY FULL in PostgreSQL"
        )
    return found


def _exactly(payload: bytes) -> Any:
    try:
        return loads_exact(payload)
    except ValueError as error:
        raise Unreadable(f"not JSON: {error}") from None
