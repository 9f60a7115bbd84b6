"""Calls of every scalar function over the ends of all types: where a call fails, its guard must have said so.

The table has the columns of `tests.support.function_cases`, in rows at the ends of their types.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from decimal import Decimal
from itertools import product

import pyarrow as pa

from jobs.functions.registry import SCALARS
from jobs.model.errors import SqlError
from jobs.query.expressions.scope import Typed
from tests.support.function_cases import COLUMNS, EXPECTED, elaborated

# They make as much as they are asked for: two billion characters are a fault of nobody's.
_GENEROUS = frozenset({"LPAD", "RPAD", "GENERATE_SERIES"})
_MOST_ARGUMENTS = 3
# Of each number of arguments: the types that a function takes differ in their first ones.
_MOST_KINDS = 6
_FIRST, _LAST = dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC)
ROWS: tuple[tuple[object, ...], ...] = (
    (
        *(1, -(2**31), -(2**63), -math.inf, Decimal("-99999999.99"), "(", b"\xff\x00", True, _FIRST.date(), 0),
        *(_FIRST, ["("], [("", -(2**31))], {"name": "", "age": -(2**31)}),
    ),
    (
        *(2, 2**31 - 1, 2**63 - 1, math.nan, Decimal("99999999.99"), "yyyy-bb", b"", False, _LAST.date(), 86_399_999),
        *(_LAST, [None, ""], [], {"name": None, "age": None}),
    ),
    (
        *(3, 0, 0, 1.7e308, Decimal("0.00"), '{"a": [', b"{}", None, dt.date(2024, 2, 29), 1),
        *(dt.datetime(2024, 2, 29, tzinfo=dt.UTC), [], [("a", 0)], {"name": "Nowhere/Town", "age": 0}),
    ),
    (
        4,
        -1,
        -1,
        5e-324,
        Decimal("-0.01"),
        "1e400",
        b"\x80",
        True,
        dt.date(1970, 1, 1),
        43_200_000,
        None,
        None,
        None,
        None,
    ),
    (5, *([None] * 13)),
    (6, *([None] * 4), "yyyy'", *([None] * 8)),
)


def table() -> pa.Table:
    """The rows, as the engines are given them."""
    schema = pa.schema([(name, kind.arrow()) for name, kind in COLUMNS])
    columns = [pa.array([row[i] for row in ROWS], schema.field(i).type) for i in range(len(COLUMNS))]
    return pa.Table.from_arrays(columns, schema=schema)


def calls() -> dict[str, Typed]:
    """A call of every function for each kind of arguments that it takes, and the cases of all functions."""
    found: dict[str, Typed] = {}
    for text in (*_generated(), *EXPECTED):
        if any(f"{name}(" in text for name in _GENEROUS):
            continue
        try:
            found[text] = elaborated(text)
        except SqlError:
            continue  # an argument that must be a constant, or another value; the cases have such calls
    return found


def _generated() -> Iterator[str]:
    columns = [name for name, _ in COLUMNS if name != "nr"]
    types = dict(COLUMNS)
    for name, scalar in SCALARS.items():
        if name != scalar.name:
            continue
        for number in range(_MOST_ARGUMENTS + 1):
            taken = 0
            for arguments in product(columns, repeat=number):
                try:
                    scalar.signature(name, tuple(types[each] for each in arguments))
                except SqlError:
                    continue
                yield f"{name}({', '.join(arguments)})"
                taken += 1
                if taken == _MOST_KINDS:
                    break
