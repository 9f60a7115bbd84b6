"""Functions of other dialects, each defined by an expression of the language.

    LIST_DISTINCT(a)      ARRAY_DISTINCT(FILTER(a, __x => __x IS NOT NULL))

`DEFINED` is the list: head and body, both text, so that the reference shows what a name means. `a`, `b`, … in the body
are the arguments. A name may have several heads, of different numbers of arguments. What depends on the types of the
arguments is a rewrite of its own below.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Final

from sqlglot import exp

from strandline.jobs.model.errors import NotSupported, TypeMismatch
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.expressions.times import constant_text
from strandline.jobs.sql.dialect import Strandline, fold, sql_of
from strandline.jobs.sql.from_text import parse_rule
from strandline.jobs.sql.trees import call

_THERE: Final = "__x => __x IS NOT NULL"
_SINES: Final = {
    "0e0": [("", 0), ("", 180), ("-", 180)],
    "0.5e0": [("", 30), ("", 150), ("-", 210), ("-", 330)],
    "-0.5e0": [("", 210), ("", 330), ("-", 30), ("-", 150)],
    "1e0": [("", 90), ("-", 270)],
    "-1e0": [("", 270), ("-", 90)],
}
"""The angles whose sine has no other digits, by it."""


def _joined_parts(names: str, *, day: bool) -> str:
    """The text of a time out of its parts, from the year or the hour on; where one is out of range, no time."""
    whole, second = names[:-1], names[-1]
    bounds = ("1 AND 9999", "1 AND 12", "1 AND 31", "0 AND 23", "0 AND 59")[-len(whole) :]
    known = " AND ".join(f"{name} BETWEEN {bound}" for name, bound in zip(whole, bounds, strict=True))
    padded = [f"LPAD(CAST({name} AS VARCHAR), {4 if name == 'a' and day else 2}, '0')" for name in whole]
    marks = ("-", "-", "T", ":", ":")[-len(whole) :]
    text = " || ".join(f"{part} || '{mark}'" for part, mark in zip(padded, marks, strict=True))
    seconds = f"CASE WHEN {second} < 10 THEN '0' ELSE '' END || CAST({second} AS VARCHAR)"
    wrong = " || '-' || ".join(f"CAST({name} AS VARCHAR)" for name in names)
    return f"CASE WHEN {known} AND {second} >= 0 AND {second} < 60 THEN {text} || {seconds} ELSE {wrong} END"


_SORTED: Final = f"ARRAY_SORT(FILTER(a, {_THERE}))"
_SPREAD: Final = "LIST_MOMENT2(a) <> 0e0"
"""Values that are all the same have no third or fourth moment that could be compared with their second."""

DEFINED: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Arrays: LIST_… are DuckDB's names, most of ARRAY_… PostgreSQL's.
        "LIST_EXTRACT(a, b)": "a[b]",
        "LIST_ELEMENT(a, b)": "a[b]",
        "ARRAY_EXTRACT(a, b)": "a[b]",
        "ELEMENT_AT(a, b)": "a[b]",
        "LIST_FIRST(a)": "a[1]",
        "LIST_LAST(a)": "a[-1]",
        "LIST_ANY_VALUE(a)": f"FILTER(a, {_THERE})[1]",
        "LIST_COUNT(a)": f"ARRAY_LENGTH(FILTER(a, {_THERE}))",
        "LIST_DISTINCT(a)": f"ARRAY_DISTINCT(FILTER(a, {_THERE}))",
        "LIST_UNIQUE(a)": f"ARRAY_LENGTH(ARRAY_DISTINCT(FILTER(a, {_THERE})))",
        "LIST_MIN(a)": "ARRAY_MIN(a)",
        "LIST_MAX(a)": "ARRAY_MAX(a)",
        "LIST_SORT(a)": "ARRAY_SORT(a)",
        "LIST_SORT(a, b)": "ARRAY_SORT(a, b)",
        "LIST_REVERSE_SORT(a)": "ARRAY_SORT(a, 'DESC')",
        **{f"{name}(a, b)": "ARRAY_CONCAT(a, b)" for name in ("LIST_CONCAT", "LIST_CAT", "ARRAY_CAT")},
        "LIST_CONCAT(a, b, c)": "ARRAY_CONCAT(ARRAY_CONCAT(a, b), c)",
        **{f"{name}(a, b)": "ARRAY_CONCAT(a, ARRAY[b])" for name in ("LIST_APPEND", "ARRAY_APPEND")},
        **{f"{name}(a, b)": "ARRAY_CONCAT(ARRAY[a], b)" for name in ("LIST_PREPEND", "ARRAY_PREPEND")},
        **{
            f"{name}(a, b)": f"ARRAY_LENGTH(ARRAY_INTERSECT(FILTER(a, {_THERE}), b)) > 0"
            for name in (
                *("LIST_HAS_ANY", "ARRAY_HAS_ANY", "ARRAYS_OVERLAP"),
                *("ARRAY_OVERLAPS", "ARRAY_IS_OVERLAP", "ARRAY_IS_INTERSECT"),
            )
        },
        **{
            f"{name}(a, b)": f"ARRAY_LENGTH(ARRAY_EXCEPT(FILTER(b, {_THERE}), a)) = 0"
            for name in ("LIST_HAS_ALL", "ARRAY_HAS_ALL")
        },
        "LIST_INTERSECT(a, b)": f"ARRAY_INTERSECT(FILTER(a, {_THERE}), b)",
        **{
            f"{name}(a, b)": "TRANSFORM(a, b)"
            for name in ("LIST_TRANSFORM", "LIST_APPLY", "ARRAY_TRANSFORM", "ARRAY_APPLY")
        },
        **{f"{name}(a, b)": "FILTER(a, b)" for name in ("LIST_FILTER", "ARRAY_FILTER")},
        "ARRAY_COMPACT(a)": f"FILTER(a, {_THERE})",
        "ARRAY_SIZE(a)": "CARDINALITY(a)",
        "ARRAY_REPEAT(a, b)": "TRANSFORM(CASE WHEN b > 0 THEN GENERATE_SERIES(1, b)"
        " WHEN b <= 0 THEN FILTER(ARRAY[1], __x => FALSE) END, __x => a)",
        "ARRAY_REPLACE(a, b, c)": "TRANSFORM(a, __x => CASE WHEN __x IS NOT DISTINCT FROM b THEN c ELSE __x END)",
        **{
            f"{name}(a, b)": "CASE WHEN a IS NULL AND b IS NULL THEN NULL WHEN CARDINALITY(a) > 0 OR CARDINALITY(b) > 0"
            " THEN TRANSFORM(GENERATE_SERIES(1, GREATEST(CARDINALITY(a), CARDINALITY(b))), __i => ROW(a[__i], b[__i]))"
            " ELSE FILTER(ARRAY[ROW(a[1], b[1])], __i => FALSE) END"
            for name in ("LIST_ZIP", "ARRAY_ZIP")
        },
        "LIST_SELECT(a, b)": "TRANSFORM(b, __x => a[__x])",
        "ANY_MATCH(a, b)": "CASE WHEN ARRAY_CONTAINS(TRANSFORM(a, b), TRUE) THEN TRUE"
        " WHEN ARRAY_LENGTH(FILTER(TRANSFORM(a, b), __x => __x IS NULL)) = 0 THEN FALSE END",
        "NONE_MATCH(a, b)": "CASE WHEN ARRAY_CONTAINS(TRANSFORM(a, b), TRUE) THEN FALSE"
        " WHEN ARRAY_LENGTH(FILTER(TRANSFORM(a, b), __x => __x IS NULL)) = 0 THEN TRUE END",
        **{
            f"{name}(a, b)": "CASE WHEN ARRAY_CONTAINS(TRANSFORM(a, b), FALSE) THEN FALSE"
            " WHEN ARRAY_LENGTH(FILTER(TRANSFORM(a, b), __x => __x IS NULL)) = 0 THEN TRUE END"
            for name in ("ALL_MATCH", "FORALL")
        },
        "AGGREGATE(a, b, c)": "REDUCE(a, b, c)",
        "SEQUENCE(a, b)": "GENERATE_SERIES(a, b)",
        "SEQUENCE(a, b, c)": "GENERATE_SERIES(a, b, c)",
        "SIZE(a)": "CARDINALITY(a)",
        "LIST_REDUCE(a, b)": "REDUCE(ARRAY_SLICE(a, 2, -1), a[1], b)",
        "LIST_REDUCE(a, b, c)": "CASE WHEN a IS NOT NULL THEN REDUCE(a, c, b) END",
        "ARRAY_TO_STRING(a, b)": f"CASE WHEN b IS NOT NULL THEN ARRAY_JOIN(FILTER(a, {_THERE}), b) END",
        "ARRAY_TO_STRING(a, b, c)": "CASE WHEN b IS NOT NULL THEN"
        " ARRAY_JOIN(FILTER(TRANSFORM(a, __x => COALESCE(CAST(__x AS VARCHAR), c)), __x => __x IS NOT NULL), b) END",
        "STRING_TO_ARRAY(a, b)": "CASE WHEN a = '' THEN FILTER(ARRAY[a], __x => FALSE)"
        " WHEN b = '' THEN ARRAY[a] WHEN b IS NULL THEN SPLIT(a, '') ELSE SPLIT(a, b) END",
        "STRING_TO_ARRAY(a, b, c)": "TRANSFORM(STRING_TO_ARRAY(a, b), __x => NULLIF(__x, c))",
        "LIST_PRODUCT(a)": f"CASE WHEN LIST_COUNT(a) > 0 THEN REDUCE(FILTER(a, {_THERE}), 1e0,"
        " (__s, __x) => __s * CAST(__x AS DOUBLE)) END",
        "LIST_MEDIAN(a)": f"CASE WHEN LIST_COUNT(a) > 0 THEN (CAST({_SORTED}[(LIST_COUNT(a) + 1) / 2] AS DOUBLE)"
        f" + CAST({_SORTED}[(LIST_COUNT(a) + 2) / 2] AS DOUBLE)) / 2e0 END",
        "LIST_MAD(a)": "TRANSFORM(ARRAY[LIST_MEDIAN(a)],"
        " __m => LIST_MEDIAN(TRANSFORM(a, __y => ABS(CAST(__y AS DOUBLE) - __m))))[1]",
        **{
            f"LIST_MOMENT{power}(a)": "TRANSFORM(ARRAY[LIST_AVG(a)], __m => LIST_SUM(TRANSFORM(a, __y => "
            + " * ".join(["(CAST(__y AS DOUBLE) - __m)"] * power)
            + ")))[1] / LIST_COUNT(a)"
            for power in (2, 3, 4)
        },
        "LIST_SKEWNESS(a)": f"CASE WHEN LIST_COUNT(a) > 2 AND {_SPREAD}"
        " THEN SQRT(CAST(LIST_COUNT(a) AS DOUBLE) * (LIST_COUNT(a) - 1)) / (LIST_COUNT(a) - 2) * LIST_MOMENT3(a)"
        " / (LIST_MOMENT2(a) * SQRT(LIST_MOMENT2(a))) END",
        "LIST_KURTOSIS(a)": f"CASE WHEN LIST_COUNT(a) > 3 AND {_SPREAD}"
        " THEN (CAST(LIST_COUNT(a) AS DOUBLE) - 1) / (CAST(LIST_COUNT(a) - 2 AS DOUBLE) * (LIST_COUNT(a) - 3))"
        " * ((LIST_COUNT(a) + 1) * (LIST_MOMENT4(a) / (LIST_MOMENT2(a) * LIST_MOMENT2(a)))"
        " - 3e0 * (LIST_COUNT(a) - 1)) END",
        "LIST_KURTOSIS_POP(a)": f"CASE WHEN LIST_COUNT(a) > 1 AND {_SPREAD}"
        " THEN LIST_MOMENT4(a) / (LIST_MOMENT2(a) * LIST_MOMENT2(a)) - 3e0 END",
        "LIST_WHERE(a, b)": "CASE WHEN CARDINALITY(b) > 0 AND a IS NOT NULL THEN LIST_SELECT(a,"
        " FILTER(GENERATE_SERIES(1, CARDINALITY(b)), __i => b[__i]))"
        " WHEN CARDINALITY(b) = 0 THEN FILTER(a, __x => FALSE) END",
        "LIST_RESIZE(a, b)": "LIST_RESIZE(a, b, NULL)",
        "LIST_RESIZE(a, b, c)": "CASE WHEN a IS NOT NULL AND b > 0 THEN TRANSFORM(GENERATE_SERIES(1, b),"
        " __i => CASE WHEN __i <= CARDINALITY(a) THEN a[__i] ELSE c END) WHEN b = 0 THEN FILTER(a, __x => FALSE) END",
        **{
            f"{name}(a, b)": "CASE WHEN LENGTH(a) > 0 AND LENGTH(a) = LENGTH(b) THEN CARDINALITY(FILTER("
            "GENERATE_SERIES(1, LENGTH(a)), __i => SUBSTRING(a, __i, 1) <> SUBSTRING(b, __i, 1)))"
            " ELSE CAST(CASE WHEN a = '' AND b = '' THEN '0' ELSE a || ' is not as long as ' || b END AS INT) END"
            for name in ("MISMATCHES", "HAMMING")
        },
        # Maps and structs.
        "MAP_EXTRACT(a, b)": "CASE WHEN MAP_CONTAINS(a, b) THEN ARRAY[a[b]]"
        " WHEN a IS NOT NULL THEN FILTER(ARRAY[a[b]], __x => FALSE) END",
        "MAP_ENTRIES(a)": "TRANSFORM(ENTRIES(a), __x => STRUCT(key := __x->k, value := __x->v))",
        **{
            f"{name}(a, b)": "CASE WHEN a IS NOT NULL THEN ARRAY_CONTAINS(MAP_KEYS(a), b) END"
            for name in ("MAP_CONTAINS", "MAP_CONTAINS_KEY")
        },
        "MAP_CONCAT(a, b)": "MAP_UNION(a, b)",
        "MAP_EXTRACT_VALUE(a, b)": "a[b]",
        "MAP_FILTER(a, b)": "FILTER(a, b)",
        "TRANSFORM_KEYS(a, b)": "TRANSFORM(a, b, (__k, __v) => __v)",
        "TRANSFORM_VALUES(a, b)": "TRANSFORM(a, (__k, __v) => __k, b)",
        "MAP_FROM_ARRAYS(a, b)": "AS_MAP(a, b)",
        "STRUCT_EXTRACT(a, b)": "DEREFERENCE(a, b)",
        # Numbers.
        "LOG10(a)": "LOG(10, a)",
        "LOG2(a)": "LOG(2, a)",
        "ISNAN(a)": "CAST(a AS DOUBLE) = CAST('NaN' AS DOUBLE)",
        "ISINF(a)": "ABS(CAST(a AS DOUBLE)) = CAST('Infinity' AS DOUBLE)",
        "ISFINITE(a)": "ABS(CAST(a AS DOUBLE)) < CAST('Infinity' AS DOUBLE)",
        "SIND(a)": "CASE CAST(a AS DOUBLE) % 360e0"
        + "".join(f" WHEN {sign}{angle}e0 THEN {value}" for value, angles in _SINES.items() for sign, angle in angles)
        + " ELSE SIN(RADIANS(CAST(a AS DOUBLE) % 360e0)) END",
        "COSD(a)": "SIND(90e0 - ABS(CAST(a AS DOUBLE) % 360e0))",
        "TAND(a)": "CASE WHEN COSD(a) <> 0e0 THEN SIND(a) / COSD(a) WHEN SIND(a) > 0e0 THEN CAST('Infinity' AS DOUBLE)"
        " WHEN SIND(a) < 0e0 THEN CAST('-Infinity' AS DOUBLE) END",
        "COTD(a)": "CASE WHEN SIND(a) <> 0e0 THEN COSD(a) / SIND(a) WHEN COSD(a) > 0e0 THEN CAST('Infinity' AS DOUBLE)"
        " WHEN COSD(a) < 0e0 THEN CAST('-Infinity' AS DOUBLE) END",
        # By the arc of an angle that is known, so that 0.5 and 1 have no other digits.
        "ASIND(a)": "CASE WHEN ABS(CAST(a AS DOUBLE)) <= 0.5e0 THEN ASIN(a) / ASIN(0.5e0) * 30e0"
        " WHEN a > 0 THEN 90e0 - ACOS(a) / ACOS(0.5e0) * 60e0 ELSE ACOS(-a) / ACOS(0.5e0) * 60e0 - 90e0 END",
        "ACOSD(a)": "CASE WHEN ABS(CAST(a AS DOUBLE)) <= 0.5e0 THEN 90e0 - ASIN(a) / ASIN(0.5e0) * 30e0"
        " WHEN a > 0 THEN ACOS(a) / ACOS(0.5e0) * 60e0 ELSE 90e0 + (90e0 - ACOS(-a) / ACOS(0.5e0) * 60e0) END",
        "ATAND(a)": "ATAN(a) / ATAN(1e0) * 45e0",
        "ATAN2D(a, b)": "ATAN2(a, b) / ATAN(1e0) * 45e0",
        "EVEN(a)": "CASE WHEN a >= 0 THEN CEIL(CAST(a AS DOUBLE) / 2e0) ELSE FLOOR(CAST(a AS DOUBLE) / 2e0) END * 2e0",
        "FDIV(a, b)": "FLOOR(CAST(a AS DOUBLE) / CAST(b AS DOUBLE))",
        "FMOD(a, b)": "CAST(a AS DOUBLE) - FDIV(a, b) * CAST(b AS DOUBLE)",
        "LCM(a, b)": "CASE WHEN a = 0 OR b = 0 THEN a * b ELSE ABS(a / GCD(a, b) * b) END",
        "PMOD(a, b)": "CASE WHEN a % b < 0 THEN (a % b + b) % b ELSE a % b END",
        "NEGATIVE(a)": "-a",
        **{f"{name}(a, b)": f"a {sign} b" for name, sign in (("BITAND", "&"), ("BITOR", "|"), ("BITXOR", "#"))},
        "BITNOT(a)": "~a",
        "IIF(a, b, c)": "IF(a, b, c)",
        "ISNULL(a)": "a IS NULL",
        "ISNOTNULL(a)": "a IS NOT NULL",
        "EQUAL_NULL(a, b)": "a IS NOT DISTINCT FROM b",
        "CONSTANT_OR_NULL(a, b)": "CASE WHEN b IS NOT NULL THEN a END",
        # Texts.
        "BIT_LENGTH(a)": "OCTET_LENGTH(a) * 8",
        "STRLEN(a)": "OCTET_LENGTH(a)",
        **{f"{name}(a)": "CASE WHEN a = '' THEN -1 ELSE ASCII(a) END" for name in ("UNICODE", "ORD")},
        "LOCATE(a, b)": "STRPOS(b, a)",
        "CHARINDEX(a, b)": "STRPOS(b, a)",
        "MID(a, b, c)": "SUBSTRING(a, b, c)",
        "SPACE(a)": "REPEAT(' ', a)",
        "STARTSWITH(a, b)": "STARTS_WITH(a, b)",
        "ENDSWITH(a, b)": "ENDS_WITH(a, b)",
        "SUBSTRING_INDEX(a, b, c)": "CASE WHEN b = '' OR c = 0 THEN LEFT(a, 0)"
        " WHEN a IS NOT NULL AND c > 0 THEN ARRAY_JOIN(ARRAY_SLICE(SPLIT(a, b), 1, c), b) WHEN a IS NOT NULL AND c < 0"
        " THEN ARRAY_JOIN(ARRAY_SLICE(SPLIT(a, b), GREATEST(ARRAY_LENGTH(SPLIT(a, b)) + c + 1, 1), -1), b) END",
        "FIND_IN_SET(a, b)": "CASE WHEN INSTR(a, ',') > 0 AND b IS NOT NULL THEN 0"
        " WHEN a IS NOT NULL AND b IS NOT NULL THEN COALESCE(ARRAY_POSITION(SPLIT(b, ','), a), 0) END",
        "URL_ENCODE(a)": "REPLACE(REPLACE(REPLACE(URL_ENCODE_PARAM(a), '+', '%20'), '*', '%2A'), '%7E', '~')",
        "URL_DECODE(a)": "URL_DECODE_PARAM(REPLACE(a, '+', '%2B'))",
        "LOCATE(a, b, c)": "CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN INSTR(b, a, c) END",
        "OVERLAY(a, b, c)": "LEFT(a, GREATEST(c - 1, 0)) || b || SUBSTRING(a, c + LENGTH(b))",
        "OVERLAY(a, b, c, d)": "LEFT(a, GREATEST(c - 1, 0)) || b"
        " || CASE WHEN c + d < 1 THEN a ELSE SUBSTRING(a, c + d) END",
        **{f"{name}(a, b)": "REGEXP_LIKE(a, b)" for name in ("RLIKE", "REGEXP")},
        "REGEXP_SUBSTR(a, b)": "REGEXP_EXTRACT(b, a)",
        "REGEXP_COUNT(a, b)": "ARRAY_LENGTH(REGEXP_EXTRACT_ALL(b, a))",
        **{
            f"{name}(a, b)": "CASE WHEN a IS NULL THEN NULL WHEN b IS NULL THEN ARRAY[a] ELSE SPLIT(a, b) END"
            for name in ("STRING_SPLIT", "STR_SPLIT")
        },
        **{f"{name}(a, b)": "REGEXP_SPLIT_TO_ARRAY(a, b)" for name in ("STRING_SPLIT_REGEX", "STR_SPLIT_REGEX")},
        # Bytes.
        **{f"{name}(a)": "FROM_BYTES(a, 'base64')" for name in ("BASE64", "TO_BASE64")},
        "FROM_BASE64(a)": "TO_BYTES(a, 'base64')",
        **{f"{name}(a)": "TO_BYTES(a, 'hex')" for name in ("UNHEX", "FROM_HEX")},
        "CONVERT_FROM(a, b)": "FROM_BYTES(CAST(a AS BYTES), b)",
        "CONVERT_TO(a, b)": "TO_BYTES(a, b)",
        # Dates and times.
        "MAKE_DATE(a, b, c)": "CAST(CASE WHEN a BETWEEN 1 AND 9999 AND b BETWEEN 1 AND 12 AND c BETWEEN 1 AND 31 THEN"
        " LPAD(CAST(a AS VARCHAR), 4, '0') || '-' || LPAD(CAST(b AS VARCHAR), 2, '0') || '-'"
        " || LPAD(CAST(c AS VARCHAR), 2, '0') ELSE CAST(a AS VARCHAR) || '-' || CAST(b AS VARCHAR) || '-'"
        " || CAST(c AS VARCHAR) || ' is no date' END AS DATE)",
        "MAKE_TIMESTAMP(a, b, c, d, e, f)": f"CAST({_joined_parts('abcdef', day=True)} AS TIMESTAMP)",
        "MAKE_TIME(a, b, c)": f"CAST({_joined_parts('abc', day=False)} AS TIME)",
        "EPOCH_NS(a)": "EPOCH_US(CAST(a AS TIMESTAMP)) * CAST(1000 AS BIGINT)",
        "JULIAN(a)": "EPOCH(a) / 86400e0 + 2440588e0",
        "UNIX_SECONDS(a)": "EXTRACT(EPOCH FROM CAST(a AS TIMESTAMP))",
        "UNIX_MILLIS(a)": "UNIX_TIMESTAMP(CAST(a AS TIMESTAMP))",
        "TIMESTAMP_SECONDS(a)": "FROM_UNIXTIME(a * CAST(1000 AS BIGINT))",
        "TIMESTAMP_MILLIS(a)": "FROM_UNIXTIME(a)",
        "DATE_FORMAT(a, b)": "FORMAT_TIMESTAMP(CAST(a AS TIMESTAMP), b)",
        "FROM_UTC_TIMESTAMP(a, b)": "CONVERT_TZ(CAST(a AS TIMESTAMP), 'UTC', b)",
        "TO_UTC_TIMESTAMP(a, b)": "CONVERT_TZ(CAST(a AS TIMESTAMP), b, 'UTC')",
        "JSON_VALID(a)": "IS_JSON_STRING(a)",
        "EPOCH(a)": "CAST(EPOCH_US(CAST(a AS TIMESTAMP)) AS DOUBLE) / 1e6",
        "DAYNAME(a)": "FORMAT_DATE(CAST(a AS DATE), 'EEEE')",
        "MONTHNAME(a)": "FORMAT_DATE(CAST(a AS DATE), 'MMMM')",
        "YEARWEEK(a)": "EXTRACT(ISOYEAR FROM a) * 100 + EXTRACT(WEEK FROM a)",
        **{
            f"{part}(a)": f"EXTRACT({part} FROM a)"
            for part in ("ISODOW", "ISOYEAR", "DECADE", "CENTURY", "MILLENNIUM", "MILLISECOND", "MICROSECOND")
        },
    }
)
"""{a call of the function: what it means}."""

_HEAD: Final = re.compile(r"(\w+)\((.*)\)")


@cache
def _bodies(name: str) -> Mapping[int, tuple[tuple[str, ...], exp.Expr]]:
    """What a function means, by the number of its arguments: their names, and the tree."""
    found: dict[int, tuple[tuple[str, ...], exp.Expr]] = {}
    for head, body in DEFINED.items():
        matched = _HEAD.fullmatch(head)
        assert matched is not None
        if matched[1] == name:
            names = tuple(matched[2].split(", "))
            found[len(names)] = names, tree_of(body)
    return found


def tree_of(text: str) -> exp.Expr:
    """The tree of an expression of the language, without the places where it was written."""
    tree = fold(parse_rule(text, Strandline.Parser._parse_disjunction))  # noqa: SLF001 - the rule of one expression
    for node in tree.walk():
        node.meta.clear()
    return tree


def _defined(node: exp.Anonymous, typed: Infer) -> Typed:
    bodies = _bodies(node.name)
    if len(node.expressions) not in bodies:
        wanted = " or ".join(map(str, sorted(bodies)))
        raise TypeMismatch(
            f"{node.name} takes {wanted} argument{'' if wanted == '1' else 's'}, not {len(node.expressions)}"
        )
    names, body = bodies[len(node.expressions)]
    return typed(_over(body, dict(zip(names, node.expressions, strict=True))))


def _by(body: str, node: exp.Anonymous, typed: Infer) -> Typed:
    """The expression `body` over the arguments `a`, `b`, … of a call."""
    return typed(_over(tree_of(body), dict(zip("abcd", node.expressions, strict=False))))


def _over(body: exp.Expr, given: Mapping[str, exp.Expr]) -> exp.Expr:
    """A tree with these arguments in the place of their names."""

    def argument(inner: exp.Expr) -> exp.Expr:
        if not isinstance(inner, exp.Column) or inner.name not in given:
            return inner
        return closed(given[inner.name].copy())

    return closed(body.copy().transform(argument))


def closed(node: exp.Expr) -> exp.Expr:
    """An expression as it may stand beside any operator."""
    return node if isinstance(node, _CLOSED) else exp.Paren(this=node)


_CLOSED: Final = (
    *(exp.Column, exp.Literal, exp.Anonymous, exp.Lambda, exp.Null, exp.Boolean, exp.Paren, exp.Array, exp.Bracket),
    *(exp.Case, exp.Cast, exp.TryCast, exp.PropertyEQ),
)
"""What needs no brackets, whatever stands beside it."""


# What depends on the types of the arguments.


def _sum_of_items(node: exp.Anonymous, typed: Infer) -> Typed:
    """LIST_SUM(a): of the items that are not NULL; NULL where there are none. A sum of INTs is a BIGINT, as SUM's."""
    items = _array(node, typed)
    zero = {
        BaseType.INT: "CAST(0 AS BIGINT)",
        BaseType.BIGINT: "CAST(0 AS BIGINT)",
        BaseType.DOUBLE: "0e0",
        BaseType.NULL: "CAST(0 AS BIGINT)",
    }.get(items.type.args[0].base)
    if zero is None:
        raise TypeMismatch(f"{node.name} takes an ARRAY of INT, BIGINT or DOUBLE, not {items.type}")
    there = f"FILTER(a, {_THERE})"
    return _by(
        f"CASE WHEN ARRAY_LENGTH({there}) > 0 THEN REDUCE({there}, {zero}, (__s, __x) => __s + __x) END",
        node,
        typed,
    )


