"""Functions over DATE, TIME and TIMESTAMP: arithmetic, formatting, parsing, and time zones.

TIME is milliseconds of the day. A text that does not fit its pattern gives NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zoneinfo import ZoneInfo, available_timezones

from jobs.functions.scalars import domains
from jobs.functions.scalars.contract import Scalar, Written, takes
from jobs.functions.scalars.literals import quoted, unquoted
from jobs.functions.scalars.milliseconds import since_last
from jobs.functions.scalars.time_patterns import check, for_spark, has_zone, length_of, read
from jobs.functions.scalars.times_by_row import is_pattern_duckdb, is_pattern_spark, read_by_row
from jobs.functions.scalars.times_duckdb import formatted
from jobs.model import types as t
from jobs.model.errors import InvalidQuery

_DAY = 86_400_000
_SPARK_TIME = "timestamp_millis(CAST({0} AS BIGINT))"
_DUCKDB_TIME = "make_timestamp(CAST({0} AS BIGINT) * 1000)"
_DUCKDB_UTC = "timezone('UTC', {0})"


def _formatted_spark(value: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        known = unquoted(arguments[1], "spark")
        pattern = arguments[1] if known is None else quoted(for_spark(known), "spark")
        instant = value.format(arguments[0])
        if len(arguments) < 3:
            return f"date_format({instant}, {pattern})"
        zone = unquoted(arguments[2], "spark")
        if zone is not None and not _is_zone(zone):
            return "CAST(NULL AS STRING)"
        if zone is None or known is None or not has_zone(known):
            return f"date_format(from_utc_timestamp({instant}, {arguments[2]}), {pattern})"
        # Only JSON is written in another zone than the session's.
        options = f"map('timestampFormat', {pattern}, 'timeZone', {arguments[2]})"
        return f"get_json_object(to_json(named_struct('t', {instant}), {options}), '$.t')"

    return write


def _formatted_duckdb(value: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        if len(arguments) < 3:
            return formatted(value.format(arguments[0]), arguments[1])
        zone = unquoted(arguments[2], "duckdb")
        if zone is not None and not _is_zone(zone):
            return "CAST(NULL AS VARCHAR)"
        return formatted(f"timezone({arguments[2]}, {arguments[0]})", arguments[1], arguments[2], arguments[0])

    return write


def _first_of(template: Written, dialect: str) -> Written:
    """The template of PARSE_DATE, which reads as much text as the pattern needs and ignores the rest."""

    def write(arguments: Sequence[str]) -> str:
        known = unquoted(arguments[1], dialect)
        length = None if known is None else length_of(known)
        text = arguments[0] if length is None else f"substring({arguments[0]}, 1, {length})"
        return template([text, *arguments[1:]])

    return write


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        return name.upper().startswith(("GMT", "UTC", "+", "-")) or name in _OLD_ZONES
    return True


_OLD_ZONES = ("PST", "PDT", "EST", "EDT", "MST", "MDT", "CST", "CDT")
"""Names that Java knows and the time zone database does not."""


def _parsed_spark(finish: str) -> Written:
    def write(arguments: Sequence[str]) -> str:
        known = unquoted(arguments[1], "spark")
        pattern = arguments[1] if known is None else quoted(for_spark(known), "spark")
        found = f"try_to_timestamp({arguments[0]}, {pattern})"
        if len(arguments) > 2 and (known is None or not has_zone(known)):
            zone = unquoted(arguments[2], "spark")
            known_zone = zone is None or _is_zone(zone)
            found = f"to_utc_timestamp({found}, {arguments[2]})" if known_zone else "CAST(NULL AS TIMESTAMP)"
        return finish.format(found)

    return write


def _parsed_duckdb(finish: Callable[[str, bool], str]) -> Written:
    def write(arguments: Sequence[str]) -> str:
        pattern = unquoted(arguments[1], "duckdb") or ""
        # Java's X also reads a Z, DuckDB's %z does not.
        text = f"regexp_replace({arguments[0]}, 'Z$', '+00')" if pattern.endswith("X") else arguments[0]
        if pattern:
            found = f"try_strptime({text}, {quoted(read(pattern), 'duckdb')})"
        else:
            found = read_by_row(text, arguments[1])
        if has_zone(pattern):
            return finish(found, True)
        zone = arguments[2] if len(arguments) > 2 else "'UTC'"
        known = unquoted(zone, "duckdb")
        if known is not None and not _is_zone(known):
            return finish("CAST(NULL AS TIMESTAMPTZ)", True)
        return finish(f"timezone({zone}, {found})", True) if len(arguments) > 2 else finish(found, False)

    return write


def _as_instant(found: str, zoned: bool) -> str:
    return found if zoned else f"timezone('UTC', {found})"


def _as_day(found: str, zoned: bool) -> str:
    return f"CAST({_DUCKDB_UTC.format(found) if zoned else found} AS DATE)"


def _as_time(found: str, zoned: bool) -> str:
    return f"CAST({since_last(_DAY, found)} AS INTEGER)"


def _check(literals: Sequence[str | None]) -> None:
    if literals[1] is not None:
        check(literals[1])


def _among_zones(zone: str) -> str:
    """A list of names: DuckDB's TRY does not catch the error about one that it does not know."""
    return (
        f"({zone} IN ({', '.join(quoted(name, 'duckdb') for name in sorted(available_timezones()))}) OR {zone} IS NULL)"
    )


