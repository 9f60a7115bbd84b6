"""Java's patterns for dates and times (`yyyy-MM-dd''T''HH:mm`), translated to DuckDB's formats; and the zones of times.

Spark writes by them as they are. A pattern is a list of tokens: one letter repeated, quoted text, or anything else.

    yyyy-MM-dd'T'HH:mm   ->   %Y-%m-%dT%H:%M

A zone, whose clock is read against UTC, is a name of the database of time zones, or a distance: `+05:30`, `GMT-3`, `Z`.

DuckDB knows no distances. A constant zone is told apart here, one of a row in the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal
from zoneinfo import available_timezones

from strandline.jobs.functions.scalars.contract import quoted, unquoted
from strandline.jobs.model.errors import InvalidQuery

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


# DuckDB's format for each token; a token that is not here has none.
FORMATS = {
    **dict.fromkeys(("yyyy", "uuuu", "y", "u"), "%Y"),
    **dict.fromkeys(("yy", "uu"), "%y"),
    **{"MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "LL": "%m", "L": "%-m"},
    **{"dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j"},
    **dict.fromkeys(("E", "EE", "EEE"), "%a"),
    "EEEE": "%A",
    **{"HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "a": "%p"},
    **{"SSS": "%g", "SSSSSS": "%f"},
}
# In UTC.
ZONES = {
    **dict.fromkeys(("z", "zz", "zzz", "VV"), "UTC"),
    "zzzz": "Coordinated Universal Time",
    **dict.fromkeys(("X", "XX", "XXX"), "Z"),
    **dict.fromkeys(("Z", "ZZ", "ZZZ", "x", "xx"), "+0000"),
    "xxx": "+00:00",
}
_LETTERS = "GyuMLdDEahkKHmsSnNAVzOXxZQq"
# Java's patterns have optional parts in square brackets, which DuckDB's formats lack, and keep the others for later.
RESERVED = "[]{}#"
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^'A-Za-z]+", re.DOTALL)


def written(pattern: str) -> str:
    """The format of `strftime`.

    Raises:
        InvalidQuery: a part of the pattern has no meaning, or none that DuckDB can write.
    """
    return _translated(pattern, {**FORMATS, **ZONES})


def check(pattern: str) -> None:
    """Check that all of a pattern has a meaning.

    Raises:
        InvalidQuery: a letter has none, or a sign that is written in quotes only; or a quote is not closed.
    """
    for letters, is_quoted in tokens(pattern):
        sign = next((each for each in letters if each in RESERVED), None)
        if not is_quoted and sign is not None:
            raise InvalidQuery(f"'{sign}' in the pattern '{pattern}' is not supported", hint=f"as a text: '{sign}'")
        if not is_quoted and letters[0].isalpha() and letters[0] not in _LETTERS:
            raise InvalidQuery(f"'{letters}' in the pattern '{pattern}' means nothing", hint="yyyy MM dd HH mm ss SSS")


def for_spark(pattern: str) -> str:
    """The pattern without the letters that Spark refuses: `u` is its `y`; raises as `written`."""
    return "".join(
        ("'" + token.replace("'", "''") + "'" if token else "''") if is_quoted else token.replace("u", "y")
        for token, is_quoted in tokens(pattern)
    )


def _translated(pattern: str, words: dict[str, str]) -> str:
    made = []
    for token, is_quoted in tokens(pattern):
        if is_quoted or not token[0].isalpha():
            made.append(token.replace("%", "%%"))
        elif token in words:
            made.append(words[token])
        else:
            raise InvalidQuery(
                f"'{token}' in the pattern '{pattern}' cannot be written", hint="yyyy MM dd HH mm ss SSS"
            )
    return "".join(made)


def tokens(pattern: str) -> list[tuple[str, bool]]:
    """The tokens, each with True if it is quoted text; a doubled quote is a quote."""
    found, position = [], 0
    for match in _TOKEN.finditer(pattern):
        if match.start() != position:
            break
        position = match.end()
        text = match.group(1)
        found.append((match.group(), False) if text is None else (text.replace("''", "'") or "'", True))
    if position != len(pattern):
        raise InvalidQuery(f"a quote is not closed in the pattern '{pattern}'")
    return found


# Dates and times read by a constant pattern, the same on both engines: a pattern is one regular expression.
#
#     yyyy-MM-dd HH:mm z     ^([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}) (zone)\z
#
# Each of its groups is a part of the time; parts that the pattern lacks are those of 1970-01-01 00:00 UTC. A day that
# is not in the calendar, an hour 24 and a second 60 are none.

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_SHORT = 3
# What zones are called in texts, and their names in the database of time zones. One name stands for several: those of
# North America, where Java looks first.
_ZONES_OF: Mapping[str, str] = {
    **dict.fromkeys(("UTC", "GMT", "UT", "Z"), "UTC"),
    **{"PST": "America/Los_Angeles", "PDT": "America/Los_Angeles", "MST": "America/Denver", "MDT": "America/Denver"},
    **{"CST": "America/Chicago", "CDT": "America/Chicago", "EST": "America/New_York", "EDT": "America/New_York"},
    **{"CET": "Europe/Paris", "CEST": "Europe/Paris", "EET": "Europe/Helsinki", "EEST": "Europe/Helsinki"},
    **{"WET": "Europe/Lisbon", "WEST": "Europe/Lisbon", "BST": "Europe/London", "MSK": "Europe/Moscow"},
    **{"IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "KST": "Asia/Seoul", "SGT": "Asia/Singapore"},
    **{"AEST": "Australia/Sydney", "AEDT": "Australia/Sydney", "NZST": "Pacific/Auckland", "NZDT": "Pacific/Auckland"},
}
_OFFSET = "[+-][0-9]{2}(?::?[0-9]{2})?"
_WIDTHS = {"y": 4, "u": 4, "M": 2, "L": 2, "d": 2, "D": 3, "H": 2, "h": 2, "K": 2, "k": 2, "m": 2, "s": 2}
ZONED = {
    **{"X": "Z|[+-][0-9]{2}(?:[0-9]{2})?", "XX": "Z|[+-][0-9]{4}", "XXX": "Z|[+-][0-9]{2}:[0-9]{2}"},
    **{"XXXX": "Z|[+-][0-9]{4}", "XXXXX": "Z|[+-][0-9]{2}:[0-9]{2}", "ZZZZZ": "Z|[+-][0-9]{2}:[0-9]{2}"},
    **{"x": "[+-][0-9]{2}(?:[0-9]{2})?", "xx": "[+-][0-9]{4}", "xxx": "[+-][0-9]{2}:[0-9]{2}"},
    **dict.fromkeys(("Z", "ZZ", "ZZZ"), "[+-][0-9]{4}"),
    **dict.fromkeys(("z", "zz", "zzz", "VV"), f"{_OFFSET}|[A-Za-z][A-Za-z0-9_+/-]*"),
}
"""What each of the letters of a zone reads."""
ANY_ZONE = f"(?:{_OFFSET}|[A-Za-z][A-Za-z0-9_+/-]*)"


@dataclass(frozen=True)
class ParsedPattern:
    """A pattern, as a regular expression and the part that each of its groups is.

    Attributes:
        groups: the letter of each group, in order; of a name in letters, with a mark: `MMM`, `MMMM`.
    """

    expression: str
    groups: tuple[str, ...]

    @property
    def zoned(self) -> bool:
        """True if the text states its time zone."""
        return "z" in self.groups


def reading(pattern: str, *, all_of_it: bool = True, any_width: bool = False) -> ParsedPattern:
    """The reading of a pattern.

    Args:
        all_of_it: False: text may follow.
        any_width: `MM` also takes one digit, where no other number follows, and blanks may come first.

    Raises:
        InvalidQuery: a part of it means nothing, or cannot be read; or it has two parts of one kind.
    """
    found = list(tokens(pattern))
    made, groups = [], []
    for place, (token, is_text) in enumerate(found):
        if is_text or not token[0].isalpha():
            made.append(re.escape(token) if token.isascii() else token)
            continue
        following = found[place + 1][0][0] if place + 1 < len(found) and not found[place + 1][1] else ""
        beside = following in _WIDTHS or following == "S"
        text, group = _read(token, pattern, beside=beside, any_width=any_width and not beside)
        made.append(text)
        groups += [group] if group else []
    if len(set(groups)) != len(groups):
        raise InvalidQuery(f"the pattern '{pattern}' has two parts of one kind", hint="yyyy MM dd HH mm ss SSS")
    blanks = "[ \\t]*" if any_width else ""
    # No flag for case: what it means is not the same in both engines.
    return ParsedPattern(f"^{blanks}{''.join(made)}{_END if all_of_it else ''}", tuple(groups))


_END = "\\z"


def _read(letters: str, pattern: str, *, beside: bool, any_width: bool) -> tuple[str, str]:
    """The regular expression of a token, with a group, and the group's letter."""
    letter, length = letters[0], len(letters)
    if letters in ZONED:
        return f"({ZONED[letters]})", "z"
    if letters in ("MMM", "MMMM", "LLL", "LLLL"):
        names = [name if length > _SHORT else name[:_SHORT] for name in MONTHS]
        return f"({'|'.join(map(any_case, names))})", "MMM"
    if letter == "E" and length <= _SHORT + 1:
        names = [name if length > _SHORT else name[:_SHORT] for name in DAYS]
        return f"(?:{'|'.join(map(any_case, names))})", ""
    if letters == "a":
        return "([AaPp][Mm])", "a"
    if letter == "S" and length <= 9:
        return f"([0-9]{{{length}}})", "S"
    if letter == "G" and length <= _SHORT:
        return "[Aa][Dd]", ""
    if letter not in _WIDTHS or length > _WIDTHS[letter] or (letter in "yu" and length == 3) or letters == "DD":
        raise InvalidQuery(f"'{letters}' in the pattern '{pattern}' cannot be read", hint="yyyy MM dd HH mm ss SSS")
    letter = {"u": "y", "L": "M"}.get(letter, letter)
    if letters in ("yy", "uu"):
        return "([0-9]{2})", "yy"
    most = _WIDTHS[letter]
    digits = f"{{{length}}}" if (length > 1 or beside) and not any_width else f"{{1,{most}}}"
    return f"([0-9]{digits})", letter