def _mean_of_items(node: exp.Anonymous, typed: Infer) -> Typed:
    """LIST_AVG(a): a DOUBLE; NULL where all items are."""
    _array(node, typed)
    return _by("CAST(LIST_SUM(a) AS DOUBLE) / LIST_COUNT(a)", node, typed)


_OF_ITEMS: Final = {
    "sum": "LIST_SUM(a)",
    "avg": "LIST_AVG(a)",
    "mean": "LIST_AVG(a)",
    "min": "LIST_MIN(a)",
    "max": "LIST_MAX(a)",
    "count": "LIST_COUNT(a)",
    "first": "LIST_FIRST(a)",
    "last": "LIST_LAST(a)",
    "any_value": "LIST_ANY_VALUE(a)",
}


def _aggregate_of_items(node: exp.Anonymous, typed: Infer) -> Typed:
    """LIST_AGGREGATE(a, 'sum'): LIST_SUM(a); likewise avg, min, max, count, first, last and any_value."""
    named = constant_text(node.expressions[1]) if len(node.expressions) == 2 else None
    body = _OF_ITEMS.get((named or "").lower())
    if body is None:
        raise NotSupported(
            f"{sql_of(node)} is not supported", hint=f"LIST_AGGREGATE(a, 'sum'), or one of {', '.join(_OF_ITEMS)}"
        )
    return _by(body, exp.Anonymous(this=node.name, expressions=node.expressions[:1]), typed)