def _check_zones(literals: Sequence[str | None]) -> None:
    for name in literals[1:]:
        if name is not None and not _is_zone(name):
            raise InvalidQuery(f"'{name}' is no time zone", hint="a name as 'Europe/Paris', or a distance as '+02:00'")


_FORMAT = (t.VARCHAR, t.VARCHAR)


TIMES = (
    Scalar(
        "FORMAT_DATE",
        takes(t.VARCHAR, t.DATE, t.VARCHAR),
        _formatted_spark("{0}"),
        _formatted_duckdb("{0}"),
        check=_check,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "FORMAT_TIME",
        takes(t.VARCHAR, t.TIME, t.VARCHAR),
        _formatted_spark(_SPARK_TIME),
        _formatted_duckdb(_DUCKDB_TIME),
        check=_check,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "FORMAT_TIMESTAMP",
        takes(t.VARCHAR, t.TIMESTAMP, *_FORMAT, optional=1),
        _formatted_spark("{0}"),
        _formatted_duckdb(_DUCKDB_UTC),
        check=_check,
        fails=domains.no_pattern_of_time(1, zone=2),
    ),
    Scalar(
        "PARSE_DATE",
        takes(t.DATE, *_FORMAT),
        _first_of(_parsed_spark("CAST({0} AS DATE)"), "spark"),
        _first_of(_parsed_duckdb(_as_day), "duckdb"),
        check=_check,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "PARSE_TIME",
        takes(t.TIME, *_FORMAT),
        _parsed_spark(f"CAST(pmod(unix_millis({{0}}), {_DAY}) AS INT)"),
        _parsed_duckdb(_as_time),
        check=_check,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "PARSE_TIMESTAMP",
        takes(t.TIMESTAMP, *_FORMAT, t.VARCHAR, optional=1),
        _parsed_spark("{0}"),
        _parsed_duckdb(_as_instant),
        check=_check,
        fails=domains.no_pattern_of_time(1, zone=2),
    ),
    Scalar(
        "IS_ZONE",
        takes(t.BOOLEAN, t.VARCHAR),
        lambda arguments: _among_zones(arguments[0]),
        hidden=True,
    ),
    Scalar(
        "IS_TIME_PATTERN",
        takes(t.BOOLEAN, t.VARCHAR),
        lambda arguments: is_pattern_spark(arguments[0]),
        lambda arguments: is_pattern_duckdb(arguments[0]),
        hidden=True,
    ),
    Scalar(
        "CONVERT_TZ",
        takes(t.TIMESTAMP, t.TIMESTAMP, t.VARCHAR, t.VARCHAR),
        "from_utc_timestamp(to_utc_timestamp({0}, {1}), {2})",
        "timezone('UTC', timezone({2}, timezone({1}, timezone('UTC', {0}))))",
        check=_check_zones,
        fails=domains.no_zone(1, 2),
    ),
)
