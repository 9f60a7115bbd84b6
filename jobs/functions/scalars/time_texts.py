"""The texts of dates and times that CAST reads, the same on both engines.

    DATE         2024-01-31   2024-01   2024   2024-01-31 13:45, of which the time is cut off
    TIME         13:45   13:45:00   13:45:00.500
    TIMESTAMP    as DATE, then T or a blank, a time, and perhaps a zone: Z, +05:30, +0530, +05

Spaces around the text do not count. Anything else is none, so are hour 24 and second 60. The engines' own casts take
more, each other things: they are given texts that are complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.functions.scalars.contract import Scalar, Written, takes
from strandline.jobs.functions.scalars.literals import quoted
from strandline.jobs.model import types as t

_HOUR, _SIXTY, _FRACTION = "([01]?[0-9]|2[0-3])", "([0-5]?[0-9])", r"(?:\.([0-9]{1,9}))"
_CLOCK = f"{_HOUR}:{_SIXTY}(?::{_SIXTY}{_FRACTION}?)?"
# Of an instant minutes may be missing too.
_LATER = f"{_HOUR}(?::{_SIXTY}(?::{_SIXTY}{_FRACTION}?)?)?"
_ZONE = "(Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_DAY = "([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_INSTANT = rf"^{_DAY}(?:[T ](?:{_LATER}{_ZONE}?)?)?)?)?\z"
_DATE = rf"^{_DAY}(?:[T ](?:{_LATER})?)?)?)?\z"
_TIME = rf"^{_CLOCK}\z"
# The groups of the expressions.
_YEAR, _MONTH, _OF_MONTH, _AT = 1, 2, 3, 4
_WORDS = takes(t.VARCHAR, t.VARCHAR)
_NONE = "'?'"
"""No date or time to either engine."""


def _group(dialect: str, text: str, expression: str, place: int, missing: str = "''") -> str:
    found = f"regexp_extract({text}, {quoted(expression, dialect)}, {place})"
    return found if missing == "''" else f"coalesce(nullif({found}, ''), {missing})"


def _matches(dialect: str, text: str, expression: str) -> str:
    function = {"spark": "regexp_like", "duckdb": "regexp_matches"}[dialect]
    return f"{function}({text}, {quoted(expression, dialect)})"


def _day(dialect: str, text: str, expression: str) -> str:
    year, month, day = (
        _group(dialect, text, expression, place, missing)
        for place, missing in ((_YEAR, "''"), (_MONTH, "'01'"), (_OF_MONTH, "'01'"))
    )
    return f"{year} || '-' || lpad({month}, 2, '0') || '-' || lpad({day}, 2, '0')"


def _clock(dialect: str, text: str, expression: str, first: int) -> list[str]:
    """Hour, minute and second of two digits each, and a fraction of six."""
    parts = [_group(dialect, text, expression, first + place, "'00'") for place in range(3)]
    fraction = _group(dialect, text, expression, first + 3)
    return [*(f"lpad({part}, 2, '0')" for part in parts), f"rpad(substring({fraction}, 1, 6), 6, '0')"]


def _where(dialect: str, text: str, expression: str, made: str, otherwise: str) -> str:
    is_one = f"{_matches(dialect, text, expression)} AND left({text}, 4) <> '0000'"
    return f"CASE WHEN {is_one} THEN {made} WHEN {text} IS NOT NULL THEN {otherwise} END"


def _trimmed(arguments: Sequence[str]) -> str:
    (text,) = arguments
    return f"trim({text})"


def _date_text(dialect: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        text = _trimmed(arguments)
        return _where(dialect, text, _DATE, _day(dialect, text, _DATE), _NONE)

    return write


def _instant_text(dialect: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        text = _trimmed(arguments)
        hour, minute, second, fraction = _clock(dialect, text, _INSTANT, _AT)
        written = _group(dialect, text, _INSTANT, _AT + 4, "'+00'")
        zone = f"rpad(replace({written}, ':', ''), 5, '0')"
        distance = f"CASE WHEN left({zone}, 1) = 'Z' THEN '+00:00' ELSE left({zone}, 3) || ':' || right({zone}, 2) END"
        at = f"{hour} || ':' || {minute} || ':' || {second} || '.' || {fraction} || {distance}"
        return _where(dialect, text, _INSTANT, f"{_day(dialect, text, _INSTANT)} || ' ' || {at}", _NONE)

    return write


def _text_time(dialect: str) -> Written:
    """Milliseconds of the day; more digits are cut off."""

    def write(arguments: Sequence[str]) -> str:
        text = _trimmed(arguments)
        hour, minute, second, fraction = (f"TRY_CAST({part} AS INT)" for part in _clock(dialect, text, _TIME, 1))
        divide = {"spark": "div", "duckdb": "//"}[dialect]
        millis = f"(({hour} * 60 + {minute}) * 60 + {second}) * 1000 + {fraction} {divide} 1000"
        return f"CASE WHEN {_matches(dialect, text, _TIME)} THEN CAST({millis} AS INT) END"

    return write


TIME_TEXTS = (
    Scalar("DATE_TEXT", _WORDS, _date_text("spark"), _date_text("duckdb"), hidden=True),
    Scalar("INSTANT_TEXT", _WORDS, _instant_text("spark"), _instant_text("duckdb"), hidden=True),
    Scalar("TEXT_TIME", takes(t.TIME, t.VARCHAR), _text_time("spark"), _text_time("duckdb"), hidden=True),
)
