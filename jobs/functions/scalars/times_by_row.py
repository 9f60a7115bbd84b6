"""Dates and times by patterns that are no constants, for DuckDB: each row's pattern is split in SQL.

For reading, each pattern becomes a regular expression, once for each part of the time: `HH:mm` is `([0-9]{2}):[0-9]{2}`
for the hour.
"""

from __future__ import annotations

from collections.abc import Iterable

from jobs.functions.scalars.literals import quoted
from jobs.functions.scalars.time_patterns import FORMATS, RESERVED, ZONES
from jobs.functions.scalars.time_reading import ANY_ZONE, DAYS, MONTHS, ZONED, in_zone
from jobs.functions.scalars.time_zones import local_to_utc


def _any_of(names: Iterable[str]) -> str:
    return f"(?i:{'|'.join(names)})"


_TOKENS = "''(?:[^'']|'''')*''|" + "|".join(f"{letter}+" for letter in "yuMLdDEHhmsSazXxZV") + "|[A-Za-z]|[^''A-Za-z]+"
_TEXT = (
    "CASE WHEN __x = '''''' THEN ''''"
    " WHEN starts_with(__x, '''') THEN replace(substring(__x, 2, length(__x) - 2), '''''', '''')"
    " WHEN regexp_full_match(__x, '[A-Za-z]+') THEN chr(0)"  # nothing that a text would have: no text fits
    " ELSE __x END"
)
_NUMBERS = "yy|yyyy|uuuu|y|u|MM?|LL?|dd?|HH?|hh?|mm?|ss?|S+"
# The same in a pattern, as what a text has there: names in any case, a zone in any of its forms.
_NAMES = {
    "'MMM', 'LLL'": _any_of(name[:3] for name in MONTHS),
    "'MMMM', 'LLLL'": _any_of(MONTHS),
    "'E', 'EE', 'EEE'": _any_of(name[:3] for name in DAYS),
    "'EEEE'": _any_of(DAYS),
    "'a'": "[AaPp][Mm]",
    ", ".join(f"'{letters}'" for letters in ZONED): ANY_ZONE,
}
_READS = (
    "CASE "
    + " ".join(f"WHEN __x IN ({letters}) THEN {quoted(text, 'duckdb')}" for letters, text in _NAMES.items())
    + f" WHEN regexp_full_match(__x, '{_NUMBERS}')"
    " THEN CASE WHEN length(__x) = 1 THEN '[0-9]+' ELSE '[0-9]{' || length(__x) || '}' END"
    f" ELSE regexp_escape({_TEXT}) END"
)
"""The regular expression of a token."""
_PARTS = {
    **{"year": "[yu]+", "month": "MM?|LL?", "named": "MMMM?|LLLL?", "day": "d+", "half": "a", "of_half": "h+"},
    **{"hour": "H+", "minute": "m+", "second": "s+", "fraction": "S+", "zone": "|".join(ZONED)},
}
"""The parts of a time, and the letters of each."""


def written_by_row(moment: str, pattern: str) -> str:
    """The text of a DATE, or of a TIMESTAMP in UTC."""
    constants = {letters: quoted(text, "duckdb") for letters, text in ZONES.items()}
    words = {letters: f"strftime(__m, {quoted(word, 'duckdb')})" for letters, word in FORMATS.items()} | constants
    branches = " ".join(f"WHEN '{letters}' THEN {text}" for letters, text in words.items())
    each = f"CASE __x {branches} ELSE {_TEXT} END"
    written = f"array_to_string(list_transform({_tokens(pattern)}, lambda __x: {each}), '')"
    return f"list_transform([{moment}], lambda __m: CASE WHEN __m IS NOT NULL THEN {written} END)[1]"


def read_by_row(text: str, pattern: str, zone: str | None = None) -> str:
    """The TIMESTAMP in UTC that a text stands for; NULL when it does not match the pattern.

    Each step is made once, and bound to a variable: the tokens of the pattern with the regular expression of each, the
    parts of the text, what the clocks show.

    Args:
        zone: the name of the zone of a text that states none; None: UTC.
    """
    tokens = f"list_transform({_tokens(pattern)}, lambda __x: struct_pack(letters := __x, reads := {_READS}))"
    joined = "array_to_string(list_transform(__p.tokens, lambda __x: __x.reads), '')"
    parts = ", ".join(f"{name} := {_part(letters)}" for name, letters in _PARTS.items())
    fitting = f"CASE WHEN regexp_full_match(__p.given, {joined}) THEN struct_pack({parts}) END"
    unstated = "__u.at" if zone is None else local_to_utc("duckdb", "__u.at", zone)
    stated = in_zone("duckdb", "__u.at", "__u.zone")
    steps = (
        ("__p", fitting),
        ("__t", f"CASE WHEN __t IS NOT NULL THEN struct_pack(at := {_local('__t')}, zone := __t.zone) END"),
        ("__u", f"CASE WHEN __u.zone IS NULL THEN {unstated} ELSE {stated} END"),
    )
    made = f"[struct_pack(given := {text}, tokens := {tokens})]"
    for variable, step in steps:
        made = f"list_transform({made}, lambda {variable}: {step})"
    return f"{made}[1]"


def _local(parts: str) -> str:
    """What the clocks show, of the texts of the parts of a time."""

    def number(name: str, missing: str) -> str:
        return f"coalesce(TRY_CAST({parts}.{name} AS BIGINT), {missing})"

    year = f"CASE WHEN {number('year', '1970')} < 100 THEN 2000 ELSE 0 END + {number('year', '1970')}"
    names = ", ".join(f"'{month[:3].lower()}'" for month in MONTHS)
    month = f"coalesce(list_position([{names}], lower(left({parts}.named, 3))), {number('month', '1')})"
    afternoon = f"CASE WHEN upper({parts}.half) = 'PM' THEN 12 ELSE 0 END"
    hour = f"coalesce(TRY_CAST({parts}.of_half AS BIGINT) % 12 + {afternoon}, {number('hour', '0')})"
    # As text, since TRY_CAST gives NULL for the 31st of February, and TRY does not go with error().
    day = f"(({year}) || '-' || {month} || '-' || {number('day', '1')})"
    clock = f"(({hour}) || ':' || {number('minute', '0')} || ':' || {number('second', '0')}"
    return f"TRY_CAST({day} || ' ' || {clock} || '.' || coalesce({parts}.fraction, '0')) AS TIMESTAMP)"


def _part(letters: str) -> str:
    """The part of the text `__p.given` at those letters; NULL when the pattern `__p.tokens` has none of them."""
    grouped = f"CASE WHEN regexp_full_match(__x.letters, '{letters}') THEN '(' || __x.reads || ')' ELSE __x.reads END"
    expression = f"array_to_string(list_transform(__p.tokens, lambda __x: {grouped}), '')"
    return f"nullif(regexp_extract(__p.given, '^' || {expression} || '$', 1), '')"


def _tokens(pattern: str) -> str:
    return f"regexp_extract_all({pattern}, '{_TOKENS}')"


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
