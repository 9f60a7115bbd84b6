"""FORMAT_DATE, FORMAT_TIME and FORMAT_TIMESTAMP by a constant pattern.

The letters that both engines write alike are left to them (`strftime`, `date_format`); the others are pieces that both
compute from the same parts of the time, joined in their places:

    FORMAT_TIMESTAMP(at, 'HH:mm XXX', 'Europe/Paris')
    strftime(<at in Paris>, '%H:%M ') || <its distance from UTC>
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Literal
from zoneinfo import ZoneInfo

from strandline.jobs.functions.scalars.contract import quoted, unquoted
from strandline.jobs.functions.scalars.time_patterns import DAYS, FORMATS, MONTHS, ZONES, for_spark, tokens, written
from strandline.jobs.model.errors import InvalidQuery

Dialect = Literal["spark", "duckdb"]
# Two days of one year: in places with summer time the clocks differ between them.
_WINTER, _SUMMER = dt.datetime(2024, 1, 1, tzinfo=dt.UTC), dt.datetime(2024, 7, 1, tzinfo=dt.UTC)
_YEAR, _MONTH, _DAY, _OF_YEAR, _QUARTER, _HOUR = (
    *("year({0})", "month({0})", "day({0})", "dayofyear({0})", "quarter({0})", "hour({0})"),
)
_MICROS = {
    "spark": "pmod(unix_micros({0}), 86400000000)",
    "duckdb": "(((epoch_us({0}) % 86400000000) + 86400000000) % 86400000000)",
}
_WEEKDAY = {"spark": "(weekday({0}) + 1)", "duckdb": "isodow({0})"}
# {letters: the number, and with how many digits at least it is written}
_NUMBERS: Mapping[str, tuple[str, int]] = {
    **{
        "y": (_YEAR, 1),
        "u": (_YEAR, 1),
        "yyy": (_YEAR, 3),
        "uuu": (_YEAR, 3),
        "yyyyy": (_YEAR, 5),
        "uuuuu": (_YEAR, 5),
    },
    **{"DD": (_OF_YEAR, 2), "Q": (_QUARTER, 1), "QQ": (_QUARTER, 2), "q": (_QUARTER, 1), "qq": (_QUARTER, 2)},
    **{"QQQQQ": (_QUARTER, 1), "qqqqq": (_QUARTER, 1)},
    **{"K": (f"({_HOUR} % 12)", 1), "KK": (f"({_HOUR} % 12)", 2)},
    **{letters: (f"CASE WHEN {_HOUR} = 0 THEN 24 ELSE {_HOUR} END", len(letters)) for letters in ("k", "kk")},
}
# Of the day's microseconds: what Java counts in milliseconds and nanoseconds.
_OF_DAY = {"A": "({} / 1000)", "N": "({} * 1000)", "n": "({} % 1000000 * 1000)"}
_ERAS = {1: "AD", 2: "AD", 3: "AD", 4: "Anno Domini", 5: "A"}
_ORDINALS = ("1st quarter", "2nd quarter", "3rd quarter", "4th quarter")
_MOST_DIGITS = 9


def formatted(dialect: Dialect, moment: str, pattern: str, zone: str = "", instant: str | None = None) -> str:
    """The text of a moment.

    Args:
        moment: a DATE, or a TIMESTAMP as the clocks of the zone show it.
        pattern: Java's; no literal of an engine.
        zone: a time zone's name, as the engine writes it.
        instant: the moment in UTC, when there is a zone; None: it is in UTC.

    Raises:
        InvalidQuery: a part of the pattern means nothing, or cannot be written.
    """
    parts, plain = [], ""
    for letters, is_text in tokens(pattern):
        piece = None if is_text else _piece(dialect, letters, moment, zone, instant)
        if piece is not None:
            parts += [_plain(dialect, moment, plain), piece]
            plain = ""
        else:
            plain += "'" + letters.replace("'", "''") + "'" if is_text else letters
    joined = [part for part in (*parts, _plain(dialect, moment, plain)) if part]
    text = " || ".join(joined) if joined else "''"
    return f"CASE WHEN {moment} IS NOT NULL THEN {text} END" if len(joined) != 1 or parts else f"({text})"


def _piece(dialect: Dialect, letters: str, moment: str, zone: str, instant: str | None) -> str | None:
    """The text of letters that the engines do not write alike; None: they do."""
    letter, length = letters[0], len(letters)
    if letters in _NUMBERS:
        number, digits = _NUMBERS[letters]
        return _padded(dialect, number.format(moment), digits)
    if letter == "S" and length <= _MOST_DIGITS and letters not in FORMATS:
        fraction = _padded(dialect, f"({_MICROS[dialect].format(moment)} % 1000000)", 6)
        return f"substring({fraction} || '000', 1, {length})"
    if letter in _OF_DAY and length <= _MOST_DIGITS:
        counted = _OF_DAY[letter].format(_MICROS[dialect].format(moment))
        return _padded(dialect, counted.replace("/", {"spark": "div", "duckdb": "//"}[dialect]), length)
    if letter == "G" and length in _ERAS:
        return f"'{_ERAS[length]}'"
    if letters in ("QQQ", "qqq"):
        return f"'Q' || {_text(dialect, _QUARTER.format(moment))}"
    if letters in ("QQQQ", "qqqq"):
        return _among(_QUARTER.format(moment), _ORDINALS)
    if letters in ("LLL", "LLLL", "MMMMM", "LLLLL"):
        cut = {3: 3, 4: None, 5: 1}[length]
        return _among(_MONTH.format(moment), tuple(name[:cut] for name in MONTHS))
    if letters == "EEEEE":
        return _among(_WEEKDAY[dialect].format(moment), tuple(name[:1] for name in DAYS))
    return _zone_text(dialect, letters, moment, zone, instant) if _is_of_zone(letters) else None


def _is_of_zone(letters: str) -> bool:
    return letters in ZONES or letters in ("O", "OOOO", "XXXX", "XXXXX", "xxxx", "xxxxx", "ZZZZ", "ZZZZZ")


def _plain(dialect: Dialect, moment: str, pattern: str) -> str:
    if not pattern:
        return ""
    made = written(pattern)  # also for Spark: neither engine is asked for what DuckDB lacks
    if dialect == "spark":
        return f"date_format({moment}, {quoted(for_spark(pattern), dialect)})"
    return f"strftime({moment}, {quoted(made, dialect)})"


def _zone_text(dialect: Dialect, letters: str, moment: str, zone: str, instant: str | None) -> str:
    """The text of a zone's letters: its name, or its distance from UTC."""
    if letters == "VV":
        return zone if instant is not None else "'UTC'"
    if letters.startswith("z"):
        return _zone_name(dialect, letters, moment, zone, instant)
    distance = _distance(dialect, moment, instant)
    whole, rest = (f"abs({distance}) {divide} 60" for divide in ({"spark": "div", "duckdb": "//"}[dialect], "%"))
    hours, minutes = (_padded(dialect, f"({part})", 2) for part in (whole, rest))
    sign = f"CASE WHEN {distance} < 0 THEN '-' ELSE '+' END"
    if letters in ("O", "OOOO", "ZZZZ"):
        short = f"{_text(dialect, f'({whole})')} || CASE WHEN {rest} = 0 THEN '' ELSE ':' || {minutes} END"
        text = f"'GMT' || {sign} || " + (short if letters == "O" else f"{hours} || ':' || {minutes}")
        return f"CASE WHEN {distance} = 0 THEN 'GMT' ELSE {text} END"
    colon = "':' || " if letters in ("XXX", "XXXXX", "xxx", "xxxxx", "ZZZZZ") else ""
    text = f"{sign} || {hours} || {colon}{minutes}"
    if letters in ("X", "x"):
        text = f"{sign} || {hours} || CASE WHEN {rest} = 0 THEN '' ELSE {minutes} END"
    if letters.startswith("X") or letters == "ZZZZZ":
        return f"CASE WHEN {distance} = 0 THEN 'Z' ELSE {text} END"
    return f"({text})"


