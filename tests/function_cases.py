"""One table of values, and expressions over it: each engine must compute the same, and what is written here.

`EXPECTED` is for the first row; the second is all NULL but for its number, the third has the awkward values.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from jobs.ivm.stage import Relation
from jobs.sql import types as t
from jobs.sql.dialect import parse_expression
from jobs.sql.infer import infer
from jobs.sql.scope import Scope, Typed

COLUMNS: tuple[tuple[str, t.SqlType], ...] = (
    ("nr", t.INT),
    ("i", t.INT),
    ("b", t.BIGINT),
    ("d", t.DOUBLE),
    ("m", t.decimal(10, 2)),
    ("s", t.VARCHAR),
    ("bytes", t.BYTES),
    ("flag", t.BOOLEAN),
    ("day", t.DATE),
    ("clock", t.TIME),
    ("at", t.TIMESTAMP),
    ("tags", t.array(t.VARCHAR)),
    ("ratings", t.map_of(t.VARCHAR, t.INT)),
    ("who", t.struct(("name", t.VARCHAR), ("age", t.INT))),
)
_AT = dt.datetime(2024, 1, 31, 13, 45, 0, 500_000, tzinfo=dt.UTC)
_EARLY = dt.datetime(1969, 12, 31, 23, 59, 59, 250_000, tzinfo=dt.UTC)
ROWS: tuple[tuple[object, ...], ...] = (
    (
        *(1, 7, 40_000_000_000, 2.5, Decimal("12.34"), "Hello 'World'", b"abc", True, dt.date(2024, 1, 31), 49_500_500),
        *(_AT, ["x", None, "y"], [("one", 1), ("two", 2)], {"name": "Ada", "age": 36}),
    ),
    (2, *([None] * 13)),
    (
        *(3, -7, 0, -0.75, Decimal("-0.05"), "\\% é\n", b"", False, dt.date(1969, 12, 31), 0),
        *(_EARLY, [], [], {"name": None, "age": None}),
    ),
)

EXPECTED: dict[str, object] = {
    # arithmetic
    "i + 1": 8,
    "i + b": 40_000_000_007,
    "i * d": 17.5,
    "i / 2": 3,
    "-i / 2": -3,
    "i / (b - b)": None,
    "d / 0": None,
    "i % 4": 3,
    "-i % 4": -3,
    "i % 0": None,
    "m + 1": Decimal("13.34"),
    "m * m": Decimal("152.2756"),
    "m / 8": Decimal("1.5425"),
    "m - 0.005": Decimal("12.335"),
    "m % 5": Decimal("2.34"),
    "m * d": 30.85,
    "-(i + 1) * 2": -16,
    "2 + i * 3 - 1": 22,
    # comparison and logic
    "i > 6.5": True,
    "m = 12.340": True,
    "s = 'Hello ''World'''": True,
    "day < '2024-02-01'": True,
    "at >= '2024-01-31T13:45:00.500'": True,
    "clock = '13:45:00.500'": True,
    "day < at": True,
    "UNIX_TIMESTAMP(at) > '2024-01-31T13:45:00'": True,
    "i BETWEEN 1 AND b": True,
    "i IN (1, 2, 7.0)": True,
    "i NOT IN (1, NULL)": None,
    "flag AND NULL": None,
    "NOT flag OR i > 1": True,
    "s LIKE 'Hello%'": True,
    "s NOT LIKE '%\\%%'": True,
    "'10%' LIKE '10!%' ESCAPE '!'": True,
    "s IS NOT NULL AND d IS NULL": False,
    "i IS DISTINCT FROM NULL": True,
    "flag IS TRUE": True,
    # CASE and its like
    "CASE WHEN i > 5 THEN 'big' WHEN i > 1 THEN 'small' END": "big",
    "CASE i WHEN 1 THEN 1 WHEN 7 THEN b ELSE 0 END": 40_000_000_000,
    "COALESCE(NULL, i, 2)": 7,
    "IFNULL(s, 'none')": "Hello 'World'",
    "NULLIF(i, 7)": None,
    "IF(i > 5, 'y', 'n')": "y",
    "GREATEST(i, b, 3)": 40_000_000_000,
    "LEAST(d, i, NULL)": 2.5,
    # text
    "UCASE(s) || LCASE(s)": "HELLO 'WORLD'hello 'world'",
    "LEN(s)": 13,
    "TRIM('  a ')": "a",
    "SUBSTRING(s, 1, 5)": "Hello",
    "SUBSTRING(s, 7)": "'World'",
    "SUBSTRING(s, -6, 3)": "Wor",
    "LEFT(s, 2) || RIGHT(s, 2)": "Hed'",
    "CONCAT(s, NULL, '!')": "Hello 'World'!",
    "CONCAT_WS(', ', s, NULL, 'x')": "Hello 'World', x",
    "REPLACE(s, 'o', '0')": "Hell0 'W0rld'",
    "INSTR(s, 'World')": 8,
    "INSTR(s, 'nowhere')": 0,
    "LPAD('7', 3, '0') || RPAD('7', 3, '.')": "0077..",
    "REVERSE('abc')": "cba",
    "SPLIT('a.b.c', '.')": ["a", "b", "c"],
    "'back\\slash' || s": "back\\slashHello 'World'",
    # numbers
    "ABS(-i) + ABS(d)": 9.5,
    "SIGN(-d)": -1,
    "FLOOR(d)": 2.0,
    "FLOOR(m)": Decimal("12"),
    "CEIL(m)": Decimal("13"),
    "CEIL(i)": 7,
    "ROUND(d)": 3,
    "ROUND(m, 1)": Decimal("12.30"),
    "ROUND(d, 1)": 2.5,
    "SQRT(d * d)": 2.5,
    "SQRT(-1)": None,
    "POWER(i, 2)": 49.0,
    "LN(EXP(1))": 1.0,
    "LN(0)": None,
    # CAST
    "CAST(d AS INT)": 2,
    "CAST(-d AS BIGINT)": -2,
    "CAST(m AS INT)": 12,
    "CAST(b AS INT)": None,
    "CAST('12' AS INT)": 12,
    "CAST('1.5' AS INT)": None,
    "CAST('abc' AS DOUBLE)": None,
    "CAST('1.255' AS DECIMAL(4, 2))": Decimal("1.26"),
    "CAST(1234.5 AS DECIMAL(4, 2))": None,
    "CAST(i AS VARCHAR) || CAST(m AS VARCHAR)": "712.34",
    "CAST(flag AS VARCHAR)": "true",
    "CAST(day AS VARCHAR)": "2024-01-31",
    "CAST(at AS VARCHAR)": "2024-01-31T13:45:00.500",
    "CAST(clock AS VARCHAR)": "13:45:00.500",
    "CAST(at AS DATE) = day": True,
    "CAST(at AS TIME) = clock": True,
    "CAST(day AS TIMESTAMP) < at": True,
    "CAST('2024-01-31' AS DATE) = day": True,
    "CAST('true' AS BOOLEAN)": True,
    # collections
    "tags[1]": "x",
    "tags[-1]": "y",
    "tags[9]": None,
    "tags[i - 7]": None,
    "ratings['two']": 2,
    "ratings['three']": None,
    "who->age + 1": 37,
    "STRUCT(a := i, b := s)->b": "Hello 'World'",
    "ARRAY[i, 2, b][3]": 40_000_000_000,
    "MAP('k' := i)['k']": 7,
    "MAP(COALESCE(s, '-') := i)[s]": 7,
    "ARRAY_LENGTH(tags)": 3,
    "ARRAY_CONTAINS(tags, 'y')": True,
    "ARRAY_CONTAINS(tags, 'z')": False,
    "UNIX_TIMESTAMP(at)": 1_706_708_700_500,
    "FROM_UNIXTIME(UNIX_TIMESTAMP(at)) = at": True,
}


def elaborated(text: str) -> Typed:
    """An expression over the table."""
    return infer(parse_expression(text), Scope(Relation("cases", COLUMNS, "keyed", ("nr",)), ("cases",)))


def table() -> pa.Table:
    """The rows, as the engines are given them."""
    schema = pa.schema([(name, kind.arrow()) for name, kind in COLUMNS])
    columns = [pa.array([row[i] for row in ROWS], schema.field(i).type) for i in range(len(COLUMNS))]
    return pa.Table.from_arrays(columns, schema=schema)
