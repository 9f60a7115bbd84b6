"""The WITH (…) of a source: its options, their values and defaults. For a view, see `view_options`.

The allow-list of WITH (…) says which options a statement takes, and why another is refused. All other options are
refused: Kafka's client options can load classes and run code in the reader (`sasl.jaas.config`, callback handlers,
interceptors), so none is ever taken from SQL. They belong in the settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from strandline.jobs.ingest.formats.connect_values import DECIMAL_HANDLING, DECIMALS, PER_SECOND, TIME_PRECISION
from strandline.jobs.ingest.formats.format import FORMATS, NULLABLE_OPTIONS, WRAP_OPTION, check_timestamp_format
from strandline.jobs.model.definitions import CHANGE_FORMATS, NO_END, RETENTION_OPTIONS, TICK, Column
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError, UnknownName
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.syntax import Option
from strandline.jobs.sql.time_clauses import interval_of

# ksqlDB's options that are not supported yet. The error says so, and not that the name is unknown.
KSQL_OPTIONS = frozenset(
    {
        *("WINDOW_TYPE", "WINDOW_SIZE", "CLEANUP_POLICY"),
        *("KEY_SCHEMA_FULL_NAME", "VALUE_SCHEMA_FULL_NAME"),
        *("KEY_AVRO_SCHEMA_FULL_NAME", "VALUE_AVRO_SCHEMA_FULL_NAME", "SOURCED_BY_CONNECTOR", "HEADERS"),
    }
)
SCHEMA_IDS: Mapping[Literal["key", "value"], str] = {"key": "KEY_SCHEMA_ID", "value": "VALUE_SCHEMA_ID"}
"""The options of a source by which its columns are taken from a schema of the registry."""
# Whatever the name: an age or a size from which on rows should go.
_FORGETS = re.compile(r"RETENTION|\bTTL\b|_TTL|TTL_|EXPIR|MAX_AGE")
_LENGTH = re.compile(r"\d+ +(SECOND|MINUTE|HOUR|DAY|WEEK|MONTH|YEAR)S?", re.IGNORECASE)
_RUNS_CODE = re.compile(r"JAAS|CALLBACK|HANDLER|INTERCEPTOR|CLASS(ES)?$|REPORTERS|PROVIDER|DESERIALIZER|SERIALIZER")


def allowed(options: Iterable[Option], known: tuple[str, ...], owner: str) -> dict[str, Option]:
    """The options by name.

    Raises:
        OptionRefused: one that is not known, or is given twice.
        NotSupported: an option of ksqlDB that is not supported yet.
    """
    given: dict[str, Option] = {}
    for option in options:
        if option.name not in known:
            raise _refusal(option, known, owner)
        if option.name in given:
            raise error(OptionRefused, option, f"{option.name} is given twice")
        given[option.name] = option
    return given


def _refusal(option: Option, known: tuple[str, ...], owner: str) -> SqlError:
    shown = option.name.lower()
    if _FORGETS.search(option.name):
        return _forgets(option, owner)
    if "." in option.name or _RUNS_CODE.search(option.name):
        why = "it can run code in the reader" if _RUNS_CODE.search(option.name) else "it reaches the Kafka client"
        return error(
            OptionRefused,
            option,
            f"option '{shown}' is refused: {why}",
            "client options are not taken from SQL; the operator sets them in strandline.toml",
        )
    if option.name in KSQL_OPTIONS:
        return error(NotSupported, option, f"option {option.name} is not supported yet")
    unknown = UnknownName.among("option", option.name, known)
    return error(OptionRefused, option, f"{option.name} is not an option of {owner}", unknown.hint)


def _forgets(option: Option, owner: str) -> SqlError:
    """The refusal of an option by which rows would go with time: the views over them would become wrong silently."""
    if owner != "a source":
        message = f"{option.name} is refused: {owner} has the rows that its query gives, however old they are"
        length = option.value.strip() if _LENGTH.fullmatch(option.value.strip()) else "1 DAY"
        hint = f"CREATE MATERIALIZED VIEW … WITH (RETENTION = '{length}', TIMESTAMP = the column of its time)"
        return error(OptionRefused, option, message, hint)
    message = f"{option.name} is refused: how old or large an event log may grow is said otherwise"
    return error(OptionRefused, option, message, f"say {' or '.join(RETENTION_OPTIONS)}")


def error(make: Callable[..., SqlError], option: Option, message: str, hint: str | None = None) -> SqlError:
    """An error at the position of the option."""
    return make(message, line=option.line, column=option.column, hint=hint)


_SOURCE_OPTIONS = (
    "KAFKA_TOPIC",
    "VALUE_FORMAT",
    "KEY_FORMAT",
    "FORMAT",
    "PARTITIONS",
    "REPLICAS",
    "TIMESTAMP",
    "TIMESTAMP_FORMAT",
    "VALUE_DELIMITER",
    "KEY_DELIMITER",
    WRAP_OPTION,
    DECIMAL_HANDLING,
    TIME_PRECISION,
    TICK,
    *RETENTION_OPTIONS,
    *NULLABLE_OPTIONS.values(),
)
_KAFKA_TYPES = (BaseType.INT, BaseType.BIGINT, BaseType.DOUBLE, BaseType.VARCHAR, BaseType.BYTES)
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_CHANGES = "DEBEZIUM_"
_DELIMITERS = {"TAB": "\t", "SPACE": " "}
# Kafka's own limits are far higher; above this a number is a typing error, and each partition costs a file.
_MOST_PARTITIONS = 10_000
_LEAST_TICK = 1_000
"""A run looks at its clock once a second."""


@dataclass(frozen=True)
class SourceOptions:
    """The WITH clause of a source, checked, defaults filled in. `other`: options without a field of their own."""

    topic: str
    key_format: str
    value_format: str
    partitions: int = 1
    replicas: int = 1
    timestamp: str | None = None
    timestamp_format: str | None = None
    other: dict[str, str] = field(default_factory=dict)


def source_options(name: str, columns: tuple[Column, ...], options: Iterable[Option]) -> SourceOptions:
    """Check the options of `CREATE STREAM|TABLE name (columns) WITH (…)`.

    Raises:
        OptionRefused: an option is unknown, given twice, or has a wrong value.
        NotSupported: an option of ksqlDB that is not supported yet.
        InvalidQuery: a format that cannot hold the columns.
        UnknownName: TIMESTAMP does not name a column.
    """
    given = allowed(options, _SOURCE_OPTIONS, "a source")
    key_format, value_format = _formats(given)
    check_columns("key", key_format, [c for c in columns if c.key])
    check_columns("value", value_format, [c for c in columns if c.part == "value"])
    topic = given.get("KAFKA_TOPIC")
    formats = zip(NULLABLE_OPTIONS.values(), (key_format, value_format), strict=True)
    other = {name: nullable_value(given[name], form) for name, form in formats if name in given}
    for option, form in (("VALUE_DELIMITER", value_format), ("KEY_DELIMITER", key_format)):
        if option in given:
            other[option] = delimiter_of(given[option], form)
    if WRAP_OPTION in given:
        other[WRAP_OPTION] = wrapped_value(given[WRAP_OPTION])
    other |= kept_rows(given) | _of_changes(given, value_format)
    if TICK in given:
        other[TICK] = _tick(given[TICK], columns)
    if topic is not None:
        check_topic(topic)
    timestamp, pattern = time_options(given, columns)
    return SourceOptions(
        topic=topic.value if topic else name,
        key_format=key_format,
        value_format=value_format,
        partitions=count_of(given.get("PARTITIONS")),
        replicas=count_of(given.get("REPLICAS")),
        timestamp=timestamp,
        timestamp_format=pattern,
        other=other,
    )


def time_options(given: Mapping[str, Option], columns: tuple[Column, ...]) -> tuple[str | None, str | None]:
    """TIMESTAMP and TIMESTAMP_FORMAT, checked. Raises OptionRefused, UnknownName."""
    pattern = given.get("TIMESTAMP_FORMAT")
    return timestamp_column(given, columns), _pattern(pattern) if pattern is not None else None


def kept_rows(given: Mapping[str, Option]) -> dict[str, str]:
    """The options that say how much of an event log is kept, checked. Raises OptionRefused."""
    return {name: retention_of(given[name]) for name in RETENTION_OPTIONS if name in given}


def check_one_way(given: Mapping[str, Option]) -> None:
    """Check that the formats are said in one way.

    Raises:
        OptionRefused: FORMAT stands beside one of the two that it stands for.
    """
    if "FORMAT" in given and ({"KEY_FORMAT", "VALUE_FORMAT"} & given.keys()):
        raise error(
            OptionRefused, given["FORMAT"], "FORMAT stands for both KEY_FORMAT and VALUE_FORMAT: give one or the other"
        )


def check_topic(option: Option) -> None:
    """Check the name of a topic.

    Raises:
        OptionRefused: Kafka would not take it.
    """
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", option.value):
        raise error(OptionRefused, option, f"'{option.value}' is not the name of a topic", "use letters, digits, . _ -")


def format_of(option: Option | None, *, default: str, key: bool, changes: bool = False) -> str:
    """The format that an option names; with `changes` it may be one of change streams.

    Raises:
        OptionRefused
    """
    if option is None:
        return default
    value = option.value.upper()
    known = (*FORMATS, "NONE") if key else (*FORMATS, *CHANGE_FORMATS) if changes else FORMATS
    if value in CHANGE_FORMATS and not changes:
        raise error(OptionRefused, option, f"{value} is for the values of a source: views write no change streams")
    if value not in known:
        raise error(OptionRefused, option, f"'{option.value}' is not a format", f"use one of {', '.join(known)}")
    return value


def formats_of(options: Iterable[Option]) -> tuple[str, str]:
    """The formats of key and value that the options of a source name. Raises OptionRefused."""
    return _formats({option.name: option for option in options})


def _formats(given: Mapping[str, Option]) -> tuple[str, str]:
    check_one_way(given)
    value_format = _value_format(given)
    # The converters of a connector are mostly the same for both.
    default = value_format.removeprefix(_OF_CHANGES) if value_format in CHANGE_FORMATS else "KAFKA"
    return format_of(given.get("KEY_FORMAT", given.get("FORMAT")), default=default, key=True), value_format


def _value_format(given: Mapping[str, Option]) -> str:
    """The format of the values, which may be one of change streams. Raises OptionRefused."""
    both = given.get("FORMAT")
    if both is not None and both.value.upper() in CHANGE_FORMATS:
        what = f"{both.value.upper()} is a format of values, not of keys"
        raise error(OptionRefused, both, what, f"say VALUE_FORMAT = '{both.value.upper()}'")
    return format_of(given.get("VALUE_FORMAT", both), default="JSON", key=False, changes=both is None)


def _of_changes(given: Mapping[str, Option], form: str) -> dict[str, str]:
    """The options that say how values of a change stream are read whose type is not in the message.

    Raises:
        OptionRefused: a value is wrong, or the format is another.
    """
    found: dict[str, str] = {}
    for name, known in ((DECIMAL_HANDLING, DECIMALS), (TIME_PRECISION, tuple(PER_SECOND))):
        option = given.get(name)
        if option is None:
            continue
        if form not in CHANGE_FORMATS:
            raise error(
                OptionRefused, option, f"{name} is for change streams, {' or '.join(CHANGE_FORMATS)}, not {form}"
            )
        if option.value.lower() not in known:
            raise error(OptionRefused, option, f"{name} is {' or '.join(known)}, not '{option.value}'")
        found[name] = option.value.lower()
    return found


def check_columns(side: str, form: str, columns: list[Column]) -> None:
    """Check that a format can hold the columns of one side, `key` or `value`.

    Raises:
        InvalidQuery: it cannot.
    """
    if form == "NONE" and columns:
        raise InvalidQuery(f"KEY_FORMAT is NONE, but '{columns[0].name}' is a key column")
    if form == "KAFKA" and len(columns) > 1:
        names = ", ".join(c.name for c in columns)
        raise InvalidQuery(
            f"the format KAFKA holds one {side} column, not {len(columns)}: {names}",
            hint=f"say {side.upper()}_FORMAT = 'JSON'",
        )
    for column in columns:
        nested = form == "DELIMITED" and column.type.is_nested
        if nested or (form == "KAFKA" and column.type.base not in _KAFKA_TYPES):
            raise InvalidQuery(
                f"the format {form} cannot hold the {side} column '{column.name}' of type {column.type}",
                hint=f"say {side.upper()}_FORMAT = 'JSON'",
            )
        if form.startswith("PROTOBUF") and _has_nested_items(column.type):
            raise InvalidQuery(
                f"column '{column.name}': the format {form} has no ARRAY or MAP in an ARRAY or MAP",
                hint="put a STRUCT around the inner one",
            )
        odd = next((name for name in _names(column.name, column.type) if not _AVRO_NAME.fullmatch(name)), None)
        if form == "AVRO" and odd is not None:
            raise InvalidQuery(f"the format AVRO has no name '{odd}': letters, digits and _, no digit first")
        if form != "KAFKA" and has_odd_map(column.type):
            raise InvalidQuery(f"column '{column.name}': the format {form} has MAPs with VARCHAR keys only")


def _names(name: str, sql_type: SqlType) -> Iterator[str]:
    """The name of a column or field, and those of the fields in it."""
    yield name
    for inner in sql_type.args:
        yield from (each for each in _names(name, inner) if each != name)
    for field_name, inner in sql_type.fields:
        yield from _names(field_name, inner)


def has_odd_map(sql_type: SqlType) -> bool:
    """True if it has a MAP, at any depth, whose keys are not VARCHAR."""
    if sql_type.base is BaseType.MAP and sql_type.args[0].base is not BaseType.VARCHAR:
        return True
    return any(has_odd_map(inner) for inner in (*sql_type.args, *(inner for _, inner in sql_type.fields)))


def _has_nested_items(sql_type: SqlType) -> bool:
    """True if an ARRAY or MAP, at any depth, has one for its items."""
    items = (BaseType.ARRAY, BaseType.MAP)
    if sql_type.base in items and any(inner.base in items for inner in sql_type.args):
        return True
    return any(_has_nested_items(inner) for inner in (*sql_type.args, *(inner for _, inner in sql_type.fields)))


def nullable_value(option: Option, form: str | None) -> str:
    """The value of an option that says how PROTOBUF writes NULL.

    Args:
        form: the format of the key or value; None where it is not known yet.

    Raises:
        OptionRefused: it is no such value, or the format is another.
    """
    value = option.value.upper()
    if form is not None and not form.startswith("PROTOBUF"):
        raise error(OptionRefused, option, f"{option.name} is for the format PROTOBUF, not {form}")
    if value not in ("OPTIONAL", "WRAPPER"):
        raise error(OptionRefused, option, f"{option.name} is OPTIONAL or WRAPPER, not '{option.value}'")
    return value


def wrapped_value(option: Option) -> str:
    """The value of WRAP_SINGLE_VALUE. Raises OptionRefused: it is neither true nor false."""
    value = option.value.lower()
    if value not in ("true", "false"):
        raise error(OptionRefused, option, f"{option.name} is true or false, not '{option.value}'")
    return value


def count_of(option: Option | None) -> int:
    """The number that an option gives; 1 without it.

    Raises:
        OptionRefused
    """
    if option is None:
        return 1
    if not option.value.isdigit() or not 1 <= int(option.value) <= _MOST_PARTITIONS:
        raise error(
            OptionRefused, option, f"{option.name} is a number from 1 to {_MOST_PARTITIONS}, not '{option.value}'"
        )
    return int(option.value)


def retention_of(option: Option) -> str:
    """The value of an option that says how much is kept.

    Raises:
        OptionRefused
    """
    if not re.fullmatch(rf"{NO_END}|[1-9][0-9]{{0,17}}", option.value):
        what = f"{option.name} is a whole number above 0, or {NO_END} for no end, not '{option.value}'"
        raise error(OptionRefused, option, what)
    return option.value


def _tick(option: Option, columns: tuple[Column, ...]) -> str:
    """The milliseconds between two ticks of a clock: the table of one whole number, its key, and one time."""
    found = interval_of(option.value)
    months, length = found.parts if found is not None else (0, 0)
    if months or length < _LEAST_TICK:
        what = f"{option.name} is a length of time from a second on, not '{option.value}'"
        raise error(OptionRefused, option, what, "TICK_EVERY = '1 MINUTE'")
    keys = [each.type.base for each in columns if each.key]
    others = [each.type.base for each in columns if not each.key]
    if others != [BaseType.TIMESTAMP] or len(keys) != 1 or keys[0] not in (BaseType.INT, BaseType.BIGINT):
        what = f"{option.name} is for a table of a key, INT or BIGINT, and a TIMESTAMP"
        raise error(OptionRefused, option, what, "CREATE TABLE clock (id INT PRIMARY KEY, now TIMESTAMP)")
    return str(length)


def timestamp_column(given: Mapping[str, Option], columns: tuple[Column, ...]) -> str | None:
    """The name of the column that TIMESTAMP names as a row's time; None without it.

    Raises:
        UnknownName: there is no such column.
        OptionRefused: its type is no time.
    """
    option, form = given.get("TIMESTAMP"), given.get("TIMESTAMP_FORMAT")
    if option is None:
        if form is not None:
            raise error(OptionRefused, form, "TIMESTAMP_FORMAT needs TIMESTAMP: the column it is the format of")
        return None
    text = option.value
    name = text[1:-1] if text[:1] in '`"' and text[-1:] == text[:1] else text.lower()
    base_types = {c.name: c.type.base for c in columns}
    if name not in base_types:
        raise UnknownName.among("column", name, base_types, line=option.line, column=option.column)
    allowed = (BaseType.VARCHAR,) if form else (BaseType.BIGINT, BaseType.TIMESTAMP)
    if base_types[name] not in allowed:
        raise error(
            OptionRefused,
            option,
            f"TIMESTAMP column '{name}' is {base_types[name]}, expected {' or '.join(allowed)}",
            None if form else "a VARCHAR column needs TIMESTAMP_FORMAT, such as 'yyyy-MM-dd HH:mm:ss'",
        )
    return name


def _pattern(option: Option) -> str:
    try:
        check_timestamp_format(option.value)
    except OptionRefused as refused:
        raise refused.placed(option.line, option.column) from None
    return option.value


def delimiter_of(option: Option, form: str = "DELIMITED") -> str:
    """The character that VALUE_DELIMITER or KEY_DELIMITER names.

    Raises:
        OptionRefused: it is none, or the format is another.
    """
    if form != "DELIMITED":
        raise error(OptionRefused, option, f"{option.name} is for the format DELIMITED, not {form}")
    value = _DELIMITERS.get(option.value.upper(), option.value)
    if len(value) != 1 or not option.value.strip():
        raise error(OptionRefused, option, f"{option.name} is one character, TAB or SPACE, not '{option.value}'")
    return value