def _distance(dialect: Dialect, moment: str, instant: str | None) -> str:
    """How many minutes the clocks are ahead of UTC."""
    if instant is None:
        return "0"
    if dialect == "spark":
        return f"((unix_micros({moment}) - unix_micros({instant})) div 60000000)"
    return f"((epoch_us({moment}) - epoch_us({instant})) // 60000000)"


def _zone_name(dialect: Dialect, letters: str, moment: str, zone: str, instant: str | None) -> str:
    """PST or PDT, told apart by the distance; before time zones, and of no constant zone, what the standard time is."""
    if instant is None:
        return f"'{ZONES[letters]}'"
    known = unquoted(zone, dialect)
    if letters == "zzzz" or known is None:
        raise InvalidQuery(
            f"the pattern letters {letters} need another zone than {zone}" if known is None else "zzzz is of UTC alone",
            hint="VV is the zone's name, XXX its distance from UTC",
        )
    names: dict[int, str] = {}
    for day in (_SUMMER, _WINTER):
        local = day.astimezone(ZoneInfo(known))
        offset = local.utcoffset() or dt.timedelta()
        names[int(offset.total_seconds()) // 60] = local.tzname() or known
    distance = _distance(dialect, moment, instant)
    standard = min(names)
    other = "".join(
        f" WHEN {minutes} THEN {quoted(name, dialect)}" for minutes, name in names.items() if minutes != standard
    )
    if not other:
        return quoted(names[standard], dialect)
    return f"CASE {distance}{other} ELSE {quoted(names[standard], dialect)} END"


def _among(number: str, names: tuple[str, ...]) -> str:
    branches = " ".join(f"WHEN {place} THEN '{name}'" for place, name in enumerate(names, 1))
    return f"CASE {number} {branches} END"


def _padded(dialect: Dialect, number: str, digits: int) -> str:
    text = _text(dialect, number)
    return text if digits == 1 else f"lpad({text}, CAST(greatest({digits}, length({text})) AS INT), '0')"


def _text(dialect: Dialect, number: str) -> str:
    return f"CAST({number} AS {'STRING' if dialect == 'spark' else 'VARCHAR'})"