def _array(node: exp.Anonymous, typed: Infer) -> Typed:
    if len(node.expressions) != 1:
        raise TypeMismatch(f"{node.name} takes 1 argument, not {len(node.expressions)}")
    items = typed(node.expressions[0])
    if items.type.base is not BaseType.ARRAY:
        raise TypeMismatch(f"argument 1 of {node.name} must be an ARRAY, not {items.type}")
    return items


def _of_entries(node: exp.Anonymous, typed: Infer) -> Typed:
    """MAP_FROM_ENTRIES(a): of an array of STRUCTs of a key and a value, whatever their names."""
    items = _array(node, typed)
    fields = [name for name, _ in items.type.args[0].fields]
    if len(fields) != 2:
        raise TypeMismatch(f"{node.name} takes an ARRAY of STRUCTs of a key and a value, not {items.type}")
    key, value = (exp.to_identifier(each).sql(dialect=Strandline) for each in fields)
    return _by(f"AS_MAP(TRANSFORM(a, __x => __x->{key}), TRANSFORM(a, __x => __x->{value}))", node, typed)


def _struct_pack(node: exp.Anonymous, typed: Infer) -> Typed:
    """STRUCT_PACK(a := 1): STRUCT(a := 1)."""
    return typed(exp.Anonymous(this="STRUCT", expressions=[each.copy() for each in node.expressions]))


