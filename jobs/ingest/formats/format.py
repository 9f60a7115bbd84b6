"""Reading and writing of records: one class per format, each for the key's or the value's columns of a source.

decode   payloads of one run of records → one Arrow array per column; rows that do not decode are noted, not raised
encode   wire values of one row (see `coerce.wire_value`) → payload
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from strandline.jobs.model.definitions import FOREIGN_OPTIONS
from strandline.jobs.model.errors import NotSupported, OptionRefused, UnknownName
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.protobuf_schema import Nullable
    from strandline.jobs.model.definitions import Source

Role = Literal["key", "value"]
NULLABLE_OPTIONS: dict[Role, str] = {
    "key": "KEY_PROTOBUF_NULLABLE_REPRESENTATION",
    "value": "VALUE_PROTOBUF_NULLABLE_REPRESENTATION",
}
"""The options of a source that say how PROTOBUF keeps a NULL apart from a default."""
FORMATS = ("JSON", "JSON_SR", "AVRO", "PROTOBUF", "PROTOBUF_NOSR", "DELIMITED", "KAFKA")


class Writer(Protocol):
    """What writes keys or values."""

    def encode(self, row: Mapping[str, object]) -> bytes | None: ...


class Format(Writer, Protocol):
    """A format bound to the columns of a key or a value."""

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]: ...


def open_format(source: Source, role: Role, registry: Callable[[], SchemaRegistryClient]) -> Format | None:
    """The format of a source's key or value; None when no column comes from it.

    Args:
        registry: called when the format needs one, not otherwise.

    Raises:
        OptionRefused: the format cannot hold these columns.
        NotSupported: there is no such format.
    """
    key = role == "key"
    wanted = tuple(column for column in source.columns if column.part == role)
    if not wanted:
        return None
    name = (source.key_format if key else source.value_format).upper()
    if name in FOREIGN_OPTIONS:
        return None  # its rows are columns already
    # As in ksqlDB: a key of one column is that column's value, a value is always an object or record.
    bare = key and len(wanted) == 1
    match name:
        case "JSON":
            from strandline.jobs.ingest.formats.json_format import JsonFormat

            return JsonFormat(wanted, bare=bare)
        case "DELIMITED":
            from strandline.jobs.ingest.formats.delimited import DelimitedFormat, delimiter_of

            delimiter = delimiter_of(source.options.get(f"{role.upper()}_DELIMITER"))
            return DelimitedFormat(wanted, delimiter, 0 if key else source.added)
        case "KAFKA":
            from strandline.jobs.ingest.formats.primitive import PrimitiveFormat

            return PrimitiveFormat(wanted)
        case "AVRO":
            from strandline.jobs.ingest.formats.confluent import AvroFormat

            return AvroFormat(wanted, registry(), source.topic, key=key, bare=bare)
        case "JSON_SR":
            from strandline.jobs.ingest.formats.confluent import JsonSchemaFormat

            return JsonSchemaFormat(wanted, registry(), source.topic, key=key, bare=bare)
        case "PROTOBUF":
            from strandline.jobs.ingest.formats.protobuf_format import ProtobufFormat

            return ProtobufFormat(wanted, registry(), source.topic, key=key, nullable=nullable_of(source, role))
        case "PROTOBUF_NOSR":
            from strandline.jobs.ingest.formats.protobuf_format import UnframedProtobufFormat

            return UnframedProtobufFormat(wanted, key=key, nullable=nullable_of(source, role))
        case _:
            raise NotSupported(f"format {name} is not supported", hint=f"use one of {', '.join(FORMATS)}")


def nullable_of(source: Source, role: Role) -> Nullable | None:
    """How PROTOBUF keeps a NULL apart from a default: what CREATE said, or not at all."""
    return cast("Nullable | None", source.options.get(NULLABLE_OPTIONS[role]))


def check_source(source: Source) -> None:
    """Refuse what CREATE must not accept: formats that cannot hold the columns, an event time that cannot be read.

    Raises:
        OptionRefused, NotSupported, UnknownName.
    """
    from strandline.jobs.ingest.formats.timestamps import check_timestamp_format

    open_format(source, "key", _no_registry)
    if not source.change_stream:
        open_format(source, "value", _no_registry)
    if source.timestamp_format is not None:
        check_timestamp_format(source.timestamp_format)
    if source.timestamp is None:
        return
    types = {column.name: column.type for column in source.columns}
    if source.timestamp not in types:
        raise UnknownName.among("column", source.timestamp, types)
    kind = types[source.timestamp].base
    if kind not in (BaseType.BIGINT, BaseType.TIMESTAMP, BaseType.VARCHAR):
        raise OptionRefused(f"TIMESTAMP='{source.timestamp}': the column is {kind}, not BIGINT, TIMESTAMP or VARCHAR")
    if source.timestamp_format is not None and kind is not BaseType.VARCHAR:
        raise OptionRefused(f"TIMESTAMP_FORMAT is for VARCHAR columns; '{source.timestamp}' is {kind}")


def _no_registry() -> Any:
    """Checking a definition asks nobody."""
