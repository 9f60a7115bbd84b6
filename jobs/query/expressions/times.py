"""Functions of time, elaborated into the language's: parts and truncation of a date or time, and PostgreSQL's forms."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping

from sqlglot import exp

from strandline.jobs.functions.scalars.times import PARTS, PARTS_OF_TIME, UNITS
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.arithmetic import arithmetic, literal
from strandline.jobs.query.expressions.casts import converted
from strandline.jobs.query.expressions.coercion import called
from strandline.jobs.query.expressions.durations import extracted_of_length, is_length, unit_of
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.time_clauses import IntervalNode, interval_of
from strandline.jobs.sql.trees import call

# EXTRACT(part FROM value), and the functions of one part: YEAR(at), MONTH(at), …
#
# EXTRACT(YEAR FROM at)       PART_OF_DATE('year', at)
# EXTRACT(MINUTE FROM clock)  (clock / 60000) % 60: TIME is milliseconds of the day
# EXTRACT(EPOCH FROM at)      UNIX_TIMESTAMP(BEGIN_OF_UNIT('SECOND', at)) / 1000: division cuts, also before 1970
# DATE_TRUNC('hour', at)      BEGIN_OF_UNIT('HOUR', at)


_SECONDS = "EPOCH"
DATE_PARTS = (*PARTS, _SECONDS)
"""The parts that EXTRACT knows."""


def constant_text(node: exp.Expr) -> str | None:
    """Text of a constant, perhaps in a CAST as drivers write parameters; empty for NULL, None for a computed value."""
    while isinstance(node, exp.Cast | exp.Paren):
        node = node.this
    if isinstance(node, exp.Null):
        return ""
    return node.name if isinstance(node, exp.Literal) else None


def extracted(node: exp.Anonymous, typed: Infer) -> Typed:
    """Elaborate EXTRACT(part, value): an INT, for EPOCH a BIGINT.

    Raises:
        InvalidQuery: there is no such part, or the value has none of that kind.
        TypeMismatch: the value is no date or time.
    """
    part = constant_text(node.expressions[0]) if len(node.expressions) == 2 else None
    if part is None:
        raise InvalidQuery("EXTRACT is written EXTRACT(part FROM value)")
    part = part.upper()
    of_length = extracted_of_length(part, node.expressions[1], typed)
    if of_length is not None:
        return of_length
    value = typed(node.expressions[1])
    if not part:
        return converted(Typed(exp.Null(), t.NULL), t.INT)
    if part not in DATE_PARTS and part.removesuffix("S") in DATE_PARTS:
        part = part.removesuffix("S")  # PostgreSQL's MILLISECONDS
    if part not in DATE_PARTS:
        raise InvalidQuery(f"EXTRACT has no part {part}", hint=f"one of {', '.join(DATE_PARTS)}")
    if value.type.base is BaseType.TIME:
        return _of_time(part, value)
    if value.type.base is BaseType.DATE:
        value = converted(value, t.TIMESTAMP)
    if value.type.base is not BaseType.TIMESTAMP:
        raise TypeMismatch(f"EXTRACT takes a DATE, TIME or TIMESTAMP, not {value.type}")
    if part == _SECONDS:
        second = called("BEGIN_OF_UNIT", _text("SECOND"), value)
        millis = called("UNIX_TIMESTAMP", second)
        return arithmetic(exp.Div, millis, _whole(1_000))
    return called("PART_OF_DATE", _text(part), value)


def truncated(node: exp.Anonymous, typed: Infer) -> Typed:
    """Elaborate DATE_TRUNC('unit', value): the TIMESTAMP at which the unit began. DATE_TRUNC(value, UNIT), as BigQuery
    and Feldera write it, gives a DATE for a DATE.

    Raises:
        InvalidQuery: there is no such unit.
        TypeMismatch: the value is no DATE or TIMESTAMP.
    """
    unit, given, kept = _unit_and_value(node)
    if unit is None or given is None:
        raise InvalidQuery(f"{node.name} is written {node.name}('hour', value), or {node.name}(value, HOUR)")
    unit, value = unit.upper(), typed(given)
    if not unit:
        return converted(Typed(exp.Null(), t.NULL), t.TIMESTAMP)
    if unit not in UNITS:
        raise InvalidQuery(f"{node.name} has no unit {unit}", hint=f"one of {', '.join(UNITS)}")
    is_date = value.type.base is BaseType.DATE
    if is_date:
        value = converted(value, t.TIMESTAMP)
    if value.type.base is not BaseType.TIMESTAMP:
        raise TypeMismatch(f"{node.name} takes a DATE or TIMESTAMP, not {value.type}")
    made = called("BEGIN_OF_UNIT", _text(unit), value)
    return converted(made, t.DATE) if is_date and kept else made


def _unit_and_value(node: exp.Anonymous) -> tuple[str | None, exp.Expr | None, bool]:
    """The unit and the value of DATE_TRUNC, in either order; the last is True where the value came first."""
    if len(node.expressions) != 2:
        return None, None, False
    first, second = node.expressions
    unit = constant_text(first)
    if unit is not None:
        return unit, second, False
    last = unit_of(second, constant_text(second))
    if last is not None:
        return last, first, True
    return unit_of(first), second, False


def binned(node: exp.Anonymous, typed: Infer) -> Typed:
    """Elaborate TIME_BUCKET(INTERVAL '15' MINUTE, at [, origin]) and DATE_BIN(…): where the step that `at` is in began.

    Raises:
        InvalidQuery: the step is no constant length of time, or the origin no constant.
    """
    arguments = node.expressions
    step = arguments[0] if 2 <= len(arguments) <= 3 else None
    months, milliseconds = step.parts if isinstance(step, IntervalNode) else (0, 0)
    origin = _ORIGIN
    if len(arguments) == 3:
        text = constant_text(arguments[2])
        found = _ISO.fullmatch(text or "")
        if found is None:
            raise InvalidQuery(f"the origin of {node.name} is a constant: TIMESTAMP '2000-01-01'")
        origin = dt.datetime.fromisoformat(text or "").replace(tzinfo=dt.UTC)
    if months or milliseconds <= 0:
        hint = "months and years: DATE_TRUNC('month', at)" if months else None
        raise InvalidQuery(f"{node.name} is written {node.name}(INTERVAL '15' MINUTE, at)", hint=hint)
    value = typed(arguments[1])
    if value.type.base is BaseType.DATE:
        value = converted(value, t.TIMESTAMP)
    micros = (origin - _EPOCH) // dt.timedelta(microseconds=1)
    return called("BEGIN_OF_BIN", value, *(_whole(each) for each in (milliseconds * 1000, micros)))


# TimescaleDB's and DuckDB's: a Monday, so that weeks begin on one.
_ORIGIN = dt.datetime(2000, 1, 3, tzinfo=dt.UTC)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)?")


def _part(part: str, add: int = 0) -> Callable[[exp.Anonymous, Infer], Typed]:
    """The rewrite of YEAR(at) and its like to EXTRACT; DAYOFWEEK counts from Sunday, 1."""

    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        if len(node.expressions) != 1:
            raise TypeMismatch(f"{node.name} takes 1 argument, not {len(node.expressions)}")
        found = extracted(call("EXTRACT", exp.Literal.string(part), node.expressions[0]), typed)
        return arithmetic(exp.Add, found, _whole(add)) if add else found

    return rewrite


def _date_of(node: exp.Anonymous, typed: Infer) -> Typed:
    """DATE(at): CAST(at AS DATE)."""
    if len(node.expressions) != 1:
        raise TypeMismatch(f"{node.name} takes 1 argument, not {len(node.expressions)}")
    return converted(typed(node.expressions[0]), t.DATE)


def _last_day(node: exp.Anonymous, typed: Infer) -> Typed:
    """LAST_DAY(at): the DATE of the last day of its month."""
    began = _date_of(call("DATE", call("DATE_TRUNC", exp.Literal.string("month"), *node.expressions[:1])), typed)
    next_month = converted(
        Typed(call("ADD_MONTHS", converted(began, t.TIMESTAMP).expression, exp.Literal.number(1)), t.TIMESTAMP), t.DATE
    )
    return Typed(call("ADD_DAYS", next_month.expression, exp.Neg(this=exp.Literal.number(1))), t.DATE)


def _with_length(sign: type[exp.Binary]) -> Callable[[exp.Anonymous, Infer], Typed]:
    """The rewrite of DATE_ADD(day, INTERVAL 3 DAY), DATE_ADD(day, 3) and their like to `+` and `-`."""

    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        lengths = lengths_between(node, typed)
        if lengths is not None:
            return lengths
        if len(node.expressions) != 2:
            raise TypeMismatch(f"{node.name} takes 2 arguments, not {len(node.expressions)}")
        value, length = (exp.Paren(this=each.copy()) for each in node.expressions)
        day = exp.Cast(this=value, to=exp.DataType.build("date"))
        return typed(sign(this=value if is_length(length) else day, expression=length))

    return rewrite


PLAIN_TIMES: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    **{part: _part(part) for part in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND")},
    "DAYOFMONTH": _part("DAY"),
    "DAYOFYEAR": _part("DOY"),
    "DAYOFWEEK": _part("DOW", 1),
    "WEEKOFYEAR": _part("WEEK"),
    "DATE": _date_of,
    "LAST_DAY": _last_day,
    **dict.fromkeys(("TIMESTAMP_TRUNC", "DATETIME_TRUNC"), truncated),
    **dict.fromkeys(("TIME_BUCKET", "DATE_BIN"), binned),
    **dict.fromkeys(("DATE_ADD", "TIMESTAMP_ADD", "DATETIME_ADD"), _with_length(exp.Add)),
    **dict.fromkeys(("DATE_SUB", "TIMESTAMP_SUB", "DATETIME_SUB"), _with_length(exp.Sub)),
}
"""The rewrite of each function of other dialects that is a shorter form of one of the language's, by name."""


