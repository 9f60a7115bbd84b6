"""No function fails on a row without saying so: DuckDB's forms of every expression do not contradict each other."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from tests.campaigns import extreme_calls
from tests.campaigns.engine_equality import campaign
from tests.support.examples import AT_LENGTH, seed_of
from tests.support.function_calls import calls, uncovered


def test_every_function_operator_and_cast_is_in_some_expression() -> None:
    assert not uncovered(calls(1, seed_of(23)))


def test_what_fails_on_a_row_says_so_and_is_null_instead() -> None:
    kinds, rows, most = (3, 110, None) if AT_LENGTH else (1, 12, 300)
    _, wrong, words = campaign(None, kinds=kinds, rows=rows, seed=seed_of(23), most=most)
    assert not wrong, words


def test_extreme_arguments_are_answered_or_refused_in_words_of_ours() -> None:
    count, found = extreme_calls.campaign(3, seed_of(37)) if AT_LENGTH else extreme_calls.campaign(1, seed_of(37), 10)
    assert count >= 10
    assert not found, "\n".join(f"{each.text}: {each.what}" for each in found)


@pytest.mark.parametrize(
    "text",
    [
        "LPAD('a', 2147483647, 'x')",
        "RPAD(TO_BYTES('ff', 'hex'), 2147483647, TO_BYTES('00', 'hex'))",
        "REPEAT('ab', 2147483647)",
        "GENERATE_SERIES(0, 9223372036854775807)",
        "GENERATE_SERIES(-9223372036854775807, 9223372036854775807, 2147483647)",
        "REGEXP_EXTRACT(LPAD('(a)', 3, 'x'), 'a', 2)",
        "FLOOR(CAST('x' AS DOUBLE))",
        "ROUND(CAST('NaN' AS DOUBLE))",
        "TRUNC(9223372036854775808e0)",
    ],
)
def test_what_is_too_much_is_an_error_that_names_the_expression(settings: Settings, text: str) -> None:
    begun = time.monotonic()
    with pytest.raises(InvalidQuery, match="an expression of the query fails on a row"):
        list(Interpreter(settings).run(f"SELECT {text} AS v;"))
    assert time.monotonic() - begun < extreme_calls.MOST_SECONDS


def test_lengths_of_time_go_round_the_clock_and_nothing_is_moved_by_too_much(settings: Settings) -> None:
    (rows,) = Interpreter(settings).run(
        "SELECT CAST('10:00' AS TIME) + INTERVAL '3 days 1 hour' AS a,"
        " TIMESTAMPADD(DAYS, 40000000000, CAST(NULL AS TIMESTAMP)) AS b;"
    )
    assert isinstance(rows, Rows)
    assert [tuple(row) for row in rows.rows] == [(dt.time(11), None)]