def _hexadecimal(node: exp.Anonymous, typed: Infer) -> Typed:
    """HEX(a): the hexadecimal digits of BYTES, of a VARCHAR those of its UTF-8."""
    if len(node.expressions) != 1:
        raise TypeMismatch(f"HEX takes 1 argument, not {len(node.expressions)}")
    base = typed(node.expressions[0]).type.base
    if base not in (BaseType.BYTES, BaseType.VARCHAR, BaseType.NULL):
        raise TypeMismatch(f"HEX takes BYTES or a VARCHAR, not {base.value}")
    return _by(
        "FROM_BYTES(a, 'hex')" if base is BaseType.BYTES else "FROM_BYTES(TO_BYTES(a, 'utf8'), 'hex')", node, typed
    )


def _full_match(node: exp.Anonymous, typed: Infer) -> Typed:
    """REGEXP_FULL_MATCH(text, pattern): the pattern matches the whole text."""
    if len(node.expressions) != 2:
        raise TypeMismatch(f"REGEXP_FULL_MATCH takes 2 arguments, not {len(node.expressions)}")
    text, pattern = node.expressions
    known = constant_text(pattern)
    if known is not None and not isinstance(pattern, exp.Null):
        return typed(call("REGEXP_LIKE", text, exp.Literal.string(rf"^(?:{known})\z")))
    return _by(r"REGEXP_LIKE(a, '^(?:' || b || ')\z')", node, typed)