def _of_time(part: str, value: Typed) -> Typed:
    if part not in PARTS_OF_TIME:
        raise InvalidQuery(f"a TIME has no {part}", hint=f"one of {', '.join(PARTS_OF_TIME)}")
    return called("PART_OF_TIME", _text(part), value)


def _whole(number: int) -> Typed:
    return literal(exp.Literal(this=str(number), is_string=False))


def _text(text: str) -> Typed:
    return literal(exp.Literal.string(text))


# PostgreSQL's functions of time, elaborated into the language's.
#
# at AT TIME ZONE 'Europe/Rome'              CONVERT_TZ(at, 'UTC', 'Europe/Rome'): what the clock shows there
# DATE_TRUNC('day', …) AT TIME ZONE '…'      CONVERT_TZ(…, '…', 'UTC'): back, when a clock there shows it
# TO_TIMESTAMP('2024-05', 'YYYY-MM')         PARSE_TIMESTAMP('2024-05', 'yyyy-MM')
# TO_TIMESTAMP(1714521600)                   FROM_UNIXTIME(1714521600000)
# TO_CHAR(at, 'YYYY-MM-DD HH24:MI')          FORMAT_TIMESTAMP(at, 'yyyy-MM-dd HH:mm')
# STRFTIME(at, '%Y-%m-%d %H:%M')             the same, by C's letters, as DuckDB has it
# STRPTIME('2024-05', '%Y-%m')               PARSE_TIMESTAMP('2024-05', 'yyyy-MM')
#
# There is one type of times here, an instant in UTC. Which way AT TIME ZONE goes follows from the expression that it
# stands after: what another AT TIME ZONE gave, and a text without a zone, are what a clock shows; all else is an
# instant.

