"""The Protobuf schema of a source's columns: what INSERT registers, and what PROTOBUF_NOSR is read by.

    (id BIGINT, price DECIMAL(8, 2), tags ARRAY<VARCHAR>, who STRUCT<name VARCHAR>)

    syntax = "proto3";
    message ConnectDefault1 {
      int64 id = 1;
      confluent.type.Decimal price = 2 [(confluent.field_meta) = {params: [precision 8, scale 2]}];
      repeated string tags = 3;
      ConnectDefault2 who = 4;
      message ConnectDefault2 { string name = 1; }
    }

It is ksqlDB's: Kafka Connect's names of messages, fields numbered from 1 in the order of the columns. A plain field of
proto3 has no NULL; `Nullable` says how it gets one: OPTIONAL writes `optional int64 id`, WRAPPER writes
`google.protobuf.Int64Value id`. Items of arrays and values of maps have none in either.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Final, Literal

from confluent_kafka.schema_registry.confluent import meta_pb2
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto

from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.model.definitions import Column

Nullable = Literal["OPTIONAL", "WRAPPER"]

_FIELD_META: Final = meta_pb2.DESCRIPTOR.extensions_by_name["field_meta"]
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SCALARS: Final = {
    BaseType.BOOLEAN: FieldDescriptorProto.TYPE_BOOL,
    BaseType.INT: FieldDescriptorProto.TYPE_INT32,
    BaseType.BIGINT: FieldDescriptorProto.TYPE_INT64,
    BaseType.DOUBLE: FieldDescriptorProto.TYPE_DOUBLE,
    BaseType.VARCHAR: FieldDescriptorProto.TYPE_STRING,
    BaseType.BYTES: FieldDescriptorProto.TYPE_BYTES,
}
_WRAPPERS: Final = {
    BaseType.BOOLEAN: "BoolValue",
    BaseType.INT: "Int32Value",
    BaseType.BIGINT: "Int64Value",
    BaseType.DOUBLE: "DoubleValue",
    BaseType.VARCHAR: "StringValue",
    BaseType.BYTES: "BytesValue",
}
_MESSAGES: Final = {
    BaseType.DECIMAL: (".confluent.type.Decimal", "confluent/type/decimal.proto"),
    BaseType.DATE: (".google.type.Date", "google/type/date.proto"),
    BaseType.TIME: (".google.type.TimeOfDay", "google/type/timeofday.proto"),
    BaseType.TIMESTAMP: (".google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
}
"""The messages that stand for types without a scalar, and the files that declare them."""


def schema_of(columns: Sequence[Column], nullable: Nullable | None) -> FileDescriptorProto:
    """A file with one message for the columns.

    Raises:
        EncodeFailed: a name is none of Protobuf's, or a type cannot be written.
    """
    file = FileDescriptorProto(name="columns.proto", syntax="proto3")
    names = (f"ConnectDefault{number}" for number in count(1))
    message = file.message_type.add(name=next(names))
    _Writer(file, names, nullable).fields(message, f".{message.name}", [(c.name, c.type) for c in columns])
    return file


class _Writer:
    """Fills the messages of one file."""

    def __init__(self, file: FileDescriptorProto, names: Iterator[str], nullable: Nullable | None) -> None:
        self._file = file
        self._names = names
        self._nullable = nullable

    def fields(self, message: DescriptorProto, path: str, wanted: Sequence[tuple[str, SqlType]]) -> None:
        """Add fields to a message whose full name is `path`."""
        for number, (name, sql_type) in enumerate(wanted, 1):
            if not _NAME.fullmatch(name):
                raise EncodeFailed(f"PROTOBUF has no field named '{name}'", hint="letters, digits and _, or use JSON")
            field = message.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            self._typed(field, sql_type, message, path)
        for field in message.field:
            # Last, since the declared oneofs of a message stand before those that `optional` makes.
            if self._nullable == "OPTIONAL" and field.label != FieldDescriptorProto.LABEL_REPEATED and _is_plain(field):
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")

    def _typed(self, field: FieldDescriptorProto, sql_type: SqlType, message: DescriptorProto, path: str) -> None:
        match sql_type.base:
            case BaseType.ARRAY:
                field.label = FieldDescriptorProto.LABEL_REPEATED
                self._single(field, sql_type.args[0], message, path)
            case BaseType.MAP:
                field.label = FieldDescriptorProto.LABEL_REPEATED
                entry = message.nested_type.add(name=_entry_name(field.name))
                entry.options.map_entry = True
                _refer(field, f"{path}.{entry.name}")
                for number, (name, inner) in enumerate(zip(("key", "value"), sql_type.args, strict=True), 1):
                    part = entry.field.add(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
                    self._single(part, inner, message, path)
            case _:
                self._single(field, sql_type, message, path)
                if self._nullable == "WRAPPER" and sql_type.base in _WRAPPERS:
                    self._import("google/protobuf/wrappers.proto")
                    _refer(field, f".google.protobuf.{_WRAPPERS[sql_type.base]}")

    def _single(self, field: FieldDescriptorProto, sql_type: SqlType, message: DescriptorProto, path: str) -> None:
        """Give a field the type of one value; its messages are declared in `message`."""
        if sql_type.base is BaseType.STRUCT:
            inner = message.nested_type.add(name=next(self._names))
            _refer(field, f"{path}.{inner.name}")
            self.fields(inner, f"{path}.{inner.name}", sql_type.fields)
        elif sql_type.base in _MESSAGES:
            name, file = _MESSAGES[sql_type.base]
            self._import(file)
            _refer(field, name)
            if sql_type.base is BaseType.DECIMAL:
                self._import("confluent/meta.proto")
                params = field.options.Extensions[_FIELD_META].params
                params["precision"], params["scale"] = str(sql_type.precision), str(sql_type.scale)
        elif sql_type.base in _SCALARS:
            field.type = _SCALARS[sql_type.base]
        else:
            raise EncodeFailed(f"field '{field.name}': PROTOBUF has no ARRAY or MAP in an ARRAY or MAP")

    def _import(self, name: str) -> None:
        if name not in self._file.dependency:
            self._file.dependency.append(name)


def _refer(field: FieldDescriptorProto, message: str) -> None:
    field.type = FieldDescriptorProto.TYPE_MESSAGE
    field.type_name = message


def _is_plain(field: FieldDescriptorProto) -> bool:
    return bool(field.type != FieldDescriptorProto.TYPE_MESSAGE)


def _entry_name(field: str) -> str:
    """The name that the compiler gives the message of a map's entries: `by_area` has ByAreaEntry."""
    return "".join(part[:1].upper() + part[1:] for part in field.split("_")) + "Entry"
