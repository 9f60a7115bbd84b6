"""Functions with regular expressions, and the MASK functions.

The expressions are Java's for Spark and RE2's for DuckDB: the same except for what RE2 lacks (look-around,
back-references).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

import duckdb

from strandline.jobs.functions.scalars.contract import (
    Scalar,
    Signature,
    Template,
    Types,
    count,
    quoted,
    takes,
    unquoted,
)
from strandline.jobs.functions.scalars.domains import no_expression, no_group, tried
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.types import SqlType

_MASKS = ("'X'", "'x'", "'n'", "'-'")


_NO_GROUPS = r"(?s)\\Q.*?\\E|\\.|\[\^?\]?([^\]\\]|\\.)*\]"
"""Parts of a regular expression in which a bracket is none: quoted ones, and classes of characters."""


def _groups(bare: str) -> str:
    """The number of groups, where those parts are taken away: `(` less `(?`, and with `(?<` and `(?P<`."""

    def times(sign: str) -> str:
        return f"(length({bare}) - length(replace({bare}, '{sign}', ''))) / {len(sign)}"

    return f"CAST({times('(')} - {times('(?')} + {times('(?<')} + {times('(?P<')} AS INT)"


def _group(arguments: Sequence[str]) -> str:
    return arguments[2] if len(arguments) > 2 else "0"


def _extract(arguments: Sequence[str]) -> str:
    pattern, text = arguments[:2]
    return f"regexp_extract({text}, {pattern}, {_group(arguments)})"


def _extract_spark(arguments: Sequence[str]) -> str:
    if _lacks_group(arguments, "spark"):
        return "CAST(NULL AS STRING)"
    return f"CASE WHEN regexp_like({arguments[1]}, {arguments[0]}) THEN {_extract(arguments)} END"


def _extract_duckdb(arguments: Sequence[str]) -> str:
    if _lacks_group(arguments, "duckdb"):
        return "CAST(NULL AS VARCHAR)"
    return f"CASE WHEN regexp_matches({arguments[1]}, {arguments[0]}) THEN {_extract(arguments)} END"


def _lacks_group(arguments: Sequence[str], dialect: str) -> bool:
    """True if no expression has the group that is asked for, or this one, a constant, does not: engines refuse both."""
    group = int(re.sub(r"[() ]", "", _group(arguments)))
    expression = unquoted(arguments[0], dialect)
    return group < 0 or (expression is not None and _groups_of(expression) < group)


def _groups_of(expression: str) -> int:
    """How many groups a regular expression has: brackets outside of classes, but for `(?:…)` and its like."""
    without = re.sub(r"\\Q.*?(\\E|$)|\\.|\[\^?\]?(\\.|[^\]\\])*\]", "", expression, flags=re.DOTALL)
    return len(re.findall(r"\((?!\?)|\(\?P?<(?![=!])", without))


def _extract_all(arguments: Sequence[str]) -> str:
    return f"regexp_extract_all({arguments[1]}, {arguments[0]}, {_group(arguments)})"


def _extract_all_of(dialect: str) -> Callable[[Sequence[str]], str]:
    none = {"spark": "CAST(NULL AS ARRAY<STRING>)", "duckdb": "CAST(NULL AS VARCHAR[])"}[dialect]
    return lambda arguments: none if _lacks_group(arguments, dialect) else _extract_all(arguments)


def _masks(counted: bool) -> Signature:
    """(text[, count][, upper, lower, digit, other]): the mask of each class of characters; NULL leaves them."""

    def signature(name: str, types: Types) -> tuple[Types, SqlType]:
        first = (t.VARCHAR, t.INT) if counted else (t.VARCHAR,)
        count(name, types, len(first), len(first) + len(_MASKS))
        return takes(t.VARCHAR, *first, *[t.VARCHAR] * (len(types) - len(first)))(name, types)

    return signature


def _masked(dialect: str, text: str, masks: Sequence[str]) -> str:
    """Each character by the first one of its class's mask. Spark's own `mask` takes its masks from literals only."""
    given = [f"substring({mask}, 1, 1)" for mask in (*masks, *_MASKS[len(masks) :])]
    is_of = "rlike(__x, '^\\\\p{{{}}}$')" if dialect == "spark" else "regexp_full_match(__x, '\\p{{{}}}')"
    branches = " ".join(
        f"WHEN {is_of.format(characters)} THEN coalesce({mask}, __x)"
        for characters, mask in zip(("Lu", "Ll", "Nd"), given, strict=False)
    )
    each = f"CASE {branches} ELSE coalesce({given[3]}, __x) END"
    if dialect == "spark":
        return f"array_join(transform(regexp_extract_all({text}, '(?s).', 0), __x -> {each}), '')"
    return f"array_to_string(list_transform(regexp_extract_all({text}, '(?s).'), lambda __x: {each}), '')"


def _part_masked(name: str, dialect: str) -> Template:
    def write(arguments: Sequence[str]) -> str:
        text, length, *masks = arguments
        at_left = f"substring({text}, 1, {length})", f"substring({text}, least({length}, 2147483646) + 1)"
        # Counted from the right; a text that is too short leaves nothing.
        cut = f"greatest(length({text}) - {length}, 0)"
        at_right = f"substring({text}, 1, {cut})", f"substring({text}, {cut} + 1)"
        first, second = at_left if name.endswith("LEFT") else at_right
        if name in ("MASK_LEFT", "MASK_KEEP_RIGHT"):
            joined = f"{_masked(dialect, first, masks)} || {second}"
        else:
            joined = f"{first} || {_masked(dialect, second, masks)}"
        return f"CASE WHEN {length} >= 0 THEN {joined} END"

    return write


_COMPILED = tried("regexp_matches('', {0})")
_MOST_GROUPS = 9
"""DuckDB refuses the numbers beyond."""


def _checked(place: int, *, of_group: bool = False) -> Callable[[Sequence[str | None]], None]:
    """The check of a constant expression, and of the group after the text, by the engine that knows fewer of them."""

    def check(literals: Sequence[str | None]) -> None:
        group = literals[2] if of_group and len(literals) > 2 else None
        if group is not None and int(re.sub(r"[() ]", "", group)) > _MOST_GROUPS:
            raise InvalidQuery(f"there is no group {group}: RE2 gives those from 0 to {_MOST_GROUPS}")
        expression = literals[place]
        fault = _fault(expression) if expression is not None else None
        if fault is not None:
            raise InvalidQuery(f"'{expression}' is no regular expression: {fault}", hint="RE2's: no look-around")

    return check


@cache
def _fault(expression: str) -> str | None:
    """What is wrong with a regular expression, in RE2's words; None: nothing."""
    with duckdb.connect() as engine:
        try:
            engine.execute("SELECT regexp_extract_all('', ?)", [expression])
        except duckdb.Error as error:
            return str(error).splitlines()[0].rpartition("Error: ")[2]
    return None


