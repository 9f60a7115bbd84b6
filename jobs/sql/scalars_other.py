"""Functions over values of any type, over collections, and over time."""

from __future__ import annotations

from jobs.errors import InvalidQuery, TypeMismatch
from jobs.sql import types as t
from jobs.sql.scalars import Scalar, Types, common, count, takes, takes_common
from jobs.sql.types import Kind, SqlType


def _any(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 1)
    return types, types[0]


def _if(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 3, 3)
    if types[0].kind not in (Kind.BOOLEAN, Kind.NULL):
        raise TypeMismatch(f"argument 1 of {name} must be BOOLEAN, not {types[0]}")
    shared = common(name, types[1:])
    return (t.BOOLEAN, shared, shared), shared


def _nullif(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    shared = common(name, types)
    return (shared, shared), shared


def _array_length(name: str, types: Types) -> tuple[Types, SqlType]:
    _array(name, types, 1)
    return types, t.INT


def _array_contains(name: str, types: Types) -> tuple[Types, SqlType]:
    _array(name, types, 2)
    element = common(name, (types[0].args[0], types[1]))
    if element.kind in (Kind.MAP, Kind.NULL):
        raise TypeMismatch(f"{name} cannot compare values of type {element}")
    return (t.array(element), element), t.BOOLEAN


def _array(name: str, types: Types, arguments: int) -> None:
    count(name, types, arguments, arguments)
    if types[0].kind is not Kind.ARRAY:
        raise TypeMismatch(f"argument 1 of {name} must be an ARRAY, not {types[0]}")


def _map(name: str, types: Types) -> SqlType:
    count(name, types, 1, 1)
    if types[0].kind is not Kind.MAP:
        raise TypeMismatch(f"argument 1 of {name} must be a MAP, not {types[0]}")
    return types[0]


def _map_keys(name: str, types: Types) -> tuple[Types, SqlType]:
    return types, t.array(_map(name, types).args[0])


def _map_values(name: str, types: Types) -> tuple[Types, SqlType]:
    return types, t.array(_map(name, types).args[1])


def _milliseconds(name: str, types: Types) -> tuple[Types, SqlType]:
    if not types:
        raise InvalidQuery(
            f"{name}() is the time of the clock, and a view gives the same rows whenever it is computed",
            hint="use rowtime, the time of the event",
        )
    return takes(t.BIGINT, t.TIMESTAMP)(name, types)


OTHER = (
    # A copy of a key column, as a value column.
    Scalar("AS_VALUE", _any, "({0})"),
    Scalar("COALESCE", takes_common(1), "coalesce"),
    Scalar("IFNULL", takes_common(2, 2), "coalesce"),
    Scalar("NULLIF", _nullif, "nullif"),
    Scalar("IF", _if, "CASE WHEN {0} THEN {1} ELSE {2} END"),
    # NULLs are passed over.
    Scalar("GREATEST", takes_common(2, nested=False), "greatest"),
    Scalar("LEAST", takes_common(2, nested=False), "least"),
    Scalar("ARRAY_LENGTH", _array_length, "array_size({0})", "CAST(len({0}) AS INTEGER)"),
    # False, not NULL, when the array lacks the value and holds a NULL.
    Scalar("ARRAY_CONTAINS", _array_contains, "array_contains(filter({0}, x -> x IS NOT NULL), {1})", "list_contains"),
    Scalar("MAP_KEYS", _map_keys, "map_keys"),
    Scalar("MAP_VALUES", _map_values, "map_values"),
    # Milliseconds since 1970; ROWTIME is written with it.
    Scalar("UNIX_TIMESTAMP", _milliseconds, "unix_millis({0})", "epoch_ms({0})"),
    Scalar("FROM_UNIXTIME", takes(t.TIMESTAMP, t.BIGINT), "timestamp_millis({0})", "make_timestamptz({0} * 1000)"),
)

# What CAST is made of where the two engines do not agree; not meant to be typed, and harmless when it is.
CONVERSIONS = (
    Scalar(
        "WHOLE_TEXT",
        takes(t.VARCHAR, t.VARCHAR),
        "({0})",
        "CASE WHEN regexp_full_match(trim({0}), '[+-]?[0-9]+') THEN {0} END",
    ),
    Scalar(
        "TIMESTAMP_TEXT",
        takes(t.VARCHAR, t.TIMESTAMP),
        "date_format({0}, \"yyyy-MM-dd'T'HH:mm:ss.SSS\")",
        "strftime({0}, '%Y-%m-%dT%H:%M:%S.%g')",
    ),
    Scalar(
        "TIME_TEXT",
        takes(t.VARCHAR, t.TIME),
        "date_format(timestamp_millis({0}), 'HH:mm:ss.SSS')",
        "strftime(make_timestamp(CAST({0} AS BIGINT) * 1000), '%H:%M:%S.%g')",
    ),
    Scalar(
        "TEXT_TIME",
        takes(t.TIME, t.VARCHAR),
        "CAST(unix_millis(try_cast(concat('1970-01-01 ', {0}) AS TIMESTAMP)) AS INT)",
        "CAST(epoch_ms(TRY_CAST('1970-01-01 ' || {0} AS TIMESTAMP)) AS INTEGER)",
    ),
    Scalar(
        "TIME_OF_DAY",
        takes(t.TIME, t.TIMESTAMP),
        "CAST(pmod(unix_millis({0}), 86400000) AS INT)",
        "CAST((epoch_ms({0}) % 86400000 + 86400000) % 86400000 AS INTEGER)",
    ),
)
