"""Functions over DATE, TIME and TIMESTAMP: arithmetic, formatting, parsing, and time zones.

TIME is milliseconds of the day. A text that does not fit its pattern gives NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from strandline.jobs.engines.engine import NO_DATE
from strandline.jobs.functions.scalars import domains, time_patterns
from strandline.jobs.functions.scalars.contract import Scalar, Written, quoted, takes, takes_no_clock, unquoted
from strandline.jobs.functions.scalars.time_patterns import (
    IS_OFFSET,
    Dialect,
    as_instant,
    check,
    distance_of,
    local_to_utc,
    since_last,
    utc_to_local,
)
from strandline.jobs.functions.scalars.time_texts import formatted, is_pattern, read_by_row, written_by_row
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.row_faults import RowFault

_DAY = 86_400_000
_SPARK_TIME = "timestamp_millis(CAST({0} AS BIGINT))"
_DUCKDB_TIME = "make_timestamp(CAST({0} AS BIGINT) * 1000)"
_DUCKDB_UTC = "timezone('UTC', {0})"


def _formatted(dialect: Dialect, value: str) -> Written:
    nothing = {"spark": "CAST(NULL AS STRING)", "duckdb": "CAST(NULL AS VARCHAR)"}[dialect]

    def write(arguments: Sequence[str]) -> str:
        pattern = unquoted(arguments[1], dialect)
        instant = value.format(arguments[0])
        if len(arguments) < 3:
            if pattern is None:
                return written_by_row(dialect, instant, arguments[1])
            return formatted(dialect, instant, pattern)
        zone = unquoted(arguments[2], dialect)
        if zone is not None and not _is_zone(zone):
            return nothing
        spark = f"from_utc_timestamp({instant}, {arguments[2]})"
        local = spark if dialect == "spark" else utc_to_local(instant, arguments[2])
        if pattern is None:
            return written_by_row(dialect, local, arguments[1])
        return formatted(dialect, local, pattern, arguments[2], instant)

    return write


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return distance_of(name) is not None or name in _OLD_ZONES
    return True


_OLD_ZONES = ("PST", "CST")
"""Names that both engines know and the time zone database does not; those of summer time neither knows."""


def _parsed(dialect: Dialect, finish: str, *, of_date: bool = False) -> Written:
    def write(arguments: Sequence[str]) -> str:
        pattern = unquoted(arguments[1], dialect)
        zone = arguments[2] if len(arguments) > 2 else None
        if pattern is None:
            return finish.format(read_by_row(dialect, arguments[0], arguments[1], zone))
        found = time_patterns.reading(pattern, all_of_it=not of_date, any_width=of_date)
        known = zone is None or unquoted(zone, dialect) is None or _is_zone(unquoted(zone, dialect) or "")
        instant = time_patterns.read(dialect, arguments[0], found, zone if known else None)
        return finish.format(instant if known else "CAST(NULL AS TIMESTAMP)")

    return write


def _check_written(literals: Sequence[str | None]) -> None:
    pattern, zone = literals[1], literals[2] if len(literals) > 2 else "UTC"
    if pattern is not None:
        check(pattern)
        formatted(
            "duckdb", "t", pattern, "z" if zone is None else quoted(zone, "duckdb"), "t" if literals[2:] else None
        )


def _check_read(literals: Sequence[str | None]) -> None:
    if literals[1] is not None:
        check(literals[1])
        time_patterns.reading(literals[1])


def _among_zones(dialect: Dialect, zone: str) -> str:
    """By the names: DuckDB's TRY does not catch the error about one that it does not know."""
    return f"({time_patterns.is_zone_name(zone)} OR {zone} IS NULL OR {IS_OFFSET[dialect].format(zone)})"


def _check_zones(literals: Sequence[str | None]) -> None:
    for name in literals[1:]:
        if name is not None and not _is_zone(name):
            raise InvalidQuery(f"'{name}' is no time zone", hint="a name as 'Europe/Paris', or a distance as '+02:00'")


_FORMAT = (t.VARCHAR, t.VARCHAR)


