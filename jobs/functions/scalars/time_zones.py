"""Clocks of a time zone and UTC. A zone is a name of the database of time zones, or a distance: `+05:30`, `GMT-3`, `Z`.

DuckDB knows no distances. A constant zone is told apart here, one of a row in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from strandline.jobs.functions.scalars.contract import unquoted

Dialect = Literal["spark", "duckdb"]
_DISTANCE = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?|Z")
IS_OFFSET = {
    "spark": "regexp_like({0}, '^[+-][0-9]{{2}}:[0-9]{{2}}\\\\z')",
    "duckdb": "regexp_matches({0}, '^[+-][0-9]{{2}}:[0-9]{{2}}\\z')",
}
"""The condition that a row's zone is a distance: there only `+hh:mm` is one."""
_MOST_HOURS = 18


def distance_of(zone: str) -> int | None:
    """The seconds that a distance is ahead of UTC; None: it is none."""
    match = _DISTANCE.fullmatch(zone)
    if match is None:
        return None
    sign, hours, minutes = match.groups()
    if sign is None:
        return 0
    seconds = int(hours) * 3600 + int(minutes or 0) * 60
    return (seconds if sign == "+" else -seconds) if seconds <= _MOST_HOURS * 3600 and int(minutes or 0) < 60 else None


def seconds_of(zone: str) -> str:
    """The seconds of `+hh`, `+hhmm`, `+hh:mm`, as text of either engine; NULL for anything else."""
    digits = f"replace({zone}, ':', '')"
    hours, minutes = (f"coalesce(TRY_CAST(substring({digits}, {place}, 2) AS INT), 0)" for place in (2, 4))
    length = f"({hours} * 3600 + {minutes} * 60)"
    return f"CASE WHEN left({zone}, 1) = '-' THEN -{length} WHEN left({zone}, 1) = '+' THEN {length} END"


def local_to_utc(dialect: Dialect, local: str, zone: str) -> str:
    """The TIMESTAMP in UTC at which the clocks of a zone show another; the zone must be known."""
    if dialect == "spark":
        return f"to_utc_timestamp({local}, {zone})"
    return _shifted(local, zone, "-", lambda name: f"timezone('UTC', timezone({name}, {local}))")


def utc_to_local(utc: str, zone: str) -> str:
    """DuckDB's text of what the clocks of a zone show, which must be known, at a TIMESTAMP in UTC."""
    return _shifted(utc, zone, "+", lambda name: f"timezone({name}, timezone('UTC', {utc}))")


def _shifted(moment: str, zone: str, sign: str, by_name: Callable[[str], str]) -> str:
    known = unquoted(zone, "duckdb")
    if known is not None:
        distance = distance_of(known)
        return by_name(zone) if distance is None else f"({moment} {sign} to_seconds({distance}))"
    is_offset = IS_OFFSET["duckdb"].format(zone)
    named = by_name(f"CASE WHEN {is_offset} THEN 'UTC' ELSE {zone} END")
    return f"CASE WHEN {is_offset} THEN {moment} {sign} to_seconds({seconds_of(zone)}) ELSE {named} END"


def as_instant(utc: str) -> str:
    """DuckDB's TIMESTAMPTZ of a TIMESTAMP in UTC."""
    return f"timezone('UTC', {utc})"


# The whole milliseconds of an instant, in DuckDB's words.
#
# Spark leaves out what is left of one, also before 1970; DuckDB's `epoch_ms` rounds to the nearest, so that the last
# moment of a day would be the next day's first, and its division cuts towards zero.


def since_1970(instant: str) -> str:
    """BIGINT."""
    micros = f"epoch_us({instant})"
    return f"(({micros} - ({micros} % 1000 + 1000) % 1000) // 1000)"


def since_last(milliseconds: int, instant: str) -> str:
    """BIGINT, since the last multiple of so many milliseconds after 1970: 86,400,000 for those of the day."""
    length = milliseconds * 1000
    return f"((epoch_us({instant}) % {length} + {length}) % {length} // 1000)"
