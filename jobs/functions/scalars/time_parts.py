"""The parts of a TIMESTAMP (in UTC) and of a TIME as whole numbers: PART_OF_DATE('YEAR', at), which EXTRACT becomes.

And where a unit of time began: BEGIN_OF_UNIT('HOUR', at), which DATE_TRUNC becomes.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.functions.scalars.contract import Scalar, Written, takes
from strandline.jobs.functions.scalars.literals import unquoted
from strandline.jobs.functions.scalars.milliseconds import since_last
from strandline.jobs.model import types as t

PARTS: dict[str, tuple[str, str]] = {
    **{
        part: (f"{part.lower()}({{0}})",) * 2
        for part in ("YEAR", "QUARTER", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")
    },
    "WEEK": ("weekofyear({0})", "week({0})"),
    # Sunday is 0, as in PostgreSQL; ISODOW counts from Monday, 1.
    "DOW": ("(dayofweek({0}) - 1)", "dayofweek({0})"),
    "ISODOW": ("(weekday({0}) + 1)", "isodow({0})"),
    "DOY": ("dayofyear({0})", "dayofyear({0})"),
    # Of the minute, seconds among them, as in PostgreSQL.
    "MILLISECOND": ("pmod(unix_millis({0}), 60000)", since_last(60_000, "{0}")),
}
"""{part: its text in Spark and in DuckDB}."""


PARTS_OF_TIME = {"HOUR": (3_600_000, 24), "MINUTE": (60_000, 60), "SECOND": (1_000, 60), "MILLISECOND": (1, 60_000)}
"""{part of a TIME: its milliseconds, and how many of it make the next}. MILLISECOND is of the minute, as above."""


def _part_of_time(dialect: str) -> Written:
    divided = "(({}) div {})" if dialect == "spark" else "(({}) // {})"

    def write(arguments: Sequence[str]) -> str:
        length, most = PARTS_OF_TIME[unquoted(arguments[0], dialect) or ""]
        return f"({divided.format(arguments[1], length)} % {most})"

    return write


def _part(dialect: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        texts = PARTS[unquoted(arguments[0], dialect) or ""]
        return texts[dialect == "duckdb"].format(arguments[1])

    return write


UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")
"""The units of DATE_TRUNC; both engines begin a week on Monday."""


def _begin(arguments: Sequence[str]) -> str:
    return f"date_trunc({', '.join(arguments)})"


TIME_PARTS = (
    Scalar(
        "BEGIN_OF_UNIT",
        takes(t.TIMESTAMP, t.VARCHAR, t.TIMESTAMP),
        _begin,
        _begin,
        exact=True,
        constant=(0,),
        hidden=True,
    ),
    Scalar(
        "PART_OF_DATE",
        takes(t.INT, t.VARCHAR, t.TIMESTAMP),
        _part("spark"),
        _part("duckdb"),
        exact=True,
        constant=(0,),
        hidden=True,
    ),
    Scalar(
        "PART_OF_TIME",
        takes(t.INT, t.VARCHAR, t.TIME),
        _part_of_time("spark"),
        _part_of_time("duckdb"),
        exact=True,
        constant=(0,),
        hidden=True,
    ),
)