_LETTERS = {
    **{"YYYY": "yyyy", "YY": "yy", "MM": "MM", "DDD": "DDD", "DD": "dd", "Q": "q"},
    **{"HH24": "HH", "HH12": "hh", "HH": "hh", "MI": "mm", "SS": "ss", "MS": "SSS", "US": "SSSSSS"},
    **{"AM": "a", "PM": "a", "am": "a", "pm": "a", "FMMonth": "MMMM", "FMDay": "EEEE", "Mon": "MMM", "Dy": "EEE"},
    **{"TZH:TZM": "xxx", "OF": "x"},
}
"""{PostgreSQL's part of a pattern: Java's}."""
_KNOWN = "|".join(re.escape(each) for each in sorted(_LETTERS, key=len, reverse=True))
# Names that are padded with blanks are not known: FMMonth is the one that is not.
_PART = re.compile(rf'(?!(?i:month|day))(?:{_KNOWN})|"([^"]*)"|(\W)|(.)')
_ZONED = re.compile(r":\d{2}(\.\d+)?\s*(Z|[+-]\d{2}(:?\d{2})?)\s*$", re.I)


def java_pattern(pattern: str) -> str:
    """Translate PostgreSQL's pattern of TO_CHAR and its like to Java's.

    Raises:
        InvalidQuery: a part of it is not known.
    """

    def java(found: re.Match[str]) -> str:
        if found[0] in _LETTERS:
            return _LETTERS[found[0]]
        if found[3] is not None:
            hint = f"known: {', '.join(_LETTERS)}, and text in double quotes"
            raise InvalidQuery(f"'{pattern[found.start() :]}' in the pattern of a time is not known", hint=hint)
        text = found[1] if found[1] is not None else found[2]
        return f"'{text}'" if text.isalnum() else text.replace("'", "''")

    return _PART.sub(java, pattern)


