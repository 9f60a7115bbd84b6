"""One table of values: the second row is all NULL but for its number, the third has the awkward values."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from strandline.jobs.model import types as t
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope, Typed
from tests.support.parsed import parse_expression

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


def elaborated(text: str) -> Typed:
    """An expression over the table."""
    return infer(parse_expression(text), Scope(Relation("cases", COLUMNS, "keyed", ("nr",)), ("cases",)))


def table() -> pa.Table:
    """The rows, as the engines are given them."""
    schema = pa.schema([(name, kind.arrow()) for name, kind in COLUMNS])
    columns = [pa.array([row[i] for row in ROWS], schema.field(i).type) for i in range(len(COLUMNS))]
    return pa.Table.from_arrays(columns, schema=schema)
