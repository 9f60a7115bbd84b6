"""SEMANTICS='ksql': a comparison with NULL is FALSE where its value is seen; where it decides it stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pytest
from sqlglot import exp

from strandline.jobs.functions.render import lower
from strandline.jobs.query.clauses.ksql import ksql_condition, ksql_value
from strandline.jobs.sql.dialect import sql_of
from tests.support.function_cases import elaborated, table


def _on_nulls(text: str, settle: Callable[[exp.Expression], exp.Expression]) -> object:
    """The value for the row that is all NULL."""
    with duckdb.connect() as duck:
        duck.register("cases", table())
        value = lower(settle(elaborated(text).expression), "duckdb")
        (found,) = duck.execute(f"SELECT {value} FROM cases WHERE nr = 2").fetchone() or (None,)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("i = 1", False),
        ("i <> 1", False),
        ("NOT i = 1", True),
        ("i BETWEEN 1 AND 2", False),
        ("i NOT BETWEEN 1 AND 2", True),
        ("s LIKE 'a%'", False),
        ("s LIKE 'a!%' ESCAPE '!'", False),
        ("i IN (1, 2)", False),
        ("(i > 1) = (d > 1)", True),
        ("i > 1 AND s = 'x'", False),
        ("CASE WHEN NOT i = 1 THEN 'other' END", "other"),
        ("i IS DISTINCT FROM 1", True),
        ("i IS NULL", True),
        ("i + 1", None),
    ],
)
def test_a_value_is_never_the_null_of_a_comparison(text: str, expected: object) -> None:
    assert _on_nulls(text, ksql_value) == expected


@pytest.mark.parametrize("text", ["i = 1", "i = 1 AND (s = 'x' OR d < 2)", "CASE WHEN i = 1 THEN TRUE ELSE FALSE END"])
def test_a_condition_that_decides_stays_as_it_is(text: str) -> None:
    """What joins and prunes by `a = b` still finds it."""
    plain = elaborated(text).expression
    assert sql_of(ksql_condition(plain)) == sql_of(plain)


@pytest.mark.parametrize("text", ["NOT i = 1", "NOT (i = 1 OR d > 2)", "COALESCE(i = 1, TRUE)"])
def test_conditions_and_values_agree_where_null_would_be_turned_round(text: str) -> None:
    assert bool(_on_nulls(text, ksql_condition)) == bool(_on_nulls(text, ksql_value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TRANSFORM(ARRAY[5, NULL], x => x + 1)", None),
        ("TRANSFORM(ARRAY[5, 6], x => x + 1)", [6, 7]),
        ("TRANSFORM(ARRAY['a', NULL], x => UCASE(x))", ["A", None]),
        ("FILTER(ARRAY[5, NULL], x => x % 5 = 0)", None),
        ("FILTER(ARRAY[5, NULL], x => x = 5)", [5]),
    ],
)
def test_a_function_that_computes_with_null_makes_no_array(text: str, expected: object) -> None:
    assert _on_nulls(text, ksql_value) == expected


def test_the_expression_that_is_given_stays_untouched() -> None:
    plain = elaborated("NOT i = 1").expression
    before = sql_of(plain)
    ksql_value(plain)
    assert sql_of(plain) == before
