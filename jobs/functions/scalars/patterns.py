"""Functions with regular expressions, and the MASK functions.

The expressions are Java's for Spark and RE2's for DuckDB: the same except for what RE2 lacks (look-around,
back-references).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

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
from strandline.jobs.model.row_faults import RowFault
from strandline.jobs.model.types import SqlType

_MASKS = ("'X'", "'x'", "'n'", "'-'")


_NO_GROUPS = r"(?s)\\Q.*?\\E|\\.|\[\^?\]?([^\]\\]|\\.)*\]"
"""Parts of a regular expression in which a bracket is none: quoted ones, and classes of characters."""


def _groups(bare: str) -> str:
    """The number of groups, where those parts are taken away: `(` less `(?`, and with `(?<` and `(?P<`."""

    def times(sign: str) -> str:
        return f"(length({bare}) - length(replace({bare}, '{sign}', ''))) / {len(sign)}"

    return f"CAST({times('(')} - {times('(?')} + {times('(?<')} + {times('(?P<')} AS INT)"


_CLASSES = re.compile(r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]", re.DOTALL)
_IN_CLASS = re.compile(r"\[:(\^?)(\w+):\]|\\.|\[|&&", re.DOTALL)
_CLASS_IN_CLASS = r"\[\^?\]?([^\]\\\[]|\\.)*(\[|&&)"
"""What Java takes for a union or an intersection of classes, and RE2 for characters, or for the name of a class."""


_BRACES = (r"\\[pPx]\{[^}]*\}|" + _NO_GROUPS, r"[^({|]\{[0-9]+(,[0-9]*)?\}")
"""What may have braces in a regular expression: classes by name, quoted parts, and a number of times after a part. Java
refuses any other, which RE2 takes for characters."""


_REPLACED = {"spark": "regexp_replace({}, {}, 'x')", "duckdb": "regexp_replace({}, {}, 'x', 'g')"}


def _has_loose_brace(replace: str, dialect: str) -> str:
    """The condition that a brace means nothing, as an engine writes it; `replace` is its call that replaces all."""
    made = "{0}"
    for part in _BRACES:
        made = replace.format(made, quoted(part, dialect).replace("{", "{{").replace("}", "}}"))
    return f"contains({made}, '{{{{')"


def _java(expression: str) -> str:
    """A constant expression as Java reads it the way RE2 does: in a class `[` is a character, `[:alpha:]` a name."""
    text = unquoted(expression, "spark")
    if text is None or "[" not in text:
        return expression

    def part(found: re.Match[str]) -> str:
        if found[2] is not None:
            return rf"\{'P' if found[1] else 'p'}{{{_JAVA_NAMES.get(found[2], found[2].capitalize())}}}"
        return {"[": r"\[", "&&": r"&\&"}.get(found[0], found[0])

    def whole(found: re.Match[str]) -> str:
        return found[0] if found[0][0] != "[" else "[" + _IN_CLASS.sub(part, found[0][1:-1]) + "]"

    return quoted(_CLASSES.sub(whole, text), "spark")


_JAVA_NAMES = {"xdigit": "XDigit", "ascii": "ASCII"}


def _in_java(template: str, place: int) -> Template:
    """Spark's text of a call whose argument at that place is an expression."""
    return lambda arguments: template.format(
        *(_java(each) if number == place else each for number, each in enumerate(arguments))
    )


def _group(arguments: Sequence[str]) -> str:
    return arguments[2] if len(arguments) > 2 else "0"


def _extract(arguments: Sequence[str]) -> str:
    pattern, text = arguments[:2]
    return f"regexp_extract({text}, {pattern}, {_group(arguments)})"


def _extract_spark(arguments: Sequence[str]) -> str:
    if _lacks_group(arguments, "spark"):
        return "CAST(NULL AS STRING)"
    arguments = [_java(arguments[0]), *arguments[1:]]
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

    def write(arguments: Sequence[str]) -> str:
        if _lacks_group(arguments, dialect):
            return none
        return _extract_all([_java(arguments[0]), *arguments[1:]] if dialect == "spark" else arguments)

    return write


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
    import duckdb

    bare = expression
    for part in _BRACES:
        bare = re.sub(part.replace("(?s)", ""), "x", bare, flags=re.DOTALL)
    if "{" in bare:
        return "a brace in it is no number of times; a character it is as \\{"
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
        fault=RowFault.NO_PATTERN,
    ),
    Scalar(
        "REGEXP_LIKE",
        takes(t.BOOLEAN, t.VARCHAR, t.VARCHAR),
        _in_java("regexp_like({0}, {1})", 1),
        "regexp_matches({0}, {1})",
        check=_checked(1),
        fails=no_expression(1),
        fault=RowFault.NO_PATTERN,
        aliases=("REGEXP_MATCHES",),
    ),
    Scalar(
        "REGEXP_EXTRACT_ALL",
        takes(t.array(t.VARCHAR), t.VARCHAR, t.VARCHAR, t.INT, optional=1),
        _extract_all_of("spark"),
        _extract_all_of("duckdb"),
        constant=(2,),
        check=_checked(0, of_group=True),
        fails=no_group,
        fault=RowFault.NO_PATTERN,
    ),
    # A group of the match is `$1`.
    Scalar(
        "REGEXP_REPLACE",
        takes(t.VARCHAR, t.VARCHAR, t.VARCHAR, t.VARCHAR),
        _in_java("regexp_replace({0}, {1}, {2})", 1),
        "regexp_replace({0}, {1}, regexp_replace(replace({2}, '\\', '\\\\'), '\\$([0-9])', '\\\\\\1', 'g'), 'g')",
        check=_checked(1),
        fails=no_expression(1),
        fault=RowFault.NO_PATTERN,
    ),
    Scalar(
        "REGEXP_SPLIT_TO_ARRAY",
        takes(t.array(t.VARCHAR), t.VARCHAR, t.VARCHAR),
        _in_java(
            "CASE WHEN {1} = '' AND {0} <> '' THEN regexp_extract_all({0}, '(?s).', 0) ELSE split({0}, {1}) END", 1
        ),
        "CASE WHEN {1} IS NOT NULL THEN regexp_split_to_array({0}, {1}) END",
        check=_checked(1),
        fails=no_expression(1),
        fault=RowFault.NO_PATTERN,
    ),
    # A text that both engines read as a regular expression, or that only Spark would: it asks Java.
    Scalar(
        "IS_REGEXP",
        takes(t.BOOLEAN, t.VARCHAR),
        "(try_reflect('java.util.regex.Pattern', 'compile', {0}) IS NOT NULL"
        f" AND NOT regexp_like({{0}}, {quoted(_CLASS_IN_CLASS, 'spark')})"
        f" AND NOT {_has_loose_brace(_REPLACED['spark'], 'spark')} OR {{0}} IS NULL)",
        lambda arguments: (
            f"({_COMPILED(arguments)} IS NOT NULL"
            f" AND NOT regexp_matches({arguments[0]}, {quoted(_CLASS_IN_CLASS, 'duckdb')}) AND NOT "
            + _has_loose_brace(_REPLACED["duckdb"], "duckdb").format(arguments[0])
            + f" OR {arguments[0]} IS NULL)"
        ),
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