def _in_milliseconds(node: exp.Anonymous, typed: Infer) -> Typed:
    """EPOCH_MS(at): milliseconds since 1970; of a number of them the TIMESTAMP, as in DuckDB."""
    if len(node.expressions) != 1:
        raise TypeMismatch(f"EPOCH_MS takes 1 argument, not {len(node.expressions)}")
    whole = typed(node.expressions[0]).type.base in (BaseType.INT, BaseType.BIGINT)
    return _by("FROM_UNIXTIME(a)" if whole else "UNIX_TIMESTAMP(CAST(a AS TIMESTAMP))", node, typed)


_PLACES: Final = {
    "printf": re.compile(r"%[%sdi]"),
    "%s": re.compile(r"%[%s]"),
    "{}": re.compile(r"\{\{|\}\}|\{\}"),
}
"""What stands for something else in a pattern, by the form of the pattern."""
_ALONE: Final = {"printf": "%", "%s": "%", "{}": "{}"}
_WRITTEN_ALIKE: Final = (BaseType.VARCHAR, BaseType.INT, BaseType.BIGINT, BaseType.DECIMAL, BaseType.NULL)
_WHOLE: Final = (BaseType.INT, BaseType.BIGINT, BaseType.NULL)


def _formatted(node: exp.Anonymous, typed: Infer) -> Typed:
    """FORMAT('%s is %s', a, b), as PostgreSQL has it, where NULL is no text; FORMAT('{} is {}', a, b) and
    PRINTF('%s is %d', a, b), DuckDB's, which are NULL where an argument is."""
    pattern = constant_text(node.expressions[0]) if node.expressions else None
    if pattern is None:
        raise NotSupported(f"the pattern of {node.name} is a constant", hint=f"{node.name}('%s', a)")
    form = "printf" if node.name == "PRINTF" else "{}" if "{" in pattern else "%s"
    made: exp.Expr = exp.Literal.string("")
    given, at = iter(node.expressions[1:]), 0
    for found in _PLACES[form].finditer(pattern):
        between, at = pattern[at : found.start()], found.end()
        sign = found[0] in ("%%", "{{", "}}")
        part = exp.Literal.string(found[0][0]) if sign else _in_place(node, found[0], next(given, None), typed)
        if any(sign in between for sign in _ALONE[form]):
            break
        made = exp.DPipe(this=exp.DPipe(this=made, expression=exp.Literal.string(between), safe=True), expression=part)
    if any(sign in pattern[at:] for sign in _ALONE[form]) or at < 0:
        raise NotSupported(f"{sql_of(node)} is not supported", hint="plain places: %s, %d in PRINTF, {} in FORMAT")
    return typed(exp.DPipe(this=made, expression=exp.Literal.string(pattern[at:]), safe=True))


