"""The types that the sources of an example have, and values of each: the usual ones, which often meet, and nasty ones.

Nothing here is of `jobs` or `state_store`: types are their names in the language, values are plain Python.
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa

INT: Final = "INT"
BIGINT: Final = "BIGINT"
DOUBLE: Final = "DOUBLE"
VARCHAR: Final = "VARCHAR"
BOOLEAN: Final = "BOOLEAN"
DATE: Final = "DATE"
TIMESTAMP: Final = "TIMESTAMP"
SMALL_DECIMAL: Final = "DECIMAL(8, 2)"
LARGE_DECIMAL: Final = "DECIMAL(38, 10)"
TIME: Final = "TIME"
BYTES: Final = "BYTES"
INTS: Final = "ARRAY<INT>"
MAP: Final = "MAP<VARCHAR, INT>"
STRUCT: Final = "STRUCT<f INT, g VARCHAR>"

_EXACT: Final = Context(prec=100)

LARGEST: Final = {INT: 2**31 - 1, BIGINT: 2**63 - 1}
"""The largest value of each whole type; the smallest is one further from zero."""


def _at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type, misc]


COMMON: Final[dict[str, list[Any]]] = {
    INT: [0, 1, 2, 3, -1],
    BIGINT: [0, 1, 2, 10, -7],
    DOUBLE: [0.0, 0.5, 1.25, -2.5, 4.0],
    VARCHAR: ["", "a", "b", "7", "-12"],
    BOOLEAN: [True, False],
    DATE: [dt.date(2024, 1, 1), dt.date(2024, 2, 29)],
    TIMESTAMP: [_at(2024, 5, 1), _at(2024, 5, 1, 0, 1, 30)],
    SMALL_DECIMAL: [Decimal("0.00"), Decimal("1.25"), Decimal("-3.10")],
    LARGE_DECIMAL: [Decimal("0E-10"), Decimal("1.0000000000"), Decimal("-0.0000000001")],
    TIME: [0, 3_600_000],
    BYTES: [b"", b"a"],
    INTS: [[], [1], [2, 1]],
    MAP: [[], [("a", 1)]],
    STRUCT: [{"f": 1, "g": "a"}],
}
"""The usual values (of TIME, milliseconds of the day): few, so that joins find partners and groups have rows."""

NASTY: Final[dict[str, list[Any]]] = {
    INT: [2**31 - 1, -(2**31)],
    BIGINT: [2**63 - 1, -(2**63), 2**53 + 1, 2**31],
    # No large value has an opposite: what is left of their sum would depend on the order.
    DOUBLE: [-0.0, math.nan, math.inf, -math.inf, 1e308, 5e-324, 3e9],
    VARCHAR: [
        "\0",
        "a\0",
        "ß",
        "İ",
        "\U0001f600",
        "e\u0301",
        "2147483648",
        "99999999999999999999",
        "2024-02-29",
        "true",
    ],
    BOOLEAN: [],
    DATE: [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1969, 12, 31)],
    # Of the last time, the windows of a minute and less still end in a year that Python's times have.
    TIMESTAMP: [_at(1, 1, 1), _at(9999, 12, 31, 23, 58, 29, 999_999), _at(1969, 12, 31, 23, 59, 59, 999_000)],
    SMALL_DECIMAL: [Decimal("999999.99"), Decimal("-999999.99"), Decimal("0.01")],
    LARGE_DECIMAL: [Decimal("9999999999999999999999999999.9999999999"), Decimal("-12345678901234567890.0123456789")],
    TIME: [86_399_999, 1],
    BYTES: [b"\0", b"\xff\xfe", b"a\0"],
    INTS: [[None], [3, None, 3], [2**31 - 1]],
    MAP: [[("", None)], [("a", None), ("\U0001f600", 2)]],
    STRUCT: [{"f": None, "g": None}, {"f": 0, "g": "\0"}],
}
"""Those at which engines, formats and orders differ."""

VALUES: Final[dict[str, list[Any]]] = {kind: [None, *COMMON[kind] * 2, *NASTY[kind]] for kind in COMMON}
"""What events have, NULL first: smaller numbers draw simpler values."""

_ARROW: Final[dict[str, pa.DataType]] = {
    INT: pa.int32(),
    BIGINT: pa.int64(),
    DOUBLE: pa.float64(),
    VARCHAR: pa.string(),
    BOOLEAN: pa.bool_(),
    DATE: pa.date32(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIME: pa.int32(),
    BYTES: pa.binary(),
    INTS: pa.list_(pa.int32()),
    MAP: pa.map_(pa.string(), pa.int32()),
    STRUCT: pa.struct([("f", pa.int32()), ("g", pa.string())]),
}


def arrow_type(kind: str) -> pa.DataType:
    """The Arrow type of a type of the language."""
    if is_decimal(kind):
        return pa.decimal128(*digits_of(kind))
    return _ARROW[kind]


def is_decimal(kind: str) -> bool:
    return kind.startswith("DECIMAL")


def digits_of(kind: str) -> tuple[int, int]:
    """(precision, scale) of a DECIMAL."""
    precision, scale = kind.removeprefix("DECIMAL(").removesuffix(")").split(", ")
    return int(precision), int(scale)


Rows = Counter[tuple[Any, ...]]
"""Rows as a multiset, each value as `plain` gives it."""


def rows_of(rows: Iterable[Sequence[Any]]) -> Rows:
    """Rows as they are compared."""
    return Counter(tuple(plain(value) for value in row) for row in rows)


def plain(value: Any) -> Any:
    """A value as it is compared: exactly, but that TRUE is not 1, both zeros are one and NaN is itself."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return "NaN" if math.isnan(value) else f"{value + 0.0!r}e"
        case int() | Decimal():
            return Decimal(value).normalize(_EXACT)
        case dict():
            return tuple(sorted((name, plain(each)) for name, each in value.items()))
        case list() if value and isinstance(value[0], tuple):
            return tuple(sorted((name, plain(each)) for name, each in value))  # a map, as Arrow gives it
        case list():
            return tuple(plain(each) for each in value)
        case dt.time():  # as a pull gives TIME
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return Decimal(seconds * 1000 + value.microsecond // 1000)
        case dt.datetime():
            return (value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)).isoformat()
        case _:
            return value
