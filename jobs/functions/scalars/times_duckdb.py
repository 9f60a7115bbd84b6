"""FORMAT_DATE, FORMAT_TIME and FORMAT_TIMESTAMP for DuckDB.

DuckDB's `strftime` has formats of its own, takes only a constant one, and writes no time zones.

FORMAT_TIMESTAMP(at, 'HH:mm XXX', 'Europe/Paris')
strftime(<at in Paris>, '%H:%M ') || <its distance from UTC>
"""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

from jobs.functions.scalars.literals import quoted, unquoted
from jobs.functions.scalars.time_patterns import FORMATS, ZONES, tokens, written
from jobs.functions.scalars.times_by_row import written_by_row

# Two days of one year: in places with summer time the clocks differ between them.
_WINTER, _SUMMER = dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.UTC)


def formatted(moment: str, pattern: str, zone: str = "", instant: str | None = None) -> str:
    """The text of a moment.

    Args:
        moment: a DATE, or a TIMESTAMP as the clocks of the zone show it.
        pattern: Java's, as DuckDB writes it.
        zone: a time zone's name, as DuckDB writes it.
        instant: the moment as a TIMESTAMPTZ, when there is a zone; None: it is in UTC.

    Raises:
        InvalidQuery: the pattern is a constant without meaning.
    """
    known = unquoted(pattern, "duckdb")
    if known is None:
        return written_by_row(moment, pattern)
    parts, plain = [], ""
    for letters, is_text in tokens(known):
        special = None if is_text else _special(letters, moment, zone, instant)
        if special is not None:
            parts += [_plain(moment, plain), special]
            plain = ""
        else:
            plain += "'" + letters.replace("'", "''") + "'" if is_text else letters
    return "(" + " || ".join(part for part in (*parts, _plain(moment, plain)) if part) + ")"


def _special(letters: str, moment: str, zone: str, instant: str | None) -> str | None:
    """The text of letters that `strftime` cannot write: zones other than UTC, any number of digits of a second."""
    if letters in ZONES and instant is not None:
        return _zone_text(letters, moment, zone, instant)
    if set(letters) == {"S"} and letters not in FORMATS:
        return f"substring(strftime({moment}, '%n'), 1, {len(letters)})"
    return None


def _plain(moment: str, pattern: str) -> str:
    return f"strftime({moment}, {quoted(written(pattern), 'duckdb')})" if pattern else ""


def _zone_text(letters: str, moment: str, zone: str, instant: str) -> str:
    """The text of a zone's letters: its name, or its distance from UTC."""
    distance = f"CAST((epoch_ms({moment}) - epoch_ms({instant})) // 60000 AS INTEGER)"
    if letters == "VV":
        return zone
    if letters.startswith("z"):
        return _name(distance, unquoted(zone, "duckdb"))
    hours, minutes = (f"lpad(CAST(abs({distance}) {part} 60 AS VARCHAR), 2, '0')" for part in ("//", "%"))
    sign = f"CASE WHEN {distance} < 0 THEN '-' ELSE '+' END"
    colon = "':' || " if letters in ("XXX", "xxx") else ""
    text = f"{sign} || {hours} || {colon}{minutes}"
    if letters in ("X", "x"):
        text = f"{sign} || {hours} || CASE WHEN {distance} % 60 = 0 THEN '' ELSE {minutes} END"
    return f"CASE WHEN {distance} = 0 THEN 'Z' ELSE {text} END" if letters.startswith("X") else f"({text})"


def _name(distance: str, zone: str | None) -> str:
    """PST or PDT, told apart by the distance; for a zone that is no constant, or that nobody knows, the distance."""
    names: dict[int, str] = {}
    if zone is not None:
        for day in (_WINTER, _SUMMER):
            local = day.astimezone(ZoneInfo(zone))
            offset = local.utcoffset()
            names[int(offset.total_seconds()) // 60 if offset else 0] = local.tzname() or zone
    branches = "".join(f" WHEN {minutes} THEN {quoted(name, 'duckdb')}" for minutes, name in names.items())
    return f"CASE {distance}{branches} ELSE CAST({distance} AS VARCHAR) END"
