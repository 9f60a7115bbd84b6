"""Dates and times by patterns that are no constants, for DuckDB: each row's pattern is split in SQL.

For reading, each pattern becomes a regular expression, once for each part of the time: `HH:mm` is `([0-9]{2}):[0-9]{2}`
for the hour. Names of months and days, and zones, are not read this way.
"""

from __future__ import annotations

from jobs.functions.scalars.literals import quoted
from jobs.functions.scalars.time_patterns import FORMATS, RESERVED, ZONES

_TOKENS = "''(?:[^'']|'''')*''|" + "|".join(f"{letter}+" for letter in "yuMLdDEHhmsSazXxZV") + "|[A-Za-z]|[^''A-Za-z]+"
_TEXT = (
    "CASE WHEN __x = '''''' THEN ''''"
    " WHEN starts_with(__x, '''') THEN replace(substring(__x, 2, length(__x) - 2), '''''', '''')"
    " WHEN regexp_full_match(__x, '[A-Za-z]+') THEN chr(0)"  # nothing that a text would have: no text fits
    " ELSE __x END"
)
_NUMBERS = "yy|yyyy|uuuu|y|u|MM?|LL?|dd?|HH?|hh?|mm?|ss?|S+"


def written_by_row(moment: str, pattern: str) -> str:
    """The text of a DATE, or of a TIMESTAMP in UTC."""
    constants = {letters: quoted(text, "duckdb") for letters, text in ZONES.items()}
    words = {letters: f"strftime({moment}, {quoted(word, 'duckdb')})" for letters, word in FORMATS.items()} | constants
    branches = " ".join(f"WHEN '{letters}' THEN {text}" for letters, text in words.items())
    each = f"CASE __x {branches} ELSE {_TEXT} END"
    return f"CASE WHEN {moment} IS NOT NULL THEN {_joined(pattern, each)} END"


def read_by_row(text: str, pattern: str) -> str:
    """The TIMESTAMP that a text stands for; NULL when it does not match the pattern."""

    def number(letters: str, missing: str) -> str:
        return f"coalesce(CAST({_part(text, pattern, letters)} AS BIGINT), {missing})"

    year = f"CASE WHEN {number('[yu]+', '1970')} < 100 THEN 2000 ELSE 0 END + {number('[yu]+', '1970')}"
    afternoon = f"CASE WHEN upper({_part(text, pattern, 'a')}) = 'PM' THEN 12 ELSE 0 END"
    hour = f"coalesce(CAST({_part(text, pattern, 'h+')} AS BIGINT) % 12 + {afternoon}, {number('H+', '0')})"
    fraction = f"coalesce({_part(text, pattern, 'S+')}, '0')"
    # As text, since TRY_CAST gives NULL for the 31st of February, and TRY does not go with error().
    day = f"(({year}) || '-' || {number('[ML]+', '1')} || '-' || {number('d+', '1')})"
    clock = f"(({hour}) || ':' || {number('m+', '0')} || ':' || {number('s+', '0')} || '.' || {fraction})"
    made = f"TRY_CAST({day} || ' ' || {clock} AS TIMESTAMP)"
    return f"CASE WHEN regexp_full_match({text}, {_expression(pattern, '')}) THEN {made} END"


def _part(text: str, pattern: str, letters: str) -> str:
    """The part of the text at those letters; NULL when the pattern has none of them."""
    return f"nullif(regexp_extract({text}, '^' || {_expression(pattern, letters)} || '$', 1), '')"


def _expression(pattern: str, captured: str) -> str:
    """The regular expression of a pattern, with a group around the `captured` letters."""
    digits = "CASE WHEN length(__x) = 1 THEN '[0-9]+' ELSE '[0-9]{' || length(__x) || '}' END"
    plain = (
        f"CASE WHEN __x = 'a' THEN '[AaPp][Mm]' WHEN regexp_full_match(__x, '{_NUMBERS}') THEN {digits}"
        f" ELSE regexp_escape({_TEXT}) END"
    )
    opening, closing = (f"CASE WHEN regexp_full_match(__x, '{captured}') THEN '{sign}' ELSE '' END" for sign in "()")
    return _joined(pattern, f"{opening} || {plain} || {closing}" if captured else plain)


def _joined(pattern: str, each: str) -> str:
    return f"array_to_string(list_transform(regexp_extract_all({pattern}, '{_TOKENS}'), lambda __x: {each}), '')"


def is_pattern_duckdb(pattern: str) -> str:
    """The condition that all of a pattern has a meaning here; TRUE for NULL."""
    tokens = f"regexp_extract_all({pattern}, '{_TOKENS}')"
    unknown = f"list_filter({tokens}, lambda __x: {_is_unknown('regexp_full_match')})"
    return f"(({pattern}) IS NULL OR (len({unknown}) = 0 AND array_to_string({tokens}, '') = {pattern}))"


def is_pattern_spark(pattern: str) -> str:
    """The same for Spark, whose own patterns know more letters: a row has one fate on both engines."""
    known = _TOKENS.replace("''", "\\'")
    tokens = f"regexp_extract_all({pattern}, '{known}', 0)"
    unknown = f"filter({tokens}, __x -> {_is_unknown('regexp_like', '^', '$')})"
    return f"(({pattern}) IS NULL OR (size({unknown}) = 0 AND array_join({tokens}, '') = {pattern}))"


def _is_unknown(matches: str, start: str = "", end: str = "") -> str:
    """The condition that a token has no meaning: letters, or a sign that Java's patterns keep for themselves."""
    known = ", ".join(f"'{letters}'" for letters in (*FORMATS, *ZONES, "S", "SS"))
    reserved = f"left(__x, 1) <> chr(39) AND translate(__x, '{RESERVED}', '') <> __x"
    return f"({matches}(__x, '{start}[A-Za-z]+{end}') AND __x NOT IN ({known})) OR ({reserved})"
