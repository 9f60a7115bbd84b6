"""The parts of a TIMESTAMP as whole numbers, in UTC: PART_OF_DATE('YEAR', at), which EXTRACT is elaborated into."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.functions.scalars.contract import Scalar, Written, takes
from jobs.functions.scalars.literals import unquoted
from jobs.model import types as t

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
    "MILLISECOND": ("pmod(unix_millis({0}), 60000)", "((epoch_ms({0}) % 60000 + 60000) % 60000)"),
}
"""{part: its text in Spark and in DuckDB}."""


def _part(dialect: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        texts = PARTS[unquoted(arguments[0], dialect) or ""]
        return texts[dialect == "duckdb"].format(arguments[1])

    return write


TIME_PARTS = (
    Scalar(
        "PART_OF_DATE",
        takes(t.INT, t.VARCHAR, t.TIMESTAMP),
        _part("spark"),
        _part("duckdb"),
        exact=True,
        constant=(0,),
        hidden=True,
    ),
)
