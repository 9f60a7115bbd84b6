"""Patterns of dates and times: DuckDB's format of a pattern writes what the pattern means, and reads it back."""

from __future__ import annotations

import datetime as dt

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.functions.scalars.time_patterns import for_spark, has_zone, length_of, read, written
from jobs.model.errors import InvalidQuery

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
        found = duck.execute(
            f"SELECT strftime(m, '{written(pattern)}'), strptime(strftime(m, '{written(pattern)}'), '{read(pattern)}')"
            f" FROM (SELECT make_timestamp({moment * 1000}) AS m)"
        ).fetchone()
    assert found is not None
    assert (len(found[0]), found[1]) == (length_of(pattern), expected)


@pytest.mark.parametrize(
    ("pattern", "message"), [("yyyy-QQ", "'QQ' in the pattern"), ("HH'o", "a quote is not closed"), ("HH:nn", "'nn'")]
)
def test_a_pattern_that_means_nothing_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        written(pattern)


def test_zones_are_told_from_text() -> None:
    assert has_zone("HH:mm zzz")
    assert not has_zone("HH:mm 'zzz'")


def test_spark_is_given_no_letters_that_it_refuses() -> None:
    assert for_spark("uuuu-MM-dd'u''s'") == "yyyy-MM-dd'u''s'"
    assert length_of("yyyy-M") is None