PATTERNS = (
    Scalar(
        "REGEXP_EXTRACT",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.INT, optional=1),
        _extract_spark,
        _extract_duckdb,
        constant=(2,),
        check=_checked(0, of_group=True),
        fails=no_group,
    ),
    Scalar(
        "REGEXP_LIKE",
        takes(t.BOOLEAN, t.VARCHAR, t.VARCHAR),
        "regexp_like({0}, {1})",
        "regexp_matches({0}, {1})",
        check=_checked(1),
        fails=no_expression(1),
    ),
    Scalar(
        "REGEXP_EXTRACT_ALL",
        takes(t.array(t.VARCHAR), t.VARCHAR, t.VARCHAR, t.INT, optional=1),
        _extract_all_of("spark"),
        _extract_all_of("duckdb"),
        constant=(2,),
        check=_checked(0, of_group=True),
        fails=no_group,
    ),
    # A group of the match is `$1`.
    Scalar(
        "REGEXP_REPLACE",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.VARCHAR),
        "regexp_replace",
        "regexp_replace({0}, {1}, regexp_replace(replace({2}, '\\', '\\\\'), '\\$([0-9])', '\\\\\\1', 'g'), 'g')",
        check=_checked(1),
        fails=no_expression(1),
    ),
    Scalar(
        "REGEXP_SPLIT_TO_ARRAY",
        takes(t.array(t.VARCHAR), t.VARCHAR, t.VARCHAR),
        "CASE WHEN {1} = '' AND {0} <> '' THEN regexp_extract_all({0}, '(?s).', 0) ELSE split({0}, {1}) END",
        "regexp_split_to_array({0}, {1})",
        check=_checked(1),
        fails=no_expression(1),
    ),
    # A text that both engines read as a regular expression, or that only Spark would: it asks Java.
    Scalar(
        "IS_REGEXP",
        takes(t.BOOLEAN, t.VARCHAR),
        "(try_reflect('java.util.regex.Pattern', 'compile', {0}) IS NOT NULL OR {0} IS NULL)",
        lambda arguments: f"({_COMPILED(arguments)} IS NOT NULL OR {arguments[0]} IS NULL)",
        hidden=True,
    ),
    # The number of groups in a regular expression: its brackets but those that are quoted, in a class, or `(?:`.
    Scalar(
        "REGEXP_GROUPS",
        takes(t.INT, t.VARCHAR),
        _groups(f"regexp_replace({{0}}, {quoted(_NO_GROUPS, 'spark')}, '')"),
        _groups(f"regexp_replace({{0}}, {quoted(_NO_GROUPS, 'duckdb')}, '', 'g')"),
        hidden=True,
    ),
    Scalar(
        "MASK",
        _masks(counted=False),
        lambda arguments: _masked("spark", arguments[0], arguments[1:]),
        lambda arguments: _masked("duckdb", arguments[0], arguments[1:]),
    ),
    *(
        Scalar(name, _masks(counted=True), _part_masked(name, "spark"), _part_masked(name, "duckdb"))
        for name in ("MASK_LEFT", "MASK_RIGHT", "MASK_KEEP_LEFT", "MASK_KEEP_RIGHT")
    ),
)
