"""The domains of functions: conditions under which a call has no value, as expressions of the language.

    FROM_DAYS(n)             n NOT BETWEEN -719162 AND 2932896
    CONVERT_TZ(at, a, b)     NOT IS_ZONE(a) OR NOT IS_ZONE(b)

A view keeps such rows aside (`jobs.functions.failing`). A condition is NULL where an argument is, and never fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from strandline.jobs.engines.engine import FAILS_ON_A_ROW
from strandline.jobs.functions.scalars.contract import Fails, Scalar, Types
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.trees import call, conjuncts

DAYS = (-719_162, 2_932_896)
"""Days since 1970 of the years 1 to 9999, the dates of SQL: what is beyond has no text that reads back."""
INSTANTS = (-9_223_372_022_400_000, 9_223_372_036_854_775)
"""Milliseconds whose microseconds are an instant to both engines: a BIGINT, and not before DuckDB's first."""
_MONTH = 31 * 86_400_000


def outside(limits: tuple[int, int], value: exp.Expression) -> exp.Expression:
    """The condition that a number is not between the limits."""
    low, high = (exp.Literal.number(limit) for limit in limits)
    return exp.Not(this=exp.Between(this=exp.Paren(this=value), low=low, high=high))


def no_day(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """FROM_DAYS(n)."""
    return outside(DAYS, arguments[0].copy())


def no_later_day(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """ADD_DAYS(day, n)."""
    day, number = arguments
    return outside(DAYS, exp.Add(this=_call("WHOLE_DAYS", day), expression=_call("WHOLE", number)))


def no_instant(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """FROM_UNIXTIME(milliseconds)."""
    return outside(INSTANTS, arguments[0].copy())


def no_exact_instant(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """FROM_MICROSECONDS(microseconds)."""
    low, high = INSTANTS
    return outside((low * 1000, high * 1000), arguments[0].copy())


def no_later_instant(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """ADD_MILLISECONDS(at, milliseconds)."""
    at, length = arguments
    whole = _call("COALESCE", _call("TRY_ADD", _call("UNIX_TIMESTAMP", at), length), exp.Literal.number(2**63 - 1))
    known = exp.And(this=_known(at), expression=_known(length))
    return exp.And(this=known, expression=outside(INSTANTS, whole))


def no_later_month(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """ADD_MONTHS(at, n). As if each month had 31 days: so much of both ends of time is given up, to ask without
    computing it; of a constant n a month."""
    at, months = arguments
    low, high = INSTANTS
    size = months.this if isinstance(months, exp.Neg) else months
    if not isinstance(size, exp.Literal):
        length = exp.Mul(this=_call("WHOLE", months), expression=exp.Literal.number(_MONTH))
        return outside(INSTANTS, exp.Add(this=_call("UNIX_TIMESTAMP", at), expression=length))
    number = int(size.name) * (-1 if isinstance(months, exp.Neg) else 1)
    return outside((low - min(number, 0) * _MONTH, high - max(number, 0) * _MONTH), _call("UNIX_TIMESTAMP", at))


def no_zone(*places: int) -> Fails:
    """The arguments at those places are names of time zones; one that is a constant was looked at before."""
    return _unknown("IS_ZONE", places)


def no_pattern_of_time(place: int, zone: int | None = None) -> Fails:
    """The argument at that place is a pattern of dates and times, another one perhaps a zone."""
    of_pattern, of_zone = _unknown("IS_TIME_PATTERN", (place,)), _unknown("IS_ZONE", () if zone is None else (zone,))

    def fails(arguments: Sequence[exp.Expression]) -> exp.Expression | None:
        found = [each for each in (of_pattern(arguments), of_zone(arguments)) if each is not None]
        return exp.Or(this=found[0], expression=found[1]) if len(found) > 1 else found[0] if found else None

    return fails


def no_expression(place: int) -> Fails:
    """The argument at that place is a regular expression."""
    return _unknown("IS_REGEXP", (place,))


def no_group(arguments: Sequence[exp.Expression]) -> exp.Expression | None:
    """REGEXP_EXTRACT(pattern, text[, group]): the pattern is none, or has no such group; constants were looked at."""
    no_pattern = no_expression(0)(arguments)
    if no_pattern is None or len(arguments) < 3:
        return no_pattern
    fewer = exp.LT(this=_call("REGEXP_GROUPS", arguments[0]), expression=exp.Paren(this=arguments[2].copy()))
    below = exp.LT(this=exp.Paren(this=arguments[2].copy()), expression=exp.Literal.number(0))
    return exp.Or(this=no_pattern, expression=exp.Or(this=fewer, expression=below))


MOST_CHARACTERS = 2**24
"""Of a text that LPAD and RPAD make, and the items of GENERATE_SERIES: some hundred MB would be a fault of nobody's."""


def too_long(arguments: Sequence[exp.Expression]) -> exp.Expression | None:
    """LPAD(text, length, padding)."""
    length = arguments[1]
    if isinstance(length, exp.Literal) and int(length.name) <= MOST_CHARACTERS:
        return None
    return exp.GT(this=exp.Paren(this=length.copy()), expression=exp.Literal.number(MOST_CHARACTERS))


def too_often(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """REPEAT(text, times)."""
    return _call("TOO_OFTEN", *arguments)


def too_many(arguments: Sequence[exp.Expression]) -> exp.Expression | None:
    """GENERATE_SERIES(first, last[, step])."""
    ends = [int(each.name) for each in arguments[:2] if isinstance(each, exp.Literal)]
    if len(ends) == 2 and abs(ends[1] - ends[0]) <= MOST_CHARACTERS:
        return None
    step = arguments[2] if len(arguments) > 2 else exp.Literal.number(1)
    return _call("TOO_MANY", *arguments[:2], step)


def no_opposite(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """GCD(a, b): not of the least BIGINT, which has no opposite."""
    least, most = -(2**63) + 1, 2**63 - 1
    first, second = (outside((least, most), each.copy()) for each in arguments)
    return exp.Or(this=first, expression=second)


def more_than_one(arguments: Sequence[exp.Expression]) -> exp.Expression:
    """SINGLE_VALUE(rows, value)."""
    return exp.GT(this=exp.Paren(this=arguments[0].copy()), expression=exp.Literal.number(1))


def _unknown(test: str, places: Sequence[int]) -> Fails:
    def fails(arguments: Sequence[exp.Expression]) -> exp.Expression | None:
        made: exp.Expression | None = None
        for place in places:
            if place >= len(arguments) or isinstance(arguments[place], exp.Literal):
                continue
            asked = exp.Not(this=_call(test, arguments[place]))
            made = asked if made is None else exp.Or(this=made, expression=asked)
        return made

    return fails


def _known(value: exp.Expression) -> exp.Expression:
    return exp.Not(this=exp.Is(this=exp.Paren(this=value.copy()), expression=exp.Null()))


def _call(name: str, *arguments: exp.Expression) -> exp.Anonymous:
    return exp.Anonymous(this=name, expressions=[argument.copy() for argument in arguments])


# Guards: conditions that a view's rows must meet, as terms of its WHERE. A row that does not fails there.
#
#     MEETS(c, 'name')    true of the rows that stay; it fails on a row that does not meet it
#
# So such a row goes the way of every row on which an expression fails (`jobs.functions.failing_rows`): it is kept out
# of the view, and is in its dead letters until it is corrected.

MEETS = "MEETS"


def meets(condition: exp.Expression, name: str) -> exp.Anonymous:
    """The guard that asks for an elaborated condition; NULL does not meet it. `name` says what a row breaks."""
    return call(MEETS, condition, exp.Literal.string(name))


def is_guard(node: exp.Expr) -> bool:
    """True of a guard in the form that `meets` gives it."""
    return isinstance(node, exp.Anonymous) and node.name == MEETS


def guards_in(condition: exp.Expression | None) -> list[exp.Expression]:
    """The guards among the terms of a condition."""
    return [term for term in conjuncts(condition) if is_guard(term)]


def name_of(guard: exp.Expression) -> str:
    """What a row breaks that does not meet the guard."""
    return str(guard.expressions[1].name)


def _unmet(arguments: Sequence[exp.Expression]) -> exp.Expression:
    return exp.Not(this=call("COALESCE", arguments[0], exp.false()))


def _made(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what an expectation becomes; write WHERE", hint="or EXPECT, with quarantine: true")


GUARDS = (Scalar(MEETS, _made, "({0})", hidden=True, fails=_unmet),)


# How far a frame reaches, where each row brings it: a number from 0, or the row fails.

REACH = "REACH"


def _no_reach(arguments: Sequence[exp.Expression]) -> exp.Expression:
    from_zero = exp.GTE(this=exp.Paren(this=arguments[0].copy()), expression=exp.Literal.number(0))
    return exp.Not(this=call("COALESCE", from_zero, exp.false()))


def _reach(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what the bound of a frame becomes; write ROWS BETWEEN n PRECEDING AND …")


REACHES = (Scalar(REACH, _reach, "({0})", hidden=True, fails=_no_reach, fault=RowFault.NO_FRAME),)


# What `jobs.functions.failing` writes in the place of operators that can fail: their NULL, and an error.
#
# They are not meant for users, who write `+` and `/`.


def _operator(name: str, types: Types) -> tuple[Types, SqlType]:
    raise TypeMismatch(f"{name} is what an operator becomes; write the operator", hint="a / b, a + b")


FAIL = "FAIL"
"""The function that has no value for any argument: an error that names the expression that fails on a row."""


def _error(function: str, nothing: str) -> Callable[[Sequence[str]], str]:
    """The error with the text of the first argument; of the others it only reads the values."""

    def text(arguments: Sequence[str]) -> str:
        message, *read = arguments
        parts = [f"'{FAILS_ON_A_ROW}'", message, *(nothing.format(each) for each in read)]
        return f"{function}(concat({', '.join(parts)}))"

    return text


def tried(template: str) -> Callable[[Sequence[str]], str]:
    """DuckDB's TRY of an expression over `{0}`, `{1}`, ….

    It takes no query inside, and no error() of another function: operands with one are computed before it."""

    def text(arguments: Sequence[str]) -> str:
        if not any(each in argument for argument in arguments for each in ("SELECT", "error(")):
            return f"TRY({template.format(*arguments)})"
        parts = ", ".join(f"a{number} := {argument}" for number, argument in enumerate(arguments))
        inside = template.format(*(f"(__t).a{number}" for number in range(len(arguments))))
        return f"list_transform([struct_pack({parts})], lambda __t: TRY({inside}))[1]"

    return text


FAILING = (
    Scalar(
        FAIL,
        _operator,
        _error("raise_error", "coalesce(left(CAST({} AS STRING), 0), '')"),
        _error("error", "left(CAST({} AS VARCHAR), 0)"),
        hidden=True,
    ),
    # A row that fails, for the dead letters.
    Scalar(
        "ROW_JSON",
        _operator,
        "to_json({0}, map('ignoreNullFields', 'false'))",
        "CAST(to_json({0}) AS VARCHAR)",
        hidden=True,
    ),
    Scalar("TRY_ADD", _operator, "try_add({0}, {1})", tried("({0}) + ({1})"), hidden=True),
    Scalar("TRY_SUBTRACT", _operator, "try_subtract({0}, {1})", tried("({0}) - ({1})"), hidden=True),
    Scalar("TRY_MULTIPLY", _operator, "try_multiply({0}, {1})", tried("({0}) * ({1})"), hidden=True),
)
