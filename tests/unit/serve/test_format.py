"""What scripts and people read: JSON without loss, tables without surprises."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.serve.results import TextTable, cell, display_width, json_line, to_json

UTC = dt.UTC


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (9_223_372_036_854_775_807, "9223372036854775807"),
        (68.5, "68.5"),
        (75.0, "75.0"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        (Decimal("12345678901234567890.1234567890"), "12345678901234567890.1234567890"),
        (Decimal("1E+3"), "1000"),
        ('it\'s "here"\n', '"it\'s \\"here\\"\\n"'),
        ("Zürich 京", '"Zürich 京"'),
        (b"\x00\xff", '"AP8="'),
        (dt.date(2024, 5, 1), '"2024-05-01"'),
        (dt.time(9, 5, 7, 250_000), '"09:05:07.250"'),
        (dt.datetime(2024, 5, 1, 12, tzinfo=UTC), '"2024-05-01T12:00:00.000"'),
        (dt.datetime(2024, 5, 1, 12, 0, 0, 1, tzinfo=UTC), '"2024-05-01T12:00:00.000001"'),
        ([1, None], "[1, null]"),
        ([], "[]"),
        ({}, "{}"),
        ({"f": {"g": Decimal("0.10")}}, '{"f": {"g": 0.10}}'),
        ({1: "a", dt.date(2024, 5, 1): "b"}, '{"1": "a", "2024-05-01": "b"}'),
    ],
)
def test_each_type_has_one_json_text(value: object, text: str) -> None:
    assert to_json(value) == text


_scalars = st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False, allow_infinity=False)
_nested = st.recursive(_scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(st.dictionaries(st.text(), _nested, max_size=4))
def test_a_row_reads_back_as_it_was_and_takes_one_line(row: dict[str, object]) -> None:
    """Property: for every value that JSON has, any parser gives back the same; no line break is ever inside."""
    line = json_line(tuple(row), tuple(row.values()))
    assert json.loads(line) == row
    assert "\n" not in line


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**25), max_value=10**25))
def test_a_decimal_keeps_every_digit(value: Decimal) -> None:
    parsed = json.loads(to_json(value), parse_float=Decimal, parse_int=Decimal)
    assert parsed == value


def test_a_table_looks_as_in_ksqldb() -> None:
    """The projection of the pattern catalogue, as it is printed there but for the case of the names."""
    rows = [("1", "Rome"), ("2", "Rome"), ("3", "Washington")]
    table = TextTable.fitting(("package_id", "current_location"), rows)
    assert [table.header(), *(table.line(row) for row in rows)] == [
        "+------------+------------------+\n|package_id  |current_location  |\n+------------+------------------+",
        "|1           |Rome              |",
        "|2           |Rome              |",
        "|3           |Washington        |",
    ]


@given(st.lists(st.tuples(st.text(), st.text()), max_size=5))
def test_every_line_of_a_table_is_as_wide_as_its_rule(texts: list[tuple[str, str]]) -> None:
    """Property: whatever the cells hold (wide, combining or control characters), nothing moves out of its column."""
    rows = [(cell(a), cell(b)) for a, b in texts]
    for table in (TextTable.fitting(("a", "b"), rows), TextTable.within(("a", "b"), columns=30)):
        lines = [line for row in rows for line in table.line(row).split("\n")]
        assert {display_width(line) for line in lines} <= {len(table.rule)}


def test_a_cell_longer_than_its_column_goes_on_in_the_next_line() -> None:
    table = TextTable.within(("name",), columns=14)
    assert table.line(["abcdefghijklmno"]) == "|abcdefghijkl|\n|mno         |"


def test_a_row_cannot_send_control_sequences_to_the_terminal() -> None:
    assert cell("\x1b[2Jgone\u202e\n") == "\\x1b[2Jgone\\u202e\\n"
    assert cell("👩\u200d👩") == "👩\u200d👩"
