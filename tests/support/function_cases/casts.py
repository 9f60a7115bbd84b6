"""CAST, of values of every type."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

EXPECTED: dict[str, object] = {
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
    "CAST(1e10 AS VARCHAR) || ' ' || CAST(-d / 1000 AS VARCHAR) || ' ' || CAST(d AS VARCHAR)": "1.0E10 -0.0025 2.5",
    "CAST(1.25e-4 AS VARCHAR) || ' ' || CAST(5e-10 AS VARCHAR)": "1.25E-4 5.0E-10",
    "CAST(1.5e20 AS VARCHAR) || ' ' || CAST(2e-4 AS VARCHAR)": "1.5E20 2.0E-4",
    "CAST(1.2345678e7 AS VARCHAR) || ' ' || CAST(0e0 AS VARCHAR)": "1.2345678E7 0.0",
    "CAST(LN(-1) AS VARCHAR) || CAST(LN(0) AS VARCHAR)": "NaN-Infinity",
    "CAST('yes' AS BOOLEAN)": True,
    "CAST('maybe' AS BOOLEAN)": False,
    "CAST('2024-01' AS DATE)": dt.date(2024, 1, 1),
    "CAST('2024-01-31T13Z' AS TIMESTAMP) < at": True,
    "CAST('2024-01-31T14:45:00.500+0100' AS TIMESTAMP) = at": True,
    "CAST('13:45' AS TIME)": 49_500_000,
    "CAST(CAST('13:45' AS TIME) AS VARCHAR)": "13:45",
    "CAST(CAST('13:45:09' AS TIME) AS VARCHAR)": "13:45:09",
    "CAST(ARRAY[1, NULL] AS VARCHAR)": "[1, null]",
    "CAST(MAP('a' := 1.5) AS VARCHAR)": "{a=1.5}",
    "CAST(who AS VARCHAR)": "Struct{name=Ada,age=36}",
    "CAST(ARRAY['1', 'x'] AS ARRAY<INT>)": [1, None],
    "CAST(MAP('a' := '1') AS MAP<VARCHAR, INT>)['a']": 1,
    "CAST(who AS STRUCT<age BIGINT, extra VARCHAR>)->age": 36,
}
