"""Spark and DuckDB compute the same from the two texts of every expression, NULLs and nasty values included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import duckdb
import pytest
from sqlglot import exp

from jobs.functions.render import lower
from tests.campaigns.engine_equality import campaign
from tests.support.examples import AT_LENGTH, seed_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.xfail(reason="not all functions give the same on both engines yet", strict=False)
def test_both_engines_agree_on_every_function_operator_and_cast(spark: SparkSession) -> None:
    """In every form, over nasty values; in `make nightly` over more kinds of arguments and anew."""
    kinds, rows = (3, 110) if AT_LENGTH else (1, 24)
    _, wrong, words = campaign(spark, kinds=kinds, rows=rows, seed=seed_of(23))
    assert not wrong, words


def test_both_engines_ignore_nulls_inside_a_call(spark: SparkSession) -> None:
    def asked(dialect: Literal["spark", "duckdb"]) -> str:
        value = lower(exp.IgnoreNulls(this=exp.column("x")), dialect)
        over = "OVER (PARTITION BY k ORDER BY i ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)"
        calls = f"i, FIRST_VALUE({value}) {over} AS a, LAST_VALUE({value}) {over} AS b"
        return f"SELECT {calls} FROM (VALUES (1, 1, NULL), (1, 2, 5), (1, 3, NULL), (1, 4, 7)) AS t(k, i, x) ORDER BY i"

    expected = [(1, 5, 5), (2, 5, 5), (3, 5, 7), (4, 7, 7)]
    assert duckdb.execute(asked("duckdb")).fetchall() == expected
    assert [tuple(row) for row in spark.sql(asked("spark")).collect()] == expected