_OF_C = {
    **{"Y": "yyyy", "y": "yy", "m": "MM", "-m": "M", "d": "dd", "-d": "d", "j": "DDD", "b": "MMM", "B": "MMMM"},
    **{"H": "HH", "-H": "H", "I": "hh", "-I": "h", "M": "mm", "-M": "m", "S": "ss", "-S": "s", "p": "a"},
    **{"g": "SSS", "f": "SSSSSS", "a": "EEE", "A": "EEEE", "z": "x"},
    **{"F": "yyyy-MM-dd", "x": "yyyy-MM-dd", "T": "HH:mm:ss", "X": "HH:mm:ss", "D": "MM/dd/yy"},
}
"""{C's part of a pattern after %: Java's}."""
_SHORTER = ("m", "d", "j", "H", "I", "M", "S")
_NUMBERS = (*_SHORTER, "Y", "y", "g", "f")
_PART_OF_C = re.compile(r"%(-?.|$)|([^%]+)", re.DOTALL)


def java_pattern_of_c(pattern: str, *, reads: bool) -> str:
    """Translate the pattern of STRFTIME and STRPTIME to Java's.

    Args:
        reads: of STRPTIME, for which a number may have one digit where no other follows it at once.

    Raises:
        InvalidQuery: a part of it is not known.
    """
    made: list[str] = []
    text = ""
    parts = list(_PART_OF_C.finditer(pattern))
    for place, found in enumerate(parts):
        if found[2] is not None or found[1] == "%":
            text += found[2] or "%"
            continue
        known = _OF_C.get(found[1])
        if known is None:
            hint = f"known: {', '.join('%' + each for each in _OF_C)}"
            raise InvalidQuery(f"'{found[0]}' in the pattern of a time is not known", hint=hint)
        followed = place + 1 < len(parts) and (parts[place + 1][1] or "").lstrip("-") in _NUMBERS
        made += [_as_text(text), known[:1] if reads and found[1] in _SHORTER and not followed else known]
        text = ""
    return "".join([*made, _as_text(text)])


def _as_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'" if text else ""


def _of_c(node: exp.Anonymous, typed: Infer) -> Typed:
    """STRFTIME(at, '%Y-%m-%d'), STRPTIME(text, '%Y-%m-%d')."""
    given = list(node.expressions)
    form = f"{node.name}({'at' if node.name == 'STRFTIME' else 'text'}, '%Y-%m-%d')"
    pattern = constant_text(given[1]) if len(given) == 2 else None
    if pattern is None:
        raise InvalidQuery(f"{node.name} takes a value and a constant pattern", hint=form)
    reads = node.name != "STRFTIME"
    java: exp.Expr = exp.Literal.string(java_pattern_of_c(pattern, reads=reads)) if pattern else exp.Null()
    if node.name != "STRFTIME":
        return typed(call("PARSE_TIMESTAMP", given[0], java))
    return _written(node.name, given[0], java, typed)


