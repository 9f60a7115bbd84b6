"""Functions over DATE, TIME and TIMESTAMP: arithmetic, formatting, parsing, and time zones.

TIME is milliseconds of the day. A text that does not fit its pattern gives NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from zoneinfo import ZoneInfo

from strandline.jobs.functions.scalars import domains, time_reading
from strandline.jobs.functions.scalars.contract import Scalar, Written, takes
from strandline.jobs.functions.scalars.literals import quoted, unquoted
from strandline.jobs.functions.scalars.milliseconds import since_last
from strandline.jobs.functions.scalars.time_patterns import check
from strandline.jobs.functions.scalars.time_writing import formatted
from strandline.jobs.functions.scalars.time_zones import (
    IS_OFFSET,
    Dialect,
    as_instant,
    distance_of,
    local_to_utc,
    utc_to_local,
)
from strandline.jobs.functions.scalars.times_by_row import is_pattern, read_by_row, written_by_row
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery

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
        found = time_reading.reading(pattern, all_of_it=not of_date, any_width=of_date)
        known = zone is None or unquoted(zone, dialect) is None or _is_zone(unquoted(zone, dialect) or "")
        instant = time_reading.read(dialect, arguments[0], found, zone if known else None)
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
        time_reading.reading(literals[1])


def _among_zones(dialect: Dialect, zone: str) -> str:
    """By the names: DuckDB's TRY does not catch the error about one that it does not know."""
    return f"({time_reading.is_zone_name(zone)} OR {zone} IS NULL OR {IS_OFFSET[dialect].format(zone)})"


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
    ),
    Scalar(
        "FORMAT_TIME",
        takes(t.VARCHAR, t.TIME, t.VARCHAR),
        _formatted("spark", _SPARK_TIME),
        _formatted("duckdb", _DUCKDB_TIME),
        check=_check_written,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "FORMAT_TIMESTAMP",
        takes(t.VARCHAR, t.TIMESTAMP, *_FORMAT, optional=1),
        _formatted("spark", "{0}"),
        _formatted("duckdb", _DUCKDB_UTC),
        check=_check_written,
        fails=domains.no_pattern_of_time(1, zone=2),
    ),
    Scalar(
        "PARSE_DATE",
        takes(t.DATE, *_FORMAT),
        _parsed("spark", "CAST({0} AS DATE)", of_date=True),
        _parsed("duckdb", "CAST({0} AS DATE)", of_date=True),
        check=_check_read,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "PARSE_TIME",
        takes(t.TIME, *_FORMAT),
        _parsed("spark", f"CAST(pmod(unix_millis({{0}}), {_DAY}) AS INT)"),
        _parsed("duckdb", f"CAST({since_last(_DAY, '{0}')} AS INTEGER)"),
        check=_check_read,
        fails=domains.no_pattern_of_time(1),
    ),
    Scalar(
        "PARSE_TIMESTAMP",
        takes(t.TIMESTAMP, *_FORMAT, t.VARCHAR, optional=1),
        _parsed("spark", "{0}"),
        _parsed("duckdb", _DUCKDB_UTC),
        check=_check_read,
        fails=domains.no_pattern_of_time(1, zone=2),
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
    ),
)
