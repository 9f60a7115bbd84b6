"""PROTOBUF and PROTOBUF_NOSR: the columns are the fields of a message, also where there is only one.

    PROTOBUF         0, schema id (4 bytes), place of the message in the schema, message: read by its writer's schema
    PROTOBUF_NOSR    the message alone: read by the schema that the columns make (see `protobuf_schema`)

Registries answer with a serialized descriptor where one is asked for, so no text of .proto files is parsed here.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

# Registers google/protobuf, google/type and confluent/… in the default pool, as the registry's clients know them.
import confluent_kafka.schema_registry.protobuf  # noqa: F401
import numpy as np
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer, decimal_to_protobuf, protobuf_to_decimal
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default, DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from strandline.jobs.ingest.formats.binary_columns import MANY, ProtobufRecords, Run, Unreadable
from strandline.jobs.ingest.formats.columns import Part, joined
from strandline.jobs.ingest.formats.confluent import STRATEGY, Framed, answering
from strandline.jobs.ingest.formats.json_format import from_objects
from strandline.jobs.ingest.formats.protobuf_schema import schema_of
from strandline.jobs.model.errors import EncodeFailed, SourceUnavailable
from strandline.jobs.model.types import BaseType, SqlType
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.serialization import SerializationContext
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.protobuf_schema import Nullable
    from strandline.jobs.model.definitions import Column


# The classes of Protobuf messages, made from file descriptors at run time.
#
# Each schema has a pool of its own: two schemas of a registry may declare different messages under one name. Files
# that every installation has (`google/…`, `confluent/…`) are taken from the libraries that bring them; registries
# keep none of them.


def message_class(files: Sequence[FileDescriptorProto], path: Sequence[int]) -> type[Message]:
    """The class of one message of a file.

    Args:
        files: the file, last, after those that it imports; files that every installation has may be left out.
        path: the place of the message in the file, then of the message in that one, …: what a record says before its
            bytes.

    Raises:
        ValueError: the file has no such message, or imports a file that nobody has.
    """
    pool, file = DescriptorPool(), files[-1]
    for each in files:
        _add_file(pool, each)
    try:
        found = file.message_type[path[0]]
        names = [found.name]
        for place in path[1:]:
            found = found.nested_type[place]
            names.append(found.name)
    except IndexError:
        raise ValueError(f"the schema has no message {'.'.join(map(str, path))}") from None
    full_name = ".".join([*([file.package] if file.package else []), *names])
    made: type[Message] = GetMessageClass(pool.FindMessageTypeByName(full_name))
    return made


def _add_file(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    for name in file.dependency:
        if not _has(pool, name):
            _add_file(pool, _of_installation(name))
    try:
        pool.Add(file)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _has(pool: DescriptorPool, name: str) -> bool:
    try:
        pool.FindFileByName(name)
    except KeyError:
        return False
    return True


def _of_installation(name: str) -> FileDescriptorProto:
    try:
        found = Default().FindFileByName(name)
    except KeyError:
        raise ValueError(f"the schema imports '{name}', which it does not refer to") from None
    return FileDescriptorProto.FromString(found.serialized_pb)


# Protobuf messages as Python values, in both directions.
#
#     field                                              value
#     int32 … double, bool, string, bytes                the value; without a presence of its own, its default
#     `optional` field, member of a oneof, message       None where it is missing
#     enum                                               the name of the number, or a number that has no name
#     google.protobuf.Int64Value, StringValue, …         the wrapped value
#     google.protobuf.Timestamp, google.type.Date        a time to the microsecond (further digits are left out), a date
#     google.type.TimeOfDay, confluent.type.Decimal      a time of day, an exact number
#     repeated, map, any other message                   a list, a dict, a dict of its fields
#
# This is Kafka Connect's mapping, which ksqlDB uses; only a oneof is not a struct of its members there, but its
# members.

Reader = Callable[[Any], object]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_WRAPPED: Final = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")


def _wrapped(message: Any) -> object:
    found: object = message.value
    return found


_SINGLE: Final[dict[str, Reader]] = {
    **{f"google.protobuf.{name}Value": _wrapped for name in _WRAPPED},
    "google.protobuf.Timestamp": lambda m: _EPOCH + timedelta(seconds=m.seconds, microseconds=m.nanos // 1000),
    "google.type.Date": lambda m: date(m.year, m.month, m.day),
    "google.type.TimeOfDay": lambda m: time(m.hours, m.minutes, m.seconds, m.nanos // 1000),
    "confluent.type.Decimal": protobuf_to_decimal,
}
"""The messages that stand for one value, by their full names."""


class MessageReader:
    """Reads the messages of one class into dicts; how each field is read is found once.

    Args:
        wanted: the names of the fields that are read, in lower case; those of messages inside are all read.
    """

    def __init__(self, descriptor: Descriptor, wanted: Iterable[str]) -> None:
        names = frozenset(wanted)
        # By full name: a message may have itself inside.
        self._known: dict[str, list[tuple[str, Reader]]] = {}
        self._own = [(f.name, self._field(f)) for f in descriptor.fields if f.name.lower() in names]

    def __call__(self, message: Message) -> dict[str, object]:
        """The wanted fields. Raises ValueError or OverflowError: a date or time is none."""
        return {name: read(message) for name, read in self._own}

    def _fields(self, message: Message) -> dict[str, object]:
        descriptor = message.DESCRIPTOR
        known = self._known.get(descriptor.full_name)
        if known is None:
            known = [(f.name, self._field(f)) for f in descriptor.fields]
            self._known[descriptor.full_name] = known
        return {name: read(message) for name, read in known}

    def _field(self, field: FieldDescriptor) -> Reader:
        name = field.name
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            item = self._item(field.message_type.fields_by_name["value"])
            # In the order of the keys: a message keeps its map in any.
            return lambda m: {key: item(getattr(m, name)[key]) for key in sorted(getattr(m, name))}
        item = self._item(field)
        if field.is_repeated:
            return lambda m: [item(value) for value in getattr(m, name)]
        if field.has_presence and not field.has_default_value:
            return lambda m: item(getattr(m, name)) if m.HasField(name) else None
        return lambda m: item(getattr(m, name))

    def _item(self, field: FieldDescriptor) -> Reader:
        """The reader of one value of a field."""
        if field.message_type is not None:
            return _SINGLE.get(field.message_type.full_name, self._fields)
        if field.enum_type is not None:
            names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
            return lambda number: names.get(number, number)
        return _same


def _same(value: object) -> object:
    return value


def fill(message: Message, fields: Sequence[tuple[str, SqlType]], row: Mapping[str, Any]) -> None:
    """Set the fields of a message of `protobuf_schema` to wire values (see `encoding`); NULL is left out.

    Raises:
        EncodeFailed: a NULL is an item of an array or a value of a map.
        ValueError, TypeError: a value is not one of its field.
    """
    for name, sql_type in fields:
        value = row[name]
        if value is None:
            continue
        match sql_type.base:
            case BaseType.ARRAY:
                for item in value:
                    _add(getattr(message, name), _given(item, name), sql_type.args[0])
            case BaseType.MAP:
                for key, item in value.items():
                    _put(getattr(message, name), key, _given(item, name), sql_type.args[1])
            case _:
                _set(message, name, value, sql_type)


def _given(item: object, name: str) -> object:
    if item is None:
        raise EncodeFailed(f"'{name}' has a NULL inside: arrays and maps of PROTOBUF have none", hint="use JSON")
    return item


def _add(items: Any, value: object, sql_type: SqlType) -> None:
    if sql_type.base in _FILLED:
        _FILLED[sql_type.base](items.add(), value, sql_type)
    else:
        items.append(value)


def _put(items: Any, key: str, value: object, sql_type: SqlType) -> None:
    if sql_type.base in _FILLED:
        _FILLED[sql_type.base](items[key], value, sql_type)
    else:
        items[key] = value


def _set(message: Message, name: str, value: object, sql_type: SqlType) -> None:
    if message.DESCRIPTOR.fields_by_name[name].message_type is None:
        setattr(message, name, value)
        return
    inner = getattr(message, name)
    inner.SetInParent()  # a message of defaults is there too
    if sql_type.base in _FILLED:
        _FILLED[sql_type.base](inner, value, sql_type)
    else:
        inner.value = value


def _fill_struct(message: Any, value: Mapping[str, Any], sql_type: SqlType) -> None:
    fill(message, sql_type.fields, value)


def _fill_decimal(message: Any, value: Any, sql_type: SqlType) -> None:
    message.value = decimal_to_protobuf(value, sql_type.scale).value
    message.precision, message.scale = sql_type.precision, sql_type.scale


def _fill_date(message: Any, days: int, _: SqlType) -> None:
    found = date.fromordinal(_EPOCH_DAY + days)
    message.year, message.month, message.day = found.year, found.month, found.day


def _fill_time(message: Any, millis: int, _: SqlType) -> None:
    seconds, rest = divmod(millis, 1000)
    message.hours, message.minutes, message.seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    message.nanos = rest * 1_000_000


def _fill_timestamp(message: Any, millis: int, _: SqlType) -> None:
    message.seconds, rest = divmod(millis, 1000)
    message.nanos = rest * 1_000_000


_FILLED: Final[dict[BaseType, Callable[[Any, Any, SqlType], None]]] = {
    BaseType.STRUCT: _fill_struct,
    BaseType.DECIMAL: _fill_decimal,
    BaseType.DATE: _fill_date,
    BaseType.TIME: _fill_time,
    BaseType.TIMESTAMP: _fill_timestamp,
}
"""How the messages of types without a scalar are filled."""


_TYPE = "PROTOBUF"
_FIRST: Final = (0,)
"""The place of the first message of a schema; a single zero byte of a record says it."""
_SERIALIZED = "serialized"
"""The registry's name of the form in which a descriptor is base64, and not .proto text."""