def any_case(word: str) -> str:
    """The regular expression of a word in any case: a flag does not mean the same in both engines."""
    return "".join(f"[{letter.upper()}{letter.lower()}]" for letter in word)


def read(dialect: Dialect, text: str, found: ParsedPattern, zone: str | None) -> str:
    """The TIMESTAMP (of DuckDB: without zone, in UTC) that a text stands for; NULL when it does not fit.

    Args:
        zone: the name of the zone of a text that states none, as the engine writes it; None: UTC.
    """
    return _Parts(dialect, text, found).instant(zone)


def is_zone_name(zone: str) -> str:
    """The condition that a text is a name of the time zone database, as either engine writes it."""
    # One literal: a list of six hundred takes longer to plan than a query takes to run. No name has a blank in it.
    names = " ".join(sorted(available_timezones()))
    return f"(contains(' {names} ', concat(' ', {zone}, ' ')) AND NOT contains({zone}, ' ') AND {zone} <> '')"


def in_zone(dialect: Dialect, local: str, zone: str) -> str:
    """The TIMESTAMP in UTC at which the clocks of a zone show another; the zone is as a text states it."""
    offset = seconds_of(zone)
    branches = " ".join(f"WHEN '{short}' THEN '{name}'" for short, name in _ZONES_OF.items())
    named = f"CASE {zone} {branches}"
    name = f"{named} ELSE CASE WHEN {is_zone_name(zone)} THEN {zone} END END"
    if dialect == "spark":
        shifted = f"timestamp_micros(unix_micros({local}) - ({offset}) * 1000000L)"
    else:
        shifted = f"({local} - to_seconds({offset}))"
    by_name = local_to_utc(dialect, local, f"({name})")
    return f"CASE WHEN left({zone}, 1) IN ('+', '-') THEN {shifted} ELSE {by_name} END"


