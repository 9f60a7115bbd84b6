"""Functions over values of any type, and the parts of CAST where the casts of the engines do not agree."""

from __future__ import annotations

from strandline.jobs.engines.arrays import has_map
from strandline.jobs.functions.scalars import domains
from strandline.jobs.functions.scalars.contract import Scalar, Types, common, count, takes, takes_common, takes_no_clock
from strandline.jobs.functions.scalars.time_patterns import since_1970, since_last
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import BaseType, SqlType


def _any(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 1, 1)
    return types, types[0]


def _if(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 3, 3)
    if types[0].base not in (BaseType.BOOLEAN, BaseType.NULL):
        raise TypeMismatch(f"argument 1 of {name} must be BOOLEAN, not {types[0]}")
    shared = common(name, types[1:])
    return (t.BOOLEAN, shared, shared), shared


def _nullif(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    shared = common(name, types)
    if has_map(shared):
        raise TypeMismatch(f"{name} does not take {shared}: it cannot compare MAPs")
    return (shared, shared), shared


def _single(name: str, types: Types) -> tuple[Types, SqlType]:
    count(name, types, 2, 2)
    return (t.BIGINT, types[1]), types[1]


OTHER = (
    # A copy of a key column, as a value column.
    Scalar("AS_VALUE", _any, "({0})"),
    Scalar("COALESCE", takes_common(1), "coalesce", alike=True),
    Scalar("IFNULL", takes_common(2, 2), "coalesce", alike=True),
    Scalar("NULLIF", _nullif, "nullif", alike=True),
    Scalar("IF", _if, "CASE WHEN {0} THEN {1} ELSE {2} END"),
    # NULLs are passed over. Of one argument too, which Spark refuses.
    Scalar("GREATEST", takes_common(1, nested=False), "greatest({0}, {args})", "greatest", alike=True),
    Scalar("LEAST", takes_common(1, nested=False), "least({0}, {args})", "least", alike=True),
    # The number of rows of a subquery that stands for a value, and that of the first.
    Scalar("SINGLE_VALUE", _single, "({1})", hidden=True, fails=domains.more_than_one, fault=RowFault.SEVERAL_ROWS),
    # Milliseconds since 1970; ROWTIME is written with it.
    Scalar("UNIX_TIMESTAMP", takes_no_clock(t.BIGINT, t.TIMESTAMP), "unix_millis({0})", since_1970("{0}")),
    Scalar(
        "FROM_UNIXTIME",
        takes(t.TIMESTAMP, t.BIGINT),
        "timestamp_millis({0})",
        "make_timestamptz({0} * 1000)",
        fails=domains.no_instant,
        fault=RowFault.TIME_OUT_OF_RANGE,
    ),
    Scalar(
        "FROM_MICROSECONDS",
        takes(t.TIMESTAMP, t.BIGINT),
        "timestamp_micros({0})",
        "make_timestamptz({0})",
        hidden=True,
        fails=domains.no_exact_instant,
        fault=RowFault.TIME_OUT_OF_RANGE,
    ),
)

# DuckDB's shortest text of a number, as Java writes it: with an exponent from 10^7 on and below 10^-3.
_DOUBLE_TEXT = (
    "CASE WHEN isnan({0}) THEN 'NaN' WHEN isinf({0}) THEN CASE WHEN {0} > 0 THEN 'Infinity' ELSE '-Infinity' END"
    " ELSE CASE WHEN {0} < 0 THEN '-' ELSE '' END || list_transform([CAST(abs({0}) AS VARCHAR)], lambda __x: CASE"
    " WHEN {0} = 0 OR abs({0}) >= 1e-3 AND abs({0}) < 1e7 THEN __x"
    " WHEN contains(__x, 'e') THEN regexp_replace(regexp_extract(__x, '^(.*)e', 1), '^([0-9])$', '\\1.0')"
    " || 'E' || CAST(regexp_extract(__x, 'e(.*)$', 1) AS INTEGER)"
    " WHEN {0} > 1 OR {0} < -1 THEN __x[1:1] || '.' || regexp_replace(replace(__x[2:], '.', ''), '(.)0*$', '\\1')"
    " || 'E' || (instr(__x, '.') - 2)"
    " ELSE regexp_replace(ltrim(__x, '0.') || CASE WHEN length(ltrim(__x, '0.')) = 1 THEN '0' ELSE '' END,"
    " '^([0-9])', '\\1.') || 'E-4' END)[1] END"
)


def _shortest() -> str:
    """Java's text of a number, as short as it can be: before 19, Java writes 1e23 as 9.999999999999999E22."""
    mantissa, exponent = "substring_index(__x, 'E', 1)", "CAST(substring_index(__x, 'E', -1) AS INT)"
    digits = f"length(substring_index({mantissa}, '.', -1))"
    branches = " ".join(f"WHEN {n} THEN round(CAST({mantissa} AS DECIMAL(20, 18)), {n - 1})" for n in (15, 16))
    rounded = f"CASE {digits} {branches} END"
    over = f"abs({rounded}) >= 10"
    one_less = (
        f"concat(regexp_replace(rtrim('0', CAST(CASE WHEN {over} THEN CAST({rounded} / 10 AS DECIMAL(20, 18))"
        f" ELSE CAST({rounded} AS DECIMAL(20, 18)) END AS STRING)), '[.]$', '.0'), 'E',"
        f" CASE WHEN {over} THEN {exponent} + 1 ELSE {exponent} END)"
    )
    long = f"contains(__x, 'E') AND {digits} IN (15, 16)"
    chosen = f"CASE WHEN {long} AND try_cast({one_less} AS DOUBLE) = CAST(__x AS DOUBLE) THEN {one_less} ELSE __x END"
    return f"transform(array(CAST(({{0}}) + 0e0 AS STRING)), __x -> {chosen})[0]"


# Zero has no sign. Of the two smallest numbers Java writes two digits where one tells them from others.
_DOUBLE_TEXT_SPARK = f"replace(replace({_shortest()}, '4.9E-324', '5.0E-324'), '9.9E-324', '1.0E-323')"
_CLOCK = "date_format(timestamp_millis(CAST({{0}} AS BIGINT)), '{}')"
_CLOCK_DUCKDB = "strftime(make_timestamp(CAST({{0}} AS BIGINT) * 1000), '{}')"


def _time_text(minutes: str, seconds: str, milliseconds: str) -> str:
    """As short as it can be written: 13:45, 13:45:10, 13:45:10.500."""
    return f"CASE WHEN {{0}} % 60000 = 0 THEN {minutes} WHEN {{0}} % 1000 = 0 THEN {seconds} ELSE {milliseconds} END"


_TRUE = "('t', 'tr', 'tru', 'true', 'y', 'ye', 'yes')"
_WORDS = takes(t.VARCHAR, t.VARCHAR)

CONVERSIONS = (
    Scalar(
        "WHOLE_TEXT",
        _WORDS,
        "({0})",
        "CASE WHEN regexp_full_match(trim({0}), '[+-]?[0-9]+') THEN {0} END",
        hidden=True,
    ),
    # DuckDB would read 1_000.
    Scalar("FRACTION_TEXT", _WORDS, "({0})", "CASE WHEN NOT contains({0}, '_') THEN {0} END", hidden=True),
    # Any text becomes a BOOLEAN, as in ksqlDB: most become FALSE.
    Scalar(
        "BOOLEAN_TEXT",
        _WORDS,
        f"CASE WHEN lower({{0}}) IN {_TRUE} THEN 'true' WHEN {{0}} IS NOT NULL THEN 'false' END",
        hidden=True,
    ),
    Scalar("DOUBLE_TEXT", takes(t.VARCHAR, t.DOUBLE), _DOUBLE_TEXT_SPARK, _DOUBLE_TEXT, hidden=True),
    # Before a CAST of a DOUBLE to DECIMAL: the number as it is written, not times a power of ten.
    Scalar("DIGITS", takes(t.VARCHAR, t.DOUBLE), _shortest(), "CAST({0} AS VARCHAR)", hidden=True),
    Scalar(
        "TIMESTAMP_TEXT",
        takes(t.VARCHAR, t.TIMESTAMP),
        "date_format({0}, \"yyyy-MM-dd'T'HH:mm:ss.SSS\")",
        "strftime({0}, '%Y-%m-%dT%H:%M:%S.%g')",
        hidden=True,
    ),
    Scalar(
        "TIME_TEXT",
        takes(t.VARCHAR, t.TIME),
        _time_text(*(_CLOCK.format(each) for each in ("HH:mm", "HH:mm:ss", "HH:mm:ss.SSS"))),
        _time_text(*(_CLOCK_DUCKDB.format(each) for each in ("%H:%M", "%H:%M:%S", "%H:%M:%S.%g"))),
        hidden=True,
    ),
    Scalar(
        "TIME_OF_DAY",
        takes(t.TIME, t.TIMESTAMP),
        "CAST(pmod(unix_millis({0}), 86400000) AS INT)",
        f"CAST({since_last(86_400_000, '{0}')} AS INTEGER)",
        hidden=True,
    ),
    # A text inside of a text of JSON.
    Scalar(
        "QUOTED_JSON",
        _WORDS,
        "substring(to_json(array({0})), 2, length(to_json(array({0}))) - 2)",
        "CAST(to_json({0}) AS VARCHAR)",
        hidden=True,
    ),
)