class ColumnsMessage:
    """Rows as messages of the schema that the columns make.

    Args:
        nullable: how a column's NULL differs from its default; None: it does not, as in ksqlDB. Keys refuse it then.
    """

    def __init__(self, columns: tuple[Column, ...], nullable: Nullable | None, *, key: bool) -> None:
        self._columns = columns
        self._fields = [(column.name, column.type) for column in columns]
        self._refuses_null = key and nullable is None
        self.type = message_class([schema_of(columns, nullable)], [0])

    def of(self, row: Mapping[str, object]) -> Message:
        """The message of wire values.

        Raises:
            EncodeFailed: it cannot hold them.
        """
        null = next((name for name, _ in self._fields if self._refuses_null and row[name] is None), None)
        if null is not None:
            raise EncodeFailed(
                f"the key column '{null}' is NULL, which PROTOBUF would write as a default",
                hint="KEY_PROTOBUF_NULLABLE_REPRESENTATION = 'OPTIONAL' keeps them apart",
            )
        message = self.type()
        fill(message, self._fields, row)
        return message


class ProtobufFormat(Framed):
    """Messages after a frame; fields match columns by name, without regard to case."""

    def __init__(
        self,
        wanted: tuple[Column, ...],
        registry: SchemaRegistryClient,
        topic: str,
        *,
        key: bool,
        nullable: Nullable | None,
    ) -> None:
        super().__init__(wanted, registry, topic, key=key, bare=False)
        self._key = key
        self._nullable = nullable
        # By identity of the schema: `framed` gives the same one for the same id, and keeps it.
        self._readers: dict[tuple[int, tuple[int, ...]], _Reader] = {}

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`."""
        if len(payloads) < MANY:
            return self.decode_each(payloads, errors)
        return joined(self._by_columns(payloads), payloads, self.decode_each, errors)

    def _by_columns(self, payloads: Sequence[bytes | None]) -> list[Part]:
        """What is read by columns of the messages that stand first in their schema."""
        run, found = self.by_schema(payloads)
        first = run.bytes_at(0) == 0
        run.at += first
        parts = []
        for schema, rows in found:
            try:
                records = self._reader(schema, _FIRST).records
            except ValueError:  # the schema is broken, which each of its records is told
                continue
            if records is not None:
                parts.append(records.read(run, rows[first[rows]]))
        return parts

    def decode_each(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """As `decode`, with each payload read by itself."""
        documents = [self._decode_one(payload, row, errors) for row, payload in enumerate(payloads)]
        return from_objects(self._columns, documents, errors)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values; registers the schema when it is new."""
        message = self._message.of(row)
        with answering():
            return self._serialize(message, self._context)

    @cached_property
    def _message(self) -> ColumnsMessage:
        return ColumnsMessage(self._columns, self._nullable, key=self._key)

    @cached_property
    def _serialize(self) -> Callable[[Message, SerializationContext], bytes | None]:
        made: Callable[[Message, SerializationContext], bytes | None]
        made = ProtobufSerializer(self._message.type, self._registry, conf=STRATEGY)
        return made

    def get_schema(self, identity: int) -> Schema:
        """The schema of that id, serialized."""
        return self._registry.get_schema(identity, fmt=_SERIALIZED)

    def _decode_one(self, payload: bytes | None, row: int, errors: Errors) -> dict[str, Any]:
        schema = self.framed(payload, row, errors)
        if schema is None or payload is None:
            return {}
        named = SchemaId(_TYPE)
        try:
            rest = named.from_bytes(BytesIO(payload))
            return self._reader(schema, tuple(named.message_indexes or ()))(rest.read())
        except StrandlineError:
            raise
        # The parser may raise anything when the bytes do not match the schema.
        except Exception as error:
            errors.setdefault(row, f"not readable with its Protobuf schema: {_reason(error)}")
            return {}

    def _reader(self, schema: Schema, path: tuple[int, ...]) -> _Reader:
        found = self._readers.get((id(schema), path))
        if found is None:
            with answering():
                files = [*self._imports(schema), _file("record.proto", schema)]
            found = self._readers[id(schema), path] = _Reader(message_class(files, path), self._columns)
        return found

    def _imports(self, schema: Schema) -> list[FileDescriptorProto]:
        """The files of the schemas that a schema refers to, each after those that it imports."""
        found: dict[str, FileDescriptorProto] = {}
        for each in schema.references or ():
            if each.name is None or each.subject is None or each.version is None:
                raise ValueError("the schema refers to another without its name, subject or version")
            referred = self._registry.get_version(each.subject, each.version, True, _SERIALIZED).schema
            found |= {file.name: file for file in (*self._imports(referred), _file(each.name, referred))}
        return list(found.values())


class UnframedProtobufFormat:
    """Messages alone, by the schema that the columns make."""

    def __init__(self, wanted: tuple[Column, ...], *, key: bool, nullable: Nullable | None) -> None:
        self._columns = wanted
        self._message = ColumnsMessage(wanted, nullable, key=key)
        self._reader = _Reader(self._message.type, wanted)

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`."""
        records = self._reader.records
        if records is None or len(payloads) < MANY:
            return self.decode_each(payloads, errors)
        run = Run(payloads)
        return joined([records.read(run, np.flatnonzero(run.good))], payloads, self.decode_each, errors)

    def decode_each(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """As `decode`, with each payload read by itself."""
        documents = [self._decode_one(payload, row, errors) for row, payload in enumerate(payloads)]
        return from_objects(self._columns, documents, errors)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values."""
        payload: bytes = self._message.of(row).SerializeToString()
        return payload

    def _decode_one(self, payload: bytes | None, row: int, errors: Errors) -> dict[str, Any]:
        if payload is None:
            return {}
        try:
            return self._reader(payload)
        except (DecodeError, ValueError, OverflowError) as error:
            errors.setdefault(row, f"not a Protobuf message of the columns: {_reason(error)}")
            return {}


class _Reader:
    """Reads the bytes of one class of messages.

    Attributes:
        records: many of them at once; None: they are read one by one.
    """

    def __init__(self, made: type[Message], columns: Sequence[Column]) -> None:
        self.records: ProtobufRecords | None = None
        with suppress(Unreadable):
            self.records = ProtobufRecords(made.DESCRIPTOR, columns)
        self._parse: Callable[[bytes], Message] = made.FromString
        self._values = MessageReader(made.DESCRIPTOR, [column.name.lower() for column in columns])

    def __call__(self, payload: bytes) -> dict[str, object]:
        return self._values(self._parse(payload))


def _file(name: str, schema: Schema) -> FileDescriptorProto:
    """The descriptor of a schema.

    Raises:
        SourceUnavailable: the registry gave it as text.
    """
    try:
        file = FileDescriptorProto.FromString(b64decode(schema.schema_str or "", validate=True))
    except (NotBase64, DecodeError) as error:
        raise SourceUnavailable(
            "the schema registry gives Protobuf schemas as text only",
            hint="it has to answer GET /schemas/ids/…?format=serialized, as Confluent's does; or use PROTOBUF_NOSR",
        ) from error
    file.name = name
    return file


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if isinstance(error, ValueError) else type(error).__name__