_NEVER_MISSING = {"a", "S", "z"}
"""The parts that are not read as a number, which would be NULL where the text does not fit."""


@dataclass(frozen=True)
class _Parts:
    dialect: Dialect
    text: str
    found: ParsedPattern

    def instant(self, zone: str | None) -> str:
        hour, minute, second = self._hour(), self._number("m", "0"), self._number("s", "0")
        clock = f"(({hour}) * 3600 + {minute} * 60 + {second})"
        valid = f"({hour}) BETWEEN 0 AND 23 AND {minute} < 60 AND {second} < 60"
        if "h" in self.found.groups:
            valid += f" AND {self._number('h', '1')} BETWEEN 1 AND 12"
        if set(self.found.groups) <= _NEVER_MISSING:
            matches = {"spark": "regexp_like", "duckdb": "regexp_matches"}[self.dialect]
            valid += f" AND {matches}({self.text}, {quoted(self.found.expression, self.dialect)})"
        local = self._sum(f"CASE WHEN {valid} THEN {self._day()} END", clock)
        if self.found.zoned:
            return in_zone(self.dialect, local, self._group("z"))
        return local if zone is None else local_to_utc(self.dialect, local, zone)

    def _day(self) -> str:
        year = f"({self._number('yy', '0')} + 2000)" if "yy" in self.found.groups else self._number("y", "1970")
        if "D" in self.found.groups:
            first = self._cast(f"{self._padded(year)} || '-01-01'", "DATE")
            number = self._number("D", "1")
            long = self._cast(f"{self._padded(year)} || '-02-29'", "DATE")
            most = f"CASE WHEN {long} IS NULL THEN 365 ELSE 366 END"
            return f"CASE WHEN {number} BETWEEN 1 AND {most} THEN {first} + {number} - 1 END"
        month = self._month()
        return self._cast(f"{self._padded(year)} || '-' || {month} || '-' || {self._number('d', '1')}", "DATE")

    def _padded(self, year: str) -> str:
        text = {"spark": "STRING", "duckdb": "VARCHAR"}[self.dialect]
        return f"CASE WHEN {year} BETWEEN 1 AND 9999 THEN lpad(CAST({year} AS {text}), 4, '0') END"

    def _month(self) -> str:
        if "MMM" not in self.found.groups:
            return self._number("M", "1")
        short = f"lower(substring({self._group('MMM')}, 1, 3))"
        branches = " ".join(f"WHEN '{name[:_SHORT].lower()}' THEN {number}" for number, name in enumerate(MONTHS, 1))
        return f"CASE {short} {branches} END"

    def _hour(self) -> str:
        if "h" in self.found.groups or "K" in self.found.groups:
            number = self._number("h" if "h" in self.found.groups else "K", "0")
            if "a" not in self.found.groups:
                return f"{number} % 12"
            return f"{number} % 12 + CASE WHEN upper({self._group('a')}) = 'PM' THEN 12 ELSE 0 END"
        if "k" in self.found.groups:
            number = self._number("k", "1")
            return f"CASE WHEN {number} = 24 THEN 0 WHEN {number} > 0 THEN {number} END"
        return self._number("H", "0")

    def _sum(self, day: str, seconds: str) -> str:
        fraction = f"rpad(substring({self._group('S')}, 1, 6), 6, '0')" if "S" in self.found.groups else "'0'"
        if self.dialect == "spark":
            micros = f"({seconds} * 1000000L + try_cast({fraction} AS BIGINT))"
            return f"timestamp_micros(CAST(unix_date({day}) AS BIGINT) * 86400000000L + {micros})"
        micros = f"(CAST({seconds} AS BIGINT) * 1000000 + TRY_CAST({fraction} AS BIGINT))"
        return f"(CAST({day} AS TIMESTAMP) + to_microseconds({micros}))"

    def _number(self, letter: str, missing: str) -> str:
        if letter not in self.found.groups:
            return missing
        return f"TRY_CAST({self._group(letter)} AS INT)"

    def _group(self, letter: str) -> str:
        """The text of a group; empty where the text does not fit."""
        place = self.found.groups.index(letter) + 1
        return f"regexp_extract({self.text}, {quoted(self.found.expression, self.dialect)}, {place})"

    def _cast(self, text: str, sql_type: str) -> str:
        return f"TRY_CAST({text} AS {sql_type})"
