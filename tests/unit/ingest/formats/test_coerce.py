"""JSON values in columns of every type: what fits, and what does not with a reason."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from strandline.jobs.ingest.formats.coerce import Misfit, coerce
from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType
from tests.unit.ingest.formats.decoding import decode, source


def one(kind: SqlType, text: str | bytes) -> Any:
    """The value a JSON literal gives in a column of the type, or the reason it gives none."""
    literal = text.encode() if isinstance(text, str) else text
    # Beside a good and a broken row: a reason must stick to its own.
    rows, errors = decode(source("JSON", ("v", kind)), [b'{"v": null}', b'{"v": ' + literal + b"}", b"["])
    assert rows[0] == {"v": None}
    assert set(errors) - {1} == {2}
    if 1 in errors:
        assert rows[1]["v"] is None
        return errors[1]
    return rows[1]["v"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (t.BOOLEAN, "true", True),
        (t.BOOLEAN, '"False"', False),
        (t.INT, "2147483647", 2147483647),
        (t.INT, "3.0", 3),
        (t.BIGINT, "-9223372036854775808", -(2**63)),
        (t.BIGINT, '" 42 "', 42),
        (t.DOUBLE, "1", 1.0),
        (t.DOUBLE, "18446744073709551616", 18446744073709551616.0),
        (t.DOUBLE, '"2.5"', 2.5),
        (t.decimal(5, 2), "1.10", Decimal("1.10")),
        (t.decimal(5, 2), '"005.4"', Decimal("5.40")),
        (t.decimal(5, 2), "1E+2", Decimal("100.00")),
        (t.decimal(38, 0), "1" * 38, Decimal("1" * 38)),
        (t.decimal(18, 17), "0.12345678901234567", Decimal("0.12345678901234567")),
        (t.decimal(5, 2), "-0.000", Decimal("0.00")),
        (t.VARCHAR, '"ü\\n"', "ü\n"),
        (t.VARCHAR, "1.10", "1.10"),
        (t.VARCHAR, "true", "true"),
        (t.VARCHAR, '{"a": [1.50, null]}', '{"a":[1.50,null]}'),
        (t.VARCHAR, "123456789012345678901234567890", "123456789012345678901234567890"),
        (t.BYTES, '"AP8="', b"\x00\xff"),
        (t.DATE, "19000", date(2022, 1, 8)),
        (t.DATE, '"2022-01-08"', date(2022, 1, 8)),
        (t.TIME, "3600000", 3600000),
        (t.TIME, '"01:00:00.5"', 3600500),
        (t.TIMESTAMP, "1500", datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)),
        (t.TIMESTAMP, '"2024-02-29T12:00:00+02:00"', datetime(2024, 2, 29, 10, tzinfo=UTC)),
        (t.TIMESTAMP, '"2024-02-29 12:00:00"', datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (t.array(t.INT), "[1, null, 2]", [1, None, 2]),
        (t.map_of(t.VARCHAR, t.DOUBLE), '{"a": 1}', [("a", 1.0)]),
        (t.map_of(t.INT, t.VARCHAR), '{"7": "x"}', [(7, "x")]),
        (t.struct(("x", t.INT), ("y", t.array(t.VARCHAR))), '{"X": 1, "y": ["a", 2.50]}', {"x": 1, "y": ["a", "2.50"]}),
    ],
)
def test_json_values_that_fit(kind: SqlType, text: str, expected: object) -> None:
    assert one(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (t.BOOLEAN, "1", "1 is not a BOOLEAN"),
        (t.INT, "2147483648", "out of the range of INT"),
        (t.INT, "1.5", "1.5 is not a INT"),
        (t.INT, "true", "true is not a INT"),
        (t.BIGINT, "9223372036854775808", "out of the range of BIGINT"),
        (t.BIGINT, "1e300", "out of the range of BIGINT"),
        (t.BIGINT, '"x"', "'x' is not a BIGINT"),
        (t.DOUBLE, "NaN", "not JSON"),
        (t.DOUBLE, "-Infinity", "not JSON"),
        (t.DOUBLE, "1e400", "not JSON"),
        (t.DOUBLE, '"nan"', "'nan' is not a DOUBLE"),
        (t.DOUBLE, "true", "is not a DOUBLE"),
        (t.decimal(5, 2), "1.234", "more than 2 decimal places"),
        (t.decimal(5, 2), "1000", "out of the range"),
        (t.decimal(5, 2), '"1e999999999"', "out of the range"),
        (t.VARCHAR, '"\\ud800"', "not JSON"),
        (t.VARCHAR, b'"\xff"', "not JSON"),
        (t.BYTES, '"?"', "not base64"),
        (t.DATE, "99999999", "is not a DATE"),
        (t.TIME, "86400000", "is not a TIME"),
        (t.TIMESTAMP, "9999999999999999", "is not a TIMESTAMP"),
        (t.TIMESTAMP, '"yesterday"', "is not a TIMESTAMP"),
        (t.array(t.INT), '[1, "x"]', "'x' is not a INT"),
        (t.array(t.INT), "{}", "is not a ARRAY"),
        (t.struct(("x", t.INT)), '{"x": "a"}', "field 'x'"),
    ],
)
def test_json_values_that_do_not_fit(kind: SqlType, text: str | bytes, reason: str) -> None:
    found = one(kind, text)
    assert isinstance(found, str)
    assert reason in found


def test_huge_exponents_cost_nothing() -> None:
    """1E+999999999 has a gigabyte of digits: every type must refuse it, or keep it short, without writing it out."""
    for kind in (t.INT, t.BIGINT, t.DOUBLE, t.decimal(38, 10)):
        with pytest.raises(Misfit):
            coerce(Decimal("1E+999999999"), kind)
    assert coerce(Decimal("1E+999999999"), t.VARCHAR) == "1E+999999999"


def test_a_uuid_of_avro_is_its_text() -> None:
    number = UUID("12345678-1234-5678-1234-567812345678")
    assert coerce(number, t.VARCHAR) == str(number)
