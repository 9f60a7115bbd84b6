"""No function fails on a row without saying so: DuckDB's forms of every expression do not contradict each other."""

from __future__ import annotations

from tests.campaigns.engine_equality import campaign
from tests.support.examples import AT_LENGTH, seed_of
from tests.support.function_calls import calls, uncovered


def test_every_function_operator_and_cast_is_in_some_expression() -> None:
    assert not uncovered(calls(1, seed_of(23)))


def test_what_fails_on_a_row_says_so_and_is_null_instead() -> None:
    kinds, rows = (3, 110) if AT_LENGTH else (1, 12)
    _, wrong, words = campaign(None, kinds=kinds, rows=rows, seed=seed_of(23))
    assert not wrong, words
