"""Sums of dates and times with lengths, and days as numbers.

The functions with units (DATEADD, …) and INTERVAL become these: the length in milliseconds, days or months. TIME is
milliseconds of the day, and goes round.
"""

from __future__ import annotations

from strandline.jobs.engines.engine import NO_DATE
from strandline.jobs.functions.scalars import domains
from strandline.jobs.functions.scalars.contract import Scalar, takes, takes_no_clock
from strandline.jobs.model import types as t

_DAY = 86_400_000
_SUM_OF_TIME = "CAST(((CAST({{0}} AS BIGINT) + {{1}} % {0}) % {0} + {0}) % {0} AS {1})"


def _day_spark(days: str, day: str) -> str:
    return _day(days, day, f"raise_error('{NO_DATE}')")


def _day_duckdb(days: str, day: str) -> str:
    return _day(days, day, f"error('{NO_DATE}')")


def _day(days: str, day: str, fail: str) -> str:
    """The text of a day that neither engine checks: Spark's numbers wrap, DuckDB's go on after the year 9999."""
    low, high = domains.DAYS
    return f"CASE WHEN {days} NOT BETWEEN {low} AND {high} THEN CAST({fail} AS DATE) ELSE {day} END"


TIME_SUMS = (
    Scalar(
        "ADD_MILLISECONDS",
        takes(t.TIMESTAMP, t.TIMESTAMP, t.BIGINT),
        "timestamp_micros(unix_micros({0}) + {1} * 1000)",
        # Of a NULL no length is too large: without it DuckDB would fail on the length alone.
        "({0} + to_milliseconds(CASE WHEN {0} IS NOT NULL THEN {1} END))",
        hidden=True,
        fails=domains.no_later_instant,
    ),
    Scalar(
        "ADD_MONTHS",
        takes(t.TIMESTAMP, t.TIMESTAMP, t.INT),
        "({0} + make_ym_interval(0, {1}))",
        "({0} + to_months({1}))",
        constant=(1,),
        hidden=True,
        fails=domains.no_later_month,
    ),
    Scalar(
        "ADD_TO_TIME",
        takes(t.TIME, t.TIME, t.BIGINT),
        _SUM_OF_TIME.format(_DAY, "INT"),
        _SUM_OF_TIME.format(_DAY, "INTEGER"),
        hidden=True,
    ),
    Scalar(
        "ADD_DAYS",
        takes(t.DATE, t.DATE, t.INT),
        _day_spark("CAST(unix_date({0}) AS BIGINT) + {1}", "date_add({0}, {1})"),
        _day_duckdb("CAST({0} - DATE '1970-01-01' AS BIGINT) + {1}", "({0} + {1})"),
        hidden=True,
        fails=domains.no_later_day,
    ),
    Scalar(
        "FROM_DAYS",
        takes(t.DATE, t.INT),
        _day_spark("{0}", "date_from_unix_date({0})"),
        _day_duckdb("{0}", "(DATE '1970-01-01' + {0})"),
        fails=domains.no_day,
    ),
    # Days as a BIGINT, in which they can be added.
    Scalar(
        "WHOLE_DAYS",
        takes(t.BIGINT, t.DATE),
        "CAST(unix_date({0}) AS BIGINT)",
        "CAST({0} - DATE '1970-01-01' AS BIGINT)",
        hidden=True,
    ),
    Scalar("WHOLE", takes(t.BIGINT, t.BIGINT), "CAST({0} AS BIGINT)", hidden=True),
    Scalar("UNIX_DATE", takes_no_clock(t.INT, t.DATE), "unix_date({0})", "CAST({0} - DATE '1970-01-01' AS INTEGER)"),
)
