"""How records are written, which the cases say and the engine must not care about.

The cases were recorded as decoded JSON whatever format is declared, so AVRO and JSON_SR are read as JSON here, PROTOBUF
is written before it is read, and what only concerns the bytes of a topic is taken out of the WITH clauses. That leaves
`Wire`: what the runner needs to read a record's key and value as columns.

    format        key of one column, value            several columns
    JSON          scalar; value always an object      object
    PROTOBUF      object, also for one key column     object
    DELIMITED     text of separated values            the same
    KAFKA         scalar                              -
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from strandline.jobs.ingest.formats.format import NULLABLE_OPTIONS
from strandline.jobs.sql.syntax import Option

_AS_JSON = ("JSON", "JSON_SR", "AVRO")
_FORMATS = ("FORMAT", "KEY_FORMAT", "VALUE_FORMAT")
_BYTES_ONLY = frozenset(
    {
        *("WRAP_SINGLE_VALUE", "KEY_DELIMITER", "KEY_SCHEMA_ID", "VALUE_SCHEMA_ID"),
        *("KEY_SCHEMA_FULL_NAME", "VALUE_SCHEMA_FULL_NAME", "VALUE_AVRO_SCHEMA_FULL_NAME"),
    }
)
"""Options of a source that say how bytes are laid out, not what they mean."""
_TOPIC_ONLY = _BYTES_ONLY | {
    *(*_FORMATS, "KAFKA_TOPIC", "PARTITIONS", "REPLICAS", "VALUE_DELIMITER"),
    *NULLABLE_OPTIONS.values(),
}
"""Options of a view that are about its topic: a projection is a table of the lake, and has none."""


@dataclass(frozen=True)
class Wire:
    """How the records of one stream or table are written.

    Attributes:
        wrapped: a value of one column is an object with that column as its member, not the bare value.
        nullable: PROTOBUF was told to keep NULL apart from its defaults.
    """

    key_format: str = "KAFKA"
    value_format: str = "JSON"
    key_delimiter: str = ","
    value_delimiter: str = ","
    wrapped: bool = True
    nullable: bool = False

    @property
    def key_defaults(self) -> bool:
        """Whether a key's NULL cannot be told from a default: see `proto`."""
        return self.key_format.startswith("PROTOBUF")

    @property
    def value_defaults(self) -> bool:
        """Whether a value's NULL cannot be told from a default."""
        return self.value_format.startswith("PROTOBUF") and not self.nullable

    def changed(self, options: Mapping[str, str]) -> Wire:
        """This one, with what a WITH clause says."""
        both = options.get("FORMAT")
        named = {"SPACE": " ", "TAB": "\t"}
        found = {
            "key_format": options.get("KEY_FORMAT", both),
            "value_format": options.get("VALUE_FORMAT", both),
            "key_delimiter": options.get("KEY_DELIMITER"),
            "value_delimiter": options.get("VALUE_DELIMITER"),
        }
        changed: dict[str, str] = {}
        for name, value in found.items():
            if value is not None:
                changed[name] = value.upper() if name.endswith("format") else named.get(value.upper(), value)
        wrapped = options.get("WRAP_SINGLE_VALUE", str(self.wrapped)).lower() == "true"
        nullable = self.nullable or "VALUE_PROTOBUF_NULLABLE_REPRESENTATION" in options
        return replace(self, **changed, wrapped=wrapped, nullable=nullable)


def default_wire(properties: Mapping[str, str]) -> Wire:
    """What a source is that says nothing, under the settings of a case."""
    stated = {
        "KEY_FORMAT": properties.get("ksql.persistence.default.format.key"),
        "VALUE_FORMAT": properties.get("ksql.persistence.default.format.value"),
        "WRAP_SINGLE_VALUE": properties.get("ksql.persistence.wrap.single.values"),
    }
    return Wire().changed({name: value for name, value in stated.items() if value is not None})


def plain_source(options: Iterable[Option]) -> tuple[Option, ...]:
    """The options of a source without what is about bytes; AVRO and JSON_SR are JSON."""
    kept = (option for option in options if option.name not in _BYTES_ONLY)
    return tuple(
        replace(option, value="JSON") if option.name in _FORMATS and option.value.upper() in _AS_JSON else option
        for option in kept
    )


def plain_view(options: Iterable[Option]) -> tuple[Option, ...]:
    """The options of a view without what is about its topic."""
    return tuple(option for option in options if option.name not in _TOPIC_ONLY)


def values(options: Iterable[Option]) -> dict[str, str]:
    return {option.name: option.value for option in options}
