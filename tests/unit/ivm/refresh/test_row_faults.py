"""What DuckDB says of rows, by the class of its error: each is provoked in the installed version."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import duckdb
import pytest

from strandline.jobs.engines.engine import FAILS_ON_A_ROW, NEGATIVE_WEIGHT
from strandline.jobs.ivm.refresh.engines import typed_fault
from strandline.jobs.model.errors import FunctionFailed, RowFailed
from strandline.state_store.duckdb.statements import error_of
from strandline.state_store.errors import NegativeWeight

EPOCH: Any = SimpleNamespace(
    stage=SimpleNamespace(table="totals"), record=SimpleNamespace(reason="few changes"), spans=[]
)
OF_ROWS = {
    "a text that is no number": "SELECT CAST(x AS INT) FROM (VALUES ('a')) t (x)",
    "its words are a user's": f"SELECT CAST(x AS INT) FROM (VALUES ('{NEGATIVE_WEIGHT} {FunctionFailed.code}')) t (x)",
    "a number out of range": "SELECT x + 1 FROM (VALUES (9223372036854775807)) t (x)",
    "a division by zero": "SELECT 1 // x FROM (VALUES (0)) t (x)",
    "an error of ours": f"SELECT error('{FAILS_ON_A_ROW}a / b') FROM (VALUES (0)) t (x)",
    "a regular expression": "SELECT regexp_matches('a', x) FROM (VALUES ('(')) t (x)",
    "a bracket too many": "SELECT regexp_matches('a', x) FROM (VALUES (')')) t (x)",
    "nothing to repeat": "SELECT regexp_matches('a', x) FROM (VALUES ('*')) t (x)",
    "too often repeated": "SELECT regexp_matches('a', x) FROM (VALUES ('a{2000}')) t (x)",
    "a backslash at the end": "SELECT regexp_matches('a', x) FROM (VALUES ('\\')) t (x)",
    "a time zone": "SELECT timezone(x, TIMESTAMP '2020-01-01') FROM (VALUES ('Foo/Bar')) t (x)",
}


def _raised(sql: str) -> duckdb.Error:
    with duckdb.connect() as db:
        db.execute("SET error_on_division_by_zero = true")
        with pytest.raises(duckdb.Error) as raised:
            db.execute(sql).fetchall()
    return raised.value


@pytest.mark.parametrize("sql", OF_ROWS.values(), ids=OF_ROWS)
def test_an_error_about_a_row_is_known_by_its_class(sql: str) -> None:
    error = _raised(sql)
    assert isinstance(typed_fault(EPOCH, error), RowFailed)
    again = error_of(str(error))
    assert type(again) is type(error)
    assert isinstance(typed_fault(EPOCH, again), RowFailed)


def test_a_row_that_is_not_there_is_no_row_that_fails() -> None:
    assert isinstance(typed_fault(EPOCH, _raised(f"SELECT error('{NEGATIVE_WEIGHT}')")), NegativeWeight)


def test_a_function_that_fails_is_told_from_its_words() -> None:
    def failing(_: int) -> int:
        raise FunctionFailed("the function f failed: ValueError: no")

    with duckdb.connect() as db:
        db.create_function("f", failing, ["INT"], "INT")
        with pytest.raises(duckdb.Error) as raised:
            db.execute("SELECT f(1)").fetchall()
    found = typed_fault(EPOCH, raised.value)
    assert isinstance(found, FunctionFailed)
    assert found.message == "the function f failed: ValueError: no"


@pytest.mark.parametrize(
    "sql",
    [
        f"SELECT no_such_function('{FAILS_ON_A_ROW}')",
        f'SELECT "{FAILS_ON_A_ROW}" FROM (VALUES (1)) t (x)',
        "SELECT error('the words of somebody else: Conversion Error: x')",
    ],
)
def test_an_error_about_the_text_is_of_no_row(sql: str) -> None:
    assert typed_fault(EPOCH, _raised(sql)) is None
