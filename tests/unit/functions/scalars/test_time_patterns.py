"""Patterns of dates and times: DuckDB's format of a pattern writes what the pattern means, and reads it back."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.functions.scalars.time_patterns import for_spark, read, reading, written
from strandline.jobs.functions.scalars.time_texts import formatted
from strandline.jobs.model.errors import InvalidQuery

_START = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - as DuckDB gives a TIMESTAMP
_PARTS = ("yyyy", "MM", "dd", "HH", "mm", "ss", "SSS")


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyy-MM-dd'T'HH:mm:ss.SSS", "%Y-%m-%dT%H:%M:%S.%g"),
        ("d.M.yy", "%-d.%-m.%y"),
        ("EEE, MMM d", "%a, %b %-d"),
        ("''HH'o''clock'", "'%Ho'clock"),
        ("HH%mm", "%H%%%M"),
        ("HH:mm X", "%H:%M Z"),
    ],
)
def test_tokens_become_words(pattern: str, expected: str) -> None:
    assert written(pattern) == expected


@settings(max_examples=30)
@given(parts=st.permutations(_PARTS), moment=st.integers(0, 4_000_000_000_000))
def test_what_is_written_is_read_back(parts: list[str], moment: int) -> None:
    """`moment` is milliseconds since 1970."""
    expected = _START + dt.timedelta(milliseconds=moment)
    pattern = "'at' " + "_".join(parts)
    with duckdb.connect() as duck:
        text = formatted("duckdb", "m", pattern)
        found = duck.execute(
            f"SELECT {read('duckdb', text, reading(pattern), None)} FROM (SELECT make_timestamp({moment * 1000}) AS m)"
        ).fetchone()
    assert found == (expected,)


@pytest.mark.parametrize(
    ("pattern", "message"), [("yyyy-QQ", "'QQ' in the pattern"), ("HH'o", "a quote is not closed"), ("HH:ee", "'ee'")]
)
def test_a_pattern_that_means_nothing_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        written(pattern)


@pytest.mark.parametrize("pattern", ["yyyy-QQ", "yyyy yyyy", "HH:mm O", "FF", "yyyyyy", "ww"])
def test_a_pattern_that_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidQuery):
        reading(pattern)


def test_zones_are_told_from_text() -> None:
    assert reading("HH:mm zzz").zoned
    assert not reading("HH:mm 'zzz'").zoned


def test_spark_is_given_no_letters_that_it_refuses() -> None:
    assert for_spark("uuuu-MM-dd'u''s'") == "yyyy-MM-dd'u''s'"
