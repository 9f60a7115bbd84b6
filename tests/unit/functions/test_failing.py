"""Expressions that fail on some rows: whether one fails is said without failing, and exactly."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import duckdb
import pytest
from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.functions.failing import can_fail, failing, in_words, lenient, strict
from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from tests.support.parsed import parse_expression
from tests.support.rule_harness import insert

COLUMNS = (("a", t.INT), ("b", t.INT), ("s", t.VARCHAR), ("d", t.decimal(38, 2)), ("l", t.BIGINT), ("x", t.DOUBLE))
SCOPE = Scope(Relation("r", COLUMNS, "append"), ("r",))

# text -> whether it fails, in Python's words.
EXPRESSIONS: dict[str, Any] = {
    "a / b": lambda a, b, s, d: b == 0 and a is not None,
    "a % b": lambda a, b, s, d: b == 0 and a is not None,
    "a + b": lambda a, b, s, d: a is not None and b is not None and not -(2**31) <= a + b < 2**31,
    "a * b - 1": lambda a, b, s, d: None not in (a, b) and not (-(2**31) <= a * b < 2**31 and a * b - 1 >= -(2**31)),
    "CAST(s AS INT)": lambda a, b, s, d: s == "x",
    "TRY_CAST(s AS INT)": lambda a, b, s, d: False,
    "EXTRACT(YEAR FROM CAST(s || '4-01-01' AS TIMESTAMP))": lambda a, b, s, d: s is not None,
    "DATE_TRUNC('day', CAST(s || '4-01-01' AS TIMESTAMP))": lambda a, b, s, d: s is not None,
    "DATE_TRUNC('day', TRY_CAST(s AS TIMESTAMP))": lambda a, b, s, d: False,
    "CAST(s AS INT) / b": lambda a, b, s, d: s == "x" or (b == 0 and s is not None),
    "b <> 0 AND a / b > 1": lambda a, b, s, d: False,
    "b = 0 OR a / b > 1": lambda a, b, s, d: False,
    "CASE WHEN b = 0 THEN 0 ELSE a / b END": lambda a, b, s, d: False,
    "CASE WHEN b > 0 THEN a ELSE a / b END": lambda a, b, s, d: b == 0 and a is not None,
    "CASE WHEN s = 'x' THEN CAST(s AS INT) END": lambda a, b, s, d: s == "x",
    "CASE WHEN b = 0 THEN 0 WHEN a / b > 1 THEN 1 ELSE 2 END": lambda a, b, s, d: False,
    "CASE WHEN b > 0 THEN 0 WHEN a / b > 1 THEN 1 WHEN a % b = 0 THEN 2 END": lambda a, b, s, d: (
        b == 0 and a is not None
    ),
    "CASE WHEN a / b > 1 THEN 1 WHEN b = 0 THEN 2 END": lambda a, b, s, d: b == 0 and a is not None,
    "COALESCE(a / b, 1)": lambda a, b, s, d: b == 0 and a is not None,
    "REDUCE(ARRAY[1, b], a, (s, x) => s + x)": lambda a, b, s, d: (
        a is not None and (a + 1 >= 2**31 or (b is not None and not -(2**31) <= a + 1 + b < 2**31))
    ),
    "REDUCE(ARRAY[b, 1], 1, (s, x) => COALESCE(s / x, 7))": lambda a, b, s, d: b == 0,
    "d + d": lambda a, b, s, d: d is not None and abs(2 * d) >= 10**36,
}
SMALLEST = {"a": -(2**31), "l": -(2**63)}
# The same, of one value each: text -> (value, does it fail).
AT_THE_END: dict[str, list[tuple[str, Any, bool]]] = {
    **{
        text.format(name): [(name, least, True), (name, least + 1, False), (name, None, False)]
        for name, least in SMALLEST.items()
        for text in ("-{0}", "ABS({0})", "{0} / (0 - 1)", "-({0}) + 0", "CASE WHEN {0} < 0 THEN ABS({0}) END")
    },
    "a / CAST(0 - 1 AS BIGINT)": [("a", -(2**31), False)],
    "ROUND(x)": [("x", 1e308, True), ("x", -1e19, True), ("x", 9e18, False), ("x", math.nan, True), ("x", -1.5, False)],
    "TRUNC(x)": [("x", 1e308, True), ("x", 2.5, False)],
    "ROUND(x, 2)": [("x", 1e308, False), ("x", 1.255, False)],
    "FLOOR(x)": [("x", 1e308, False)],
    "FROM_UNIXTIME(l)": [
        ("l", 2**63 - 1, True),
        ("l", -(2**63), True),
        ("l", 9_223_372_036_854_776, True),
        ("l", 9_223_372_036_854_775, False),
        ("l", -9_223_372_022_400_000, False),
        ("l", None, False),
    ],
    "FROM_DAYS(a)": [("a", 2_932_897, True), ("a", 2_932_896, False), ("a", -719_163, True), ("a", None, False)],
    "DATEADD(DAYS, a, CAST('2024-01-01' AS DATE))": [("a", 2**31 - 1, True), ("a", 5, False), ("a", None, False)],
    "TIMESTAMPADD(MILLISECONDS, l, FROM_UNIXTIME(0))": [("l", 2**63 - 1, True), ("l", 2**62, True), ("l", -1, False)],
    "FORMAT_DATE(FROM_DAYS(1), s)": [("s", "b", True), ("s", "yyyy'b'", False), ("s", None, False)],
    "REGEXP_EXTRACT(s, 'abc')": [("s", "(", True), ("s", "b", False), ("s", None, False)],
    "REGEXP_REPLACE('abc', s, '-')": [("s", "[", True), ("s", "b+", False)],
    "CONVERT_TZ(FROM_UNIXTIME(0), s, 'UTC')": [("s", "Nowhere", True), ("s", "Europe/Paris", False)],
    "TRANSFORM(ARRAY[1, 2], x => x + a)": [("a", 2**31 - 1, True), ("a", 1, False), ("a", None, False)],
    "FILTER(ARRAY[1, 2], x => x / a > 0)": [("a", 0, True), ("a", 1, False)],
    "CAST(ARRAY[l] AS ARRAY<INT>)": [("l", 2**40, True), ("l", 2, False), ("l", None, False)],
    "ROUND(d, -2)": [("d", 1, False)],
    "ABS(x)": [("x", -1e308, False), ("x", -0.0, False)],
    "ROUND(CAST(x AS DECIMAL(3, 1)), 0)": [("x", 99.9, True), ("x", 99.4, False), ("x", None, False)],
}
# Their NULLs are inside of an array, or leave an item out.
_OF_ITEMS = (
    "TRANSFORM(ARRAY[1, 2], x => x + a)",
    "FILTER(ARRAY[1, 2], x => x / a > 0)",
    "CAST(ARRAY[l] AS ARRAY<INT>)",
)
rows = st.fixed_dictionaries(
    {
        "a": st.none() | st.sampled_from([0, 1, -7, 2**31 - 1, -(2**31)]),
        "b": st.none() | st.sampled_from([0, 1, 3, 2**31 - 1]),
        "s": st.sampled_from([None, "12", "x"]),
        "d": st.none() | st.just(1),
    }
)


@pytest.mark.parametrize("text", EXPRESSIONS)
@settings(max_examples=25, deadline=None)
@given(row=rows)
def test_an_expression_fails_exactly_where_it_says_so(duck: DuckDBPyConnection, text: str, row: dict[str, Any]) -> None:
    """Where it does not, its lenient form has the value of the strict one; the condition itself never fails."""
    found = infer(parse_expression(text), SCOPE).expression
    columns = ", ".join(f'"{name}" {kind.duckdb()}' for name, kind in COLUMNS)
    duck.execute(f"CREATE OR REPLACE TABLE r ({columns})")
    insert(duck, "r", [[row.get(name) for name, _ in COLUMNS]])
    condition = failing(found)
    fails = condition is not None and value(duck, condition) is True
    assert fails == bool(EXPRESSIONS[text](**row))
    assert (condition is not None) == can_fail(found)
    if fails:
        assert text.startswith(("COALESCE", "CASE", "b ")) or value(duck, lenient(found)) is None
    elif not (text.startswith("b ") and row["b"] == 0):  # DuckDB evaluates both sides of OR at once
        assert value(duck, lenient(found)) == value(duck, strict(found))


# Arithmetic in arithmetic: (text, the values of a and b -> (value, does some operation fail)).
#
# An operation that fails is NULL for what stands above it, and counts whatever else is NULL.

Step = tuple[str, Callable[[dict[str, Any]], tuple[int | None, bool]]]
_OPERATORS: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def leaves() -> st.SearchStrategy[Step]:
    columns = st.sampled_from(["a", "b"]).map(lambda name: (name, lambda row: (row[name], False)))
    numbers = st.sampled_from([0, 1, 7]).map(lambda number: (str(number), lambda _: (number, False)))
    read: Step = ("CAST(s AS INT)", lambda row: (12 if row["s"] == "12" else None, row["s"] == "x"))
    return columns | numbers | st.just(read)


def steps(inner: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
    return (
        st.tuples(st.sampled_from(list(_OPERATORS)), inner, inner).map(lambda each: operated(*each))
        | inner.map(lambda each: operated("-", ("0", lambda _: (0, False)), each))
        | inner.map(lambda each: (f"COALESCE({each[0]}, 1)", lambda row: replaced_null(*each[1](row))))
    )


def operated(operator: str, left: Step, right: Step) -> Step:
    def value_of(row: dict[str, Any]) -> tuple[int | None, bool]:
        (x, x_fails), (y, y_fails) = left[1](row), right[1](row)
        made = None if x is None or y is None else _OPERATORS[operator](x, y)
        lost = made is not None and not -(2**31) <= made < 2**31
        return (None if lost else made, x_fails or y_fails or lost)

    return f"({left[0]} {operator} {right[0]})", value_of


def replaced_null(found: int | None, fails: bool) -> tuple[int | None, bool]:
    return 1 if found is None else found, fails


@settings(max_examples=150, deadline=None)
@given(step=st.recursive(leaves(), steps, max_leaves=8), row=rows)
def test_an_operation_in_others_fails_whatever_those_are(
    duck: DuckDBPyConnection, step: Step, row: dict[str, Any]
) -> None:
    text, value_of = step
    found = infer(parse_expression(text), SCOPE).expression
    columns = ", ".join(f'"{name}" {kind.duckdb()}' for name, kind in COLUMNS)
    duck.execute(f"CREATE OR REPLACE TABLE r ({columns})")
    insert(duck, "r", [[row.get(name) for name, _ in COLUMNS]])
    condition = failing(found)
    expected, fails = value_of(row)
    assert (condition is not None and value(duck, condition) is True) == fails
    assert value(duck, lenient(found)) == expected


def test_what_says_that_an_operation_fails_says_it_once() -> None:
    """The innermost one stands in it once, and not once more for each that is above it."""
    inner = "a * b"
    for _ in range(6):
        inner = f"({inner} + a - b)"
    condition = failing(infer(parse_expression(inner), SCOPE).expression)
    assert condition is not None
    assert condition.sql().count("TRY_MULTIPLY") == 1


@pytest.mark.parametrize("text", AT_THE_END)
def test_the_ends_of_a_range_fail_where_the_engine_does(duck: DuckDBPyConnection, text: str) -> None:
    found = infer(parse_expression(text), SCOPE).expression
    columns = ", ".join(f'"{name}" {kind.duckdb()}' for name, kind in COLUMNS)
    for name, number, fails in AT_THE_END[text]:
        duck.execute(f"CREATE OR REPLACE TABLE r ({columns})")
        insert(duck, "r", [[number if name == column else None for column, _ in COLUMNS]])
        condition = failing(found)
        assert (condition is not None and value(duck, condition) is True) == fails, number
        if fails:
            with pytest.raises(duckdb.Error):
                value(duck, strict(found))
            whole = value(duck, lenient(found))
            assert whole is None or text in _OF_ITEMS
        else:
            assert value(duck, lenient(found)) == value(duck, strict(found))


def test_a_text_that_is_no_number_fails_strictly(duck: DuckDBPyConnection) -> None:
    duck.execute("CREATE OR REPLACE TABLE r AS SELECT 'x' AS s")
    with pytest.raises(duckdb.Error, match=r"a row fails: CAST\(s AS DOUBLE\)"):
        value(duck, strict(infer(parse_expression("CAST(s AS DOUBLE)"), SCOPE).expression))


def test_an_expression_is_told_as_it_was_written() -> None:
    for text in ("a / b", "CAST(s AS INT)", "a * b - 1", "d / d", "TRY_CAST(s AS INT) / b"):
        assert in_words(infer(parse_expression(text), SCOPE).expression) == text


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_an_expression_that_is_read_twice_fails_as_before(text: str) -> None:
    once = infer(parse_expression(text), SCOPE).expression
    assert failing(infer(once.copy(), SCOPE).expression) == failing(once)


def test_what_cannot_fail_has_no_condition() -> None:
    for text in ("a", "a > b AND s = 'x'", "a / 2", "CAST(a AS BIGINT)", "UCASE(s)"):
        assert failing(infer(parse_expression(text), SCOPE).expression) is None, text


def value(duck: DuckDBPyConnection, expression: Any) -> Any:
    row = duck.execute(f"SELECT {lower(expression, 'duckdb')} FROM r").fetchone()
    assert row is not None
    return row[0]