def _in_place(node: exp.Anonymous, place: str, value: exp.Expr | None, typed: Infer) -> exp.Expr:
    """The text of an argument of FORMAT and PRINTF."""
    if value is None:
        raise TypeMismatch(f"{node.name} has more places than arguments: {sql_of(node)}")
    base = typed(value).type.base
    if base not in (_WRITTEN_ALIKE if place in ("%s", "{}") else _WHOLE):
        raise NotSupported(f"{node.name} of {base.value} at {place} is not supported", hint="CAST(a AS VARCHAR)")
    text = exp.Cast(this=value.copy(), to=exp.DataType(this=exp.DType.VARCHAR))
    return call("COALESCE", text, exp.Literal.string("")) if node.name == "FORMAT" and place == "%s" else text


def _field_of(node: exp.Anonymous, typed: Infer) -> Typed:
    """STRUCT_POSITION(a, x): the number, from 1, of the field of a STRUCT that has the value; STRUCT_CONTAINS(a,
    x) says whether there is one."""
    if len(node.expressions) != 2:
        raise TypeMismatch(f"{node.name} takes 2 arguments, not {len(node.expressions)}")
    fields = [exp.to_identifier(name).sql(dialect=Strandline) for name, _ in typed(node.expressions[0]).type.fields]
    if not fields:
        raise TypeMismatch(f"argument 1 of {node.name} must be a STRUCT: {sql_of(node)}")
    places = " ".join(f"WHEN a->{name} IS NOT DISTINCT FROM b THEN {at}" for at, name in enumerate(fields, 1))
    contains = node.name in ("STRUCT_CONTAINS", "STRUCT_HAS")
    nothing = "a IS NULL OR b IS NULL" if contains else "a IS NULL"
    found = f"CASE WHEN {nothing} THEN NULL {places} {'ELSE 0 ' if contains else ''}END"
    return _by(f"{found} > 0" if contains else found, node, typed)