TIMES = (
    Scalar(
        "FORMAT_DATE",
        takes(t.VARCHAR, t.DATE, t.VARCHAR),
        _formatted("spark", "{0}"),
        _formatted("duckdb", "{0}"),
        check=_check_written,
        fails=domains.no_pattern_of_time(1),
        fault=RowFault.BAD_ARGUMENT,
    ),
    Scalar(
        "FORMAT_TIME",
        takes(t.VARCHAR, t.TIME, t.VARCHAR),
        _formatted("spark", _SPARK_TIME),
        _formatted("duckdb", _DUCKDB_TIME),
        check=_check_written,
        fails=domains.no_pattern_of_time(1),
        fault=RowFault.BAD_ARGUMENT,
    ),
    Scalar(
        "FORMAT_TIMESTAMP",
        takes(t.VARCHAR, t.TIMESTAMP, *_FORMAT, optional=1),
        _formatted("spark", "{0}"),
        _formatted("duckdb", _DUCKDB_UTC),
        check=_check_written,
        fails=domains.no_pattern_of_time(1, zone=2),
        fault=RowFault.BAD_ARGUMENT,
    ),
    Scalar(
        "PARSE_DATE",
        takes(t.DATE, *_FORMAT),
        _parsed("spark", "CAST({0} AS DATE)", of_date=True),
        _parsed("duckdb", "CAST({0} AS DATE)", of_date=True),
        check=_check_read,
        fails=domains.no_pattern_of_time(1),
        fault=RowFault.BAD_ARGUMENT,
    ),
    Scalar(
        "PARSE_TIME",
        takes(t.TIME, *_FORMAT),
        _parsed("spark", f"CAST(pmod(unix_millis({{0}}), {_DAY}) AS INT)"),
        _parsed("duckdb", f"CAST({since_last(_DAY, '{0}')} AS INTEGER)"),
        check=_check_read,
        fails=domains.no_pattern_of_time(1),
        fault=RowFault.BAD_ARGUMENT,
    ),
    Scalar(
        "PARSE_TIMESTAMP",
        takes(t.TIMESTAMP, *_FORMAT, t.VARCHAR, optional=1),
        _parsed("spark", "{0}"),
        _parsed("duckdb", _DUCKDB_UTC),
        check=_check_read,
        fails=domains.no_pattern_of_time(1, zone=2),
        fault=RowFault.BAD_ARGUMENT,
    ),
    Scalar(
        "IS_ZONE",
        takes(t.BOOLEAN, t.VARCHAR),
        lambda arguments: _among_zones("spark", arguments[0]),
        lambda arguments: _among_zones("duckdb", arguments[0]),
        hidden=True,
    ),
    Scalar(
        "IS_TIME_PATTERN",
        takes(t.BOOLEAN, t.VARCHAR),
        lambda arguments: is_pattern("spark", arguments[0]),
        lambda arguments: is_pattern("duckdb", arguments[0]),
        hidden=True,
    ),
    Scalar(
        "CONVERT_TZ",
        takes(t.TIMESTAMP, t.TIMESTAMP, t.VARCHAR, t.VARCHAR),
        "from_utc_timestamp(to_utc_timestamp({0}, {1}), {2})",
        lambda arguments: as_instant(
            utc_to_local(local_to_utc("duckdb", f"timezone('UTC', {arguments[0]})", arguments[1]), arguments[2])
        ),
        check=_check_zones,
        fails=domains.no_zone(1, 2),
        fault=RowFault.BAD_ARGUMENT,
    ),
)


# The parts of a TIMESTAMP (in UTC) and of a TIME as whole numbers: PART_OF_DATE('YEAR', at), which EXTRACT becomes.
#
# And where a unit of time began: BEGIN_OF_UNIT('HOUR', at), which DATE_TRUNC becomes.

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
    "MICROSECOND": ("pmod(unix_micros({0}), 60000000)", "((epoch_us({0}) % 60000000 + 60000000) % 60000000)"),
    "ISOYEAR": ("extract(YEAROFWEEK FROM {0})", "isoyear({0})"),
    "DECADE": ("(year({0}) div 10)", "(year({0}) // 10)"),
    "CENTURY": ("((year({0}) + 99) div 100)", "((year({0}) + 99) // 100)"),
    "MILLENNIUM": ("((year({0}) + 999) div 1000)", "((year({0}) + 999) // 1000)"),
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
    Scalar("EPOCH_US", takes(t.BIGINT, t.TIMESTAMP), "unix_micros", "epoch_us"),
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
        "BEGIN_OF_BIN",
        takes(t.TIMESTAMP, t.TIMESTAMP, t.BIGINT, t.BIGINT),
        "timestamp_micros(unix_micros({0}) - pmod(unix_micros({0}) - {2}, {1}))",
        "make_timestamptz(epoch_us({0}) - ((epoch_us({0}) - {2}) % {1} + {1}) % {1})",
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


