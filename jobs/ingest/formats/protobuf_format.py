"""PROTOBUF and PROTOBUF_NOSR: the columns are the fields of a message, also where there is only one.

    PROTOBUF         0, schema id (4 bytes), place of the message in the schema, message: read by its writer's schema
    PROTOBUF_NOSR    the message alone: read by the schema that the columns make (see `protobuf_schema`)

Registries answer with a serialized descriptor where one is asked for, so no text of .proto files is parsed here.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as NotBase64
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from strandline.jobs.ingest.formats.confluent import STRATEGY, Framed, answering
from strandline.jobs.ingest.formats.json_format import from_objects
from strandline.jobs.ingest.formats.protobuf_messages import message_class
from strandline.jobs.ingest.formats.protobuf_schema import schema_of
from strandline.jobs.ingest.formats.protobuf_values import MessageReader, fill
from strandline.jobs.model.errors import EncodeFailed, SourceUnavailable
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.serialization import SerializationContext
    from google.protobuf.message import Message

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.protobuf_schema import Nullable
    from strandline.jobs.model.definitions import Column

_TYPE = "PROTOBUF"
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
    """Reads the bytes of one class of messages."""

    def __init__(self, made: type[Message], columns: Sequence[Column]) -> None:
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
