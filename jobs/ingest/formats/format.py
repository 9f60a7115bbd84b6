"""Reading and writing of records: one class per format, each for the key's or the value's columns of a source; and the
event time that one of the columns holds.

decode   payloads of one run of records → one Arrow array per column; rows that do not decode are noted, not raised
encode   wire values of one row (see `coerce.wire_value`) → payload
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

from strandline.jobs.ingest.formats.coerce import Misfit, coerce, microseconds
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import FOREIGN_OPTIONS
from strandline.jobs.model.errors import NotSupported, OptionRefused, UnknownName
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from confluent_kafka.schema_registry import SchemaRegistryClient

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.protobuf_schema import Nullable
    from strandline.jobs.model.definitions import Column, Source


Role = Literal["key", "value"]
NULLABLE_OPTIONS: dict[Role, str] = {
    "key": "KEY_PROTOBUF_NULLABLE_REPRESENTATION",
    "value": "VALUE_PROTOBUF_NULLABLE_REPRESENTATION",
}
"""The options of a source that say how PROTOBUF keeps a NULL apart from a default."""
WRAP_OPTION: Final = "WRAP_SINGLE_VALUE"
"""The option that says whether a value of one column is an object, `true`, or the column's value itself, `false`."""
_WRAPPED: Final = {
    **dict.fromkeys(("JSON", "JSON_SR", "AVRO"), ("true", "false")),
    **dict.fromkeys(("PROTOBUF", "PROTOBUF_NOSR"), ("true",)),
    "KAFKA": ("false",),
}
"""{format: what it takes for WRAP_OPTION}, as in ksqlDB."""
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
    bare = len(wanted) == 1 if key else _is_bare(source, name, wanted)
    match name:
        case "JSON":
            from strandline.jobs.ingest.formats.json_format import JsonFormat

            return JsonFormat(wanted, bare=bare, key=key)
        case "DELIMITED":
            from strandline.jobs.ingest.formats.plain import DelimitedFormat, delimiter_of

            delimiter = delimiter_of(source.options.get(f"{role.upper()}_DELIMITER"))
            return DelimitedFormat(wanted, delimiter, 0 if key else source.added)
        case "KAFKA":
            from strandline.jobs.ingest.formats.plain import PrimitiveFormat

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


def _is_bare(source: Source, form: str, wanted: Sequence[Column]) -> bool:
    """True if a value is that of its one column. As in ksqlDB: a key of one column always is, a value where CREATE says
    so.

    Raises:
        OptionRefused: it says so of several columns, or of a format that has values of one form only.
    """
    stated = source.options.get(WRAP_OPTION, "").lower()
    if stated and stated not in _WRAPPED.get(form, ()):
        raise OptionRefused(f"the format {form} has no values with {WRAP_OPTION} = '{stated}'", hint="leave it out")
    if stated == "false" and len(wanted) > 1:
        names = ", ".join(column.name for column in wanted)
        raise OptionRefused(f"{WRAP_OPTION} = 'false' is for a value of one column, not {len(wanted)}: {names}")
    return stated == "false"


def nullable_of(source: Source, role: Role) -> Nullable | None:
    """How PROTOBUF keeps a NULL apart from a default: what CREATE said, or not at all."""
    return cast("Nullable | None", source.options.get(NULLABLE_OPTIONS[role]))


def check_source(source: Source) -> None:
    """Refuse what CREATE must not accept: formats that cannot hold the columns, an event time that cannot be read.

    Raises:
        OptionRefused, NotSupported, UnknownName.
    """
    open_format(source, "key", _no_registry)
    if source.change_stream:
        _is_bare(source, source.value_format, ())
    else:
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


# WITH (TIMESTAMP='column', TIMESTAMP_FORMAT='pattern'): the event time of a record from one of its columns.
#
# Patterns are those of Java's DateTimeFormatter, restricted to the letters in common use in ksqlDB:
#
#     yyyy uuuu  year      MM M  month    dd d  day      DDD  day of the year    EEE EEEE  day of the week
#     MMM MMMM   its name  HH H  hour     hh h  1 to 12  a    AM, PM             mm m  ss s  minute, second
#     S … SSSSSS fraction of a second     X XX XXX x xx xxx Z ZZ ZZZ  offset     z VV  zone (UTC, GMT only)
#     'text' '' and characters other than letters stand for themselves

_PIECE = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z'])")
_LETTERS = {
    **dict.fromkeys(("yyyy", "uuuu", "y", "u"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    **dict.fromkeys(("MM", "M"), "%m"),
    "MMM": "%b",
    "MMMM": "%B",
    **dict.fromkeys(("dd", "d"), "%d"),
    "DDD": "%j",
    **dict.fromkeys(("E", "EE", "EEE"), "%a"),
    "EEEE": "%A",
    **dict.fromkeys(("HH", "H"), "%H"),
    **dict.fromkeys(("hh", "h"), "%I"),
    "a": "%p",
    **dict.fromkeys(("mm", "m"), "%M"),
    **dict.fromkeys(("ss", "s"), "%S"),
    **dict.fromkeys(("S", "SS", "SSS", "SSSS", "SSSSS", "SSSSSS"), "%f"),
    **dict.fromkeys(("X", "XX", "XXX", "x", "xx", "xxx", "Z", "ZZ", "ZZZ"), "%z"),
    **dict.fromkeys(("z", "VV"), "%Z"),
}


def check_timestamp_format(pattern: str) -> str:
    """The pattern in the notation of Python's `strptime`.

    Raises:
        OptionRefused: it has a letter that is not in the table above.
    """
    parts: list[str] = []
    position = 0
    for piece in _PIECE.finditer(pattern):
        if piece.start() != position:
            break
        position = piece.end()
        text, letter, other = piece.group(1), piece.group(2), piece.group(3)
        if letter is None:
            literal = other if text is None else text.replace("''", "'") or "'"
            parts.append(literal.replace("%", "%%"))
        elif piece.group(0) in _LETTERS:
            parts.append(_LETTERS[piece.group(0)])
        else:
            raise OptionRefused(
                f"TIMESTAMP_FORMAT '{pattern}': '{piece.group(0)}' is not supported",
                hint="yyyy MM dd HH mm ss SSS XXX and quoted text are; see docs/sql.md",
            )
    if position != len(pattern):
        raise OptionRefused(f"TIMESTAMP_FORMAT '{pattern}': a quote is not closed")
    return "".join(parts)


def reader(pattern: str | None) -> Callable[[str], int]:
    """A function from the column's text to microseconds since the epoch; it raises Misfit. No pattern: ISO 8601."""
    if pattern is None:
        return lambda text: int(coerce(text, t.TIMESTAMP))
    notation = check_timestamp_format(pattern)

    # Neighbouring events often share their second.
    @lru_cache(maxsize=1024)
    def read(text: str) -> int:
        try:
            return microseconds(datetime.strptime(text, notation))  # noqa: DTZ007  (no zone means UTC)
        except (ValueError, OverflowError):
            raise Misfit(f"{text[:40]!r} is not a time in the format '{pattern}'") from None

    return read