def lengths_between(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """DATESUB('day', a, b) and DATE_SUB('day', a, b): whole days that have passed, as in DuckDB; DATE_ADD('day', 2, a):
    a + 2 * INTERVAL '1' DAY, as in Trino. None: another form."""
    unit = node.expressions[0] if len(node.expressions) == 3 else None
    if not isinstance(unit, exp.Literal) or not unit.is_string:
        return None
    if node.name.endswith("_ADD"):
        length = interval_of("1", unit_of(unit, unit.name) or "")
        if length is None:
            raise InvalidQuery(f"'{unit.name}' is no unit of time: {sql_of(node)}", hint="DATE_ADD('day', 2, value)")
        number, value = (exp.Paren(this=each.copy()) for each in node.expressions[1:])
        return typed(exp.Add(this=value, expression=exp.Mul(this=number, expression=length)))
    return typed(call("TIMESTAMPDIFF", exp.column(unit.name), *node.expressions[1:]))


def _parsed(function: str) -> Callable[[exp.Anonymous, Infer], Typed]:
    """The rewrite of TO_DATE, and of TO_TIMESTAMP of a text or of seconds."""

    def rewrite(node: exp.Anonymous, typed: Infer) -> Typed:
        if len(node.expressions) == 1 and node.name == "TO_TIMESTAMP":
            return _of_seconds(node.expressions[0], typed)
        if len(node.expressions) == 1:
            return _date_of(node, typed)
        text, pattern = _two(node, "TO_DATE('2024-05-01', 'YYYY-MM-DD')")
        return typed(call(function, text, pattern))

    return rewrite


def _of_seconds(seconds: exp.Expr, typed: Infer) -> Typed:
    value = typed(seconds)
    if value.type.base in (BaseType.VARCHAR, BaseType.BOOLEAN) or value.type.is_nested:
        raise TypeMismatch(f"TO_TIMESTAMP takes seconds since 1970, or a text and its pattern, not {value.type}")
    if value.type.base in (BaseType.INT, BaseType.BIGINT):
        whole = exp.Mul(this=exp.cast(seconds.copy(), "bigint"), expression=exp.Literal.number(1000))
        return called("FROM_UNIXTIME", converted(typed(whole), t.BIGINT))
    micros = exp.Mul(this=exp.Paren(this=seconds.copy()), expression=exp.Literal.number(1_000_000))
    return called("FROM_MICROSECONDS", converted(typed(call("ROUND", micros)), t.BIGINT))


def _formatted(node: exp.Anonymous, typed: Infer) -> Typed:
    value, pattern = _two(node, "TO_CHAR(at, 'YYYY-MM-DD')")
    return _written(node.name, value, pattern, typed)


def _written(name: str, value: exp.Expr, pattern: exp.Expr, typed: Infer) -> Typed:
    """A date or time as text, by Java's pattern."""
    base = typed(value).type.base
    functions = {BaseType.DATE: "FORMAT_DATE", BaseType.TIME: "FORMAT_TIME", BaseType.TIMESTAMP: "FORMAT_TIMESTAMP"}
    if base not in functions:
        raise TypeMismatch(f"{name} takes a DATE, TIME or TIMESTAMP, not {base.value}", hint="CAST(… AS VARCHAR)")
    return typed(call(functions[base], value, pattern))


def _two(node: exp.Anonymous, form: str) -> tuple[exp.Expr, exp.Expr]:
    pattern = constant_text(node.expressions[1]) if len(node.expressions) == 2 else None
    if pattern is None:
        raise InvalidQuery(f"{node.name} takes a value and a constant pattern", hint=form)
    return node.expressions[0], exp.Literal.string(java_pattern(pattern)) if pattern else exp.Null()


def _zoned(node: exp.Anonymous, typed: Infer) -> Typed:
    """TIMEZONE(zone, value), which AT TIME ZONE is read as."""
    if len(node.expressions) != 2:
        raise InvalidQuery("expected value AT TIME ZONE 'Europe/Rome'")
    zone, value = node.expressions
    found = typed(value)
    if found.type.base in (BaseType.DATE, BaseType.VARCHAR):
        found = converted(found, t.TIMESTAMP)
    if found.type.base not in (BaseType.TIMESTAMP, BaseType.NULL):
        raise TypeMismatch(f"AT TIME ZONE takes a TIMESTAMP, not {found.type}")
    utc = exp.Literal.string("UTC")
    ends = (zone, utc) if _is_of_a_clock(value) else (utc, zone)
    return called("CONVERT_TZ", found, *map(typed, ends))


def _is_of_a_clock(node: exp.Expr) -> bool:
    """True for the time that a clock shows somewhere: it becomes an instant only with a zone."""
    match node:
        case exp.Anonymous(this="TIMEZONE"):
            return not _is_of_a_clock(node.expressions[1])
        case exp.Anonymous(this="DATE_TRUNC"):
            return _is_of_a_clock(node.expressions[-1])
        case exp.Paren() | exp.Add() | exp.Sub() | exp.Cast():
            return _is_of_a_clock(node.this)
        case exp.Literal():
            return node.is_string and _ZONED.search(node.name) is None
        case _:
            return False


POSTGRES_TIMES: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    "TO_TIMESTAMP": _parsed("PARSE_TIMESTAMP"),
    "TO_DATE": _parsed("PARSE_DATE"),
    "TO_CHAR": _formatted,
    **dict.fromkeys(("STRFTIME", "STRPTIME", "TRY_STRPTIME"), _of_c),
    "TIMEZONE": _zoned,
}
"""The rewrite of each function, by name."""
