"""How records are read and written: one class per format, each for the key's or the value's columns of a source.

decode   payloads of one batch → one Arrow array per column; rows that do not decode are noted, not raised
encode   wire values of one row (see encoding) → payload
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from jobs.errors import NotSupported

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from jobs.ingest.formats.columns import Errors
    from jobs.sql.model import Source

Role = Literal["key", "value"]
FORMATS = ("JSON", "JSON_SR", "AVRO", "DELIMITED", "KAFKA")


class Format(Protocol):
    """A format bound to the columns of a key or a value."""

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]: ...

    def encode(self, row: Mapping[str, object]) -> bytes | None: ...


def open_format(source: Source, role: Role, registry: Callable[[], SchemaRegistryClient]) -> Format | None:
    """The format of a source's key or value; None when no column comes from it.

    Args:
        registry: called when the format needs one, not otherwise.

    Raises:
        OptionRefused: the format cannot hold these columns.
        NotSupported: there is no such format.
    """
    key = role == "key"
    wanted = tuple(column for column in source.columns if column.key is key)
    if not wanted:
        return None
    name = (source.key_format if key else source.value_format).upper()
    # As in ksqlDB: a key of one column is that column's value, a value is always an object or record.
    bare = key and len(wanted) == 1
    match name:
        case "JSON":
            from jobs.ingest.formats.json_format import JsonFormat

            return JsonFormat(wanted, bare=bare)
        case "DELIMITED":
            from jobs.ingest.formats.delimited import DelimitedFormat, delimiter_of

            return DelimitedFormat(wanted, delimiter_of(source.options.get(f"{role.upper()}_DELIMITER")))
        case "KAFKA":
            from jobs.ingest.formats.primitive import PrimitiveFormat

            return PrimitiveFormat(wanted)
        case "AVRO":
            from jobs.ingest.formats.confluent import AvroFormat

            return AvroFormat(wanted, registry(), source.topic, key=key, bare=bare)
        case "JSON_SR":
            from jobs.ingest.formats.confluent import JsonSchemaFormat

            return JsonSchemaFormat(wanted, registry(), source.topic, key=key, bare=bare)
        case _:
            raise NotSupported(f"format {name} is not supported", hint=f"use one of {', '.join(FORMATS)}")