# Sums of dates and times with lengths, and days as numbers.
#
# The functions with units (DATEADD, …) and INTERVAL become these: the length in milliseconds, days or months. TIME is
# milliseconds of the day, and goes round.

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
        fault=RowFault.TIME_OUT_OF_RANGE,
    ),
    Scalar(
        "ADD_MONTHS",
        takes(t.TIMESTAMP, t.TIMESTAMP, t.INT),
        "({0} + make_ym_interval(0, {1}))",
        "({0} + to_months({1}))",
        hidden=True,
        fails=domains.no_later_month,
        fault=RowFault.TIME_OUT_OF_RANGE,
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
        fault=RowFault.TIME_OUT_OF_RANGE,
    ),
    Scalar(
        "FROM_DAYS",
        takes(t.DATE, t.INT),
        _day_spark("{0}", "date_from_unix_date({0})"),
        _day_duckdb("{0}", "(DATE '1970-01-01' + {0})"),
        fails=domains.no_day,
        fault=RowFault.TIME_OUT_OF_RANGE,
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
    Scalar("UNIX_MICROS", takes(t.BIGINT, t.TIMESTAMP), "unix_micros({0})", "epoch_us({0})"),
    Scalar("UNIX_DATE", takes_no_clock(t.INT, t.DATE), "unix_date({0})", "CAST({0} - DATE '1970-01-01' AS INTEGER)"),
)


# The texts of dates and times that CAST reads, the same on both engines.
#
#     DATE         2024-01-31   2024-01   2024   2024-01-31 13:45, of which the time is cut off
#     TIME         13:45   13:45:00   13:45:00.500
#     TIMESTAMP    as DATE, then T or a blank, a time, and perhaps a zone: Z, +05:30, +0530, +05
#
# Spaces around the text do not count. Anything else is none, so are hour 24 and second 60. The engines' own casts
# take more, each other things: they are given texts that are complete.

_HOUR, _SIXTY, _FRACTION = "([01]?[0-9]|2[0-3])", "([0-5]?[0-9])", r"(?:\.([0-9]{1,9}))"
_CLOCK = f"{_HOUR}:{_SIXTY}(?::{_SIXTY}{_FRACTION}?)?"
# Of an instant minutes may be missing too.
_LATER = f"{_HOUR}(?::{_SIXTY}(?::{_SIXTY}{_FRACTION}?)?)?"
_ZONE = "(Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_DAY_TEXT = "([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
_INSTANT = rf"^{_DAY_TEXT}(?:[T ](?:{_LATER}{_ZONE}?)?)?)?)?\z"
_DATE = rf"^{_DAY_TEXT}(?:[T ](?:{_LATER})?)?)?)?\z"
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


def _day_of_text(dialect: str, text: str, expression: str) -> str:
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
        return _where(dialect, text, _DATE, _day_of_text(dialect, text, _DATE), _NONE)

    return write


def _instant_text(dialect: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        text = _trimmed(arguments)
        hour, minute, second, fraction = _clock(dialect, text, _INSTANT, _AT)
        written = _group(dialect, text, _INSTANT, _AT + 4, "'+00'")
        zone = f"rpad(replace({written}, ':', ''), 5, '0')"
        distance = f"CASE WHEN left({zone}, 1) = 'Z' THEN '+00:00' ELSE left({zone}, 3) || ':' || right({zone}, 2) END"
        at = f"{hour} || ':' || {minute} || ':' || {second} || '.' || {fraction} || {distance}"
        return _where(dialect, text, _INSTANT, f"{_day_of_text(dialect, text, _INSTANT)} || ' ' || {at}", _NONE)

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
