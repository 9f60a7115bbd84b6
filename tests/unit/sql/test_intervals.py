"""Lengths of time as other dialects spell them: which months and milliseconds they are, and what is none."""

from __future__ import annotations

from typing import Final

import pytest
from sqlglot import exp

from strandline.jobs.model.errors import SqlError
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.jobs.sql.time_clauses import IntervalNode

_HOUR: Final = 3_600_000
_DAY: Final = 24 * _HOUR


def length(text: str) -> tuple[int, int]:
    """Months and milliseconds of the one INTERVAL of an expression, also after it was written and read again."""
    tree = parse_query(f"SELECT at + {text} AS later FROM t")
    (found,) = tree.find_all(IntervalNode)
    (again,) = parse_query(sql_of(tree)).find_all(IntervalNode)
    assert again.parts == found.parts
    return found.parts


@pytest.mark.parametrize(
    ("text", "months", "milliseconds"),
    [
        ("INTERVAL '1' DAY", 0, _DAY),
        ("INTERVAL 90 MINUTES", 0, 90 * 60_000),
        ("INTERVAL '1 day 2 hours'", 0, _DAY + 2 * _HOUR),
        ("INTERVAL 1 DAY 2 HOURS", 0, _DAY + 2 * _HOUR),
        ("INTERVAL '1' YEAR '2' MONTH", 14, 0),
        ("INTERVAL '1d 2h 3m 4s 5ms'", 0, _DAY + 2 * _HOUR + 184_005),
        ("INTERVAL '2 mons 1 yr'", 14, 0),
        ("INTERVAL '01:30:00'", 0, _HOUR * 3 // 2),
        ("INTERVAL '-00:30'", 0, -_HOUR // 2),
        ("INTERVAL '1 day 02:03:04.5'", 0, _DAY + 2 * _HOUR + 184_500),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", 0, _DAY + 2 * _HOUR + 184_500),
        ("INTERVAL '-1 02' DAY TO HOUR", 0, -_DAY - 2 * _HOUR),
        ("INTERVAL '1 02:03' DAY(2) TO MINUTE", 0, _DAY + 2 * _HOUR + 180_000),
        ("INTERVAL '2:03' HOUR TO MINUTE", 0, 2 * _HOUR + 180_000),
        ("INTERVAL '2:03:04' HOUR TO SECOND(3)", 0, 2 * _HOUR + 184_000),
        ("INTERVAL '3:04' MINUTE TO SECOND", 0, 184_000),
        ("INTERVAL '1-2' YEAR TO MONTH", 14, 0),
        ("INTERVAL 'P1DT2H'", 0, _DAY + 2 * _HOUR),
        ("INTERVAL 'P1Y2M3W4DT5H6M7.5S'", 14, 25 * _DAY + 5 * _HOUR + 367_500),
        ("INTERVAL '1.5' HOUR", 0, _HOUR * 3 // 2),
        ("INTERVAL '0.5 years'", 6, 0),
        ("INTERVAL -1 DAY", 0, -_DAY),
        ("'1 day'::INTERVAL", 0, _DAY),
        ("CAST('1 month' AS INTERVAL)", 1, 0),
    ],
)
def test_lengths(text: str, months: int, milliseconds: int) -> None:
    assert length(text) == (months, milliseconds)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "INTERVAL '1 fortnight'",
            "INTERVAL 'P'",
            "INTERVAL ''",
            "INTERVAL '10'",
            "INTERVAL '1:2:3 4'",
            "'x'::INTERVAL",
        ),
        *(
            "INTERVAL '1.5 months'",
            "INTERVAL '1.0001 seconds'",
            "INTERVAL '1' DAY TO YEAR",
            "INTERVAL '1-2' DAY TO HOUR",
        ),
        *("INTERVAL '1.2.3 s'", "INTERVAL 'PT1.2.3S'", "INTERVAL '1 02:03:04'' DAY TO SECOND"),
    ],
)
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(SqlError):
        length(text)


def test_a_column_of_that_name_may_be_less_one() -> None:
    assert not list(parse_query("SELECT interval - 1 AS less FROM t").find_all(IntervalNode))
    assert list(parse_query("SELECT interval - 1 AS less FROM t").find_all(exp.Sub))