BY_TYPE: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    **dict.fromkeys(("FORMAT", "PRINTF"), _formatted),
    **dict.fromkeys(("STRUCT_POSITION", "STRUCT_INDEXOF", "STRUCT_CONTAINS", "STRUCT_HAS"), _field_of),
    **dict.fromkeys(("LIST_SUM", "ARRAY_SUM"), _sum_of_items),
    **dict.fromkeys(("LIST_AVG", "ARRAY_AVG"), _mean_of_items),
    **dict.fromkeys(("LIST_AGGREGATE", "LIST_AGGR", "ARRAY_AGGREGATE"), _aggregate_of_items),
    "MAP_FROM_ENTRIES": _of_entries,
    "STRUCT_PACK": _struct_pack,
    "HEX": _hexadecimal,
    "REGEXP_FULL_MATCH": _full_match,
    "EPOCH_MS": _in_milliseconds,
}
"""The rewrite of each function whose meaning depends on the types, by name."""


# Calls of functions of ours in another dialect's form; None: it is ours.


def _encoded(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """ENCODE(bytes, 'hex'), as PostgreSQL has it, and ENCODE(text), DuckDB's: the bytes of a text."""
    match len(node.expressions):
        case 1:
            return _by("TO_BYTES(a, 'utf8')", node, typed)
        case 2:
            text = (constant_text(node.expressions[1]) or "").lower()
            body = "LCASE(FROM_BYTES(a, b))" if text == "hex" else "FROM_BYTES(a, b)"
            return _by(body, node, typed)
    return None


def _decoded(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """DECODE(text, 'hex'), as PostgreSQL has it, and DECODE(bytes), DuckDB's: the text of bytes."""
    match len(node.expressions):
        case 1:
            return _by("FROM_BYTES(a, 'utf8')", node, typed)
        case 2:
            return _by("TO_BYTES(a, b)", node, typed)
    return None


def _with_flags(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """REGEXP_REPLACE(text, pattern, new, 'g'): every match, which is what is meant without it too."""
    if len(node.expressions) != 4:
        return None
    text, pattern, new, flags = node.expressions
    named, known = constant_text(flags), constant_text(pattern)
    if named is None or "g" not in named or set(named) - set("gi") or ("i" in named and known is None):
        raise NotSupported(
            f"{sql_of(node)} is not supported",
            hint="REGEXP_REPLACE replaces every match, as its flag 'g' says; '(?i)…' is a pattern in any case",
        )
    wanted = exp.Literal.string(f"(?i){known}") if "i" in named else pattern
    return typed(call("REGEXP_REPLACE", text, wanted, new))


def _slice_of_text(node: exp.Anonymous, typed: Infer) -> Typed | None:
    """ARRAY_SLICE(text, 1, 2) and text[1:2], DuckDB's: those of its characters."""
    if len(node.expressions) != 3 or typed(node.expressions[0]).type.base is not BaseType.VARCHAR:
        return None
    known = "a IS NOT NULL AND b IS NOT NULL AND c IS NOT NULL"
    return _by(f"CASE WHEN {known} THEN ARRAY_JOIN(ARRAY_SLICE(SPLIT(a, ''), b, c), '') END", node, typed)


IN_OTHER_FORMS: Mapping[str, Callable[[exp.Anonymous, Infer], Typed | None]] = {
    "ENCODE": _encoded,
    "DECODE": _decoded,
    "REGEXP_REPLACE": _with_flags,
    "ARRAY_SLICE": _slice_of_text,
}
"""Functions of ours, by name, of which other dialects have other forms."""

OTHER_DIALECTS: Mapping[str, Callable[[exp.Anonymous, Infer], Typed]] = {
    **{head.partition("(")[0]: _defined for head in DEFINED},
    **BY_TYPE,
}
"""The rewrite of each function, by name."""
