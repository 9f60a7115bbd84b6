"""Constant expressions: exactly the value that SQL gives them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.types import SqlType
from strandline.jobs.session.literals import evaluate
from tests.support.parsed import parse_expression


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("-9223372036854775807 - 1", t.BIGINT, -(2**63)),
        ("7 / 2", t.INT, 3),
        ("-7 / 2", t.INT, -3),
        ("-7 % 3", t.INT, -1),
        ("1 / 8.0", t.DOUBLE, 0.125),
        ("1", t.DOUBLE, 1.0),
        ("1e3", t.DOUBLE, 1000.0),
        ("0.1 + 0.2", t.decimal(3, 1), Decimal("0.3")),
        ("12345678901234567890123456789012345678", t.decimal(38, 0), Decimal("12345678901234567890123456789012345678")),
        ("'a' || 'b'", t.VARCHAR, "ab"),
        ("CAST(1.5 AS VARCHAR)", t.VARCHAR, "1.5"),
        ("CAST('12' AS INT)", t.BIGINT, 12),
        ("CAST(2.9 AS INT)", t.INT, 2),
        ("CAST(1.005 AS DECIMAL(4, 2))", t.decimal(4, 2), Decimal("1.01")),
        ("NULL + 1", t.INT, None),
        ("TRUE", t.BOOLEAN, True),
        ("'12'", t.BIGINT, 12),
        ("' -1.50'", t.decimal(4, 2), Decimal("-1.50")),
        ("'1e3'", t.DOUBLE, 1000.0),
        ("'true'", t.BOOLEAN, True),
        ("5.0", t.INT, 5),
        ("'2024-05-01'", t.DATE, dt.date(2024, 5, 1)),
        ("TIME '09:35:00.250'", t.TIME, 34_500_250),
        ("'09:35'", t.TIME, 34_500_000),
        ("'2024-05-01T12:00:00+02:00'", t.TIMESTAMP, dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)),
        ("TO_BYTES('00ff', 'hex')", t.BYTES, b"\x00\xff"),
        ("ARRAY[1, NULL, 2 + 1]", t.array(t.BIGINT), [1, None, 3]),
        ("MAP('a' := 1, 'b' := NULL)", t.map_of(t.VARCHAR, t.DOUBLE), {"a": 1.0, "b": None}),
        ("STRUCT(x := 1)", t.struct(("x", t.INT), ("y", t.VARCHAR)), {"x": 1, "y": None}),
    ],
)
def test_constant_expressions_have_exactly_the_value_of_sql(text: str, kind: SqlType, value: object) -> None:
    found = evaluate(parse_expression(text), kind, "c")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("'x'", t.INT),
        ("'1.5'", t.INT),
        ("'2147483648'", t.INT),
        ("'1.005'", t.decimal(4, 2)),
        ("'NaN'", t.decimal(4, 2)),
        ("'maybe'", t.BOOLEAN),
        ("'1' || '2'", t.INT),
        ("5.5", t.INT),
        ("5", t.VARCHAR),
    ],
)
def test_what_a_column_cannot_hold_is_refused(text: str, kind: SqlType) -> None:
    with pytest.raises(TypeMismatch, match="column 'c'"):
        evaluate(parse_expression(text), kind, "c")
