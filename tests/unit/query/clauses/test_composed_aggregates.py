"""Aggregates that are made of others: what DuckDB's own of that name give, and what their view is after every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.query.clauses.composed_aggregates import COMPOSED
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.duckdb import elementary
from tests.support.checked_views import wrong

_SEED = 5
_ROWS = "(VALUES ('a', 1), ('b', 2), ('c', 4), ('d', 9), ('e', 4), ('f', NULL)) AS v (k, n)"
CALLS = (
    "SEM(n)",
    "GEOMEAN(n)",
    "GEOMETRIC_MEAN(n)",
    "WEIGHTED_AVG(n, n + 1)",
    "WAVG(n, 2)",
    "PRODUCT(n)",
    "SKEWNESS(n)",
    "KURTOSIS(n)",
    "KURTOSIS_POP(n)",
    "SKEWNESS(n * 0)",
    "KURTOSIS(n * 0)",
    "KURTOSIS_POP(n * 0)",
    "MAD(n)",
    "ENTROPY(n)",
    "ENTROPY(k)",
    "MIN(n, 2)",
    "MAX(n, 9)",
    "ARG_MIN(k, n, 2)",
    "ARGMAX(k, n, 1)",
    "MAX_BY(k, n, 1)",
    "QUANTILE_CONT(n, [0.25, 0.5])",
    "QUANTILE_DISC(n, [0.5])",
    "PRODUCT(DISTINCT n)",
    "MEDIAN(DISTINCT n)",
    "COUNT_IF(DISTINCT n > 3)",
    *(f"{name}(DISTINCT n)" for name in ("VAR_POP", "VAR_SAMP", "VARIANCE", "STDDEV", "STDDEV_POP", "STDDEV_SAMP")),
    "VAR_SAMP(DISTINCT n) FILTER (WHERE n < 2)",
    "STDDEV_POP(DISTINCT n) FILTER (WHERE n > 100)",
    "PRODUCT(n) FILTER (WHERE n < 9)",
    "MAX(k, 2) FILTER (WHERE n > 100)",
    "KURTOSIS(n) FILTER (WHERE n < 3)",
    "MAD(n) FILTER (WHERE n < 0)",
)
SELECTS = (
    *(f"SELECT k, {call} AS a FROM t GROUP BY k" for call in CALLS),
    "SELECT id, SEM(n) OVER (PARTITION BY k ORDER BY id ROWS 1 PRECEDING) AS a, MAX(n, 2) OVER (PARTITION BY k) AS b"
    " FROM t",
    "SELECT k FROM t GROUP BY k HAVING PRODUCT(n) > 1 OR MAD(n) IS NULL",
    "SELECT k, RANK() OVER (ORDER BY SEM(n)) AS a FROM t GROUP BY k",
    "SELECT PRODUCT(n) AS a, ARG_MAX(k, n, 2) AS b FROM t",
    "SELECT id FROM t WHERE n > (SELECT MAD(n) FROM u WHERE u.k = t.k)",
)


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        elementary.register(connection)
        yield connection


@pytest.mark.parametrize("call", CALLS)
def test_they_give_what_duckdb_gives(call: str, tmp_path: Path, db: duckdb.DuckDBPyConnection) -> None:
    (answer,) = Interpreter(load_settings(lake=tmp_path / "lake")).run(f"SELECT {call} FROM {_ROWS};")
    assert isinstance(answer, Rows)
    [[found]] = [list(row) for row in answer.rows]
    [(expected,)] = db.execute(f"SELECT {call.replace('MAX_BY', 'ARG_MAX')} FROM {_ROWS}").fetchall()
    if isinstance(expected, list):
        assert found == [pytest.approx(each) if isinstance(each, float) else each for each in expected]
    else:
        assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("select", SELECTS)
def test_the_view_is_its_select_after_every_epoch(select: str, db: duckdb.DuckDBPyConnection) -> None:
    assert wrong(select, db, _SEED) == ""


def test_each_is_tried() -> None:
    tried = {call.partition("(")[0] for call in CALLS}
    assert {head.partition("(")[0] for head in COMPOSED} - {"ARG_MAX", "ARGMIN", "MIN_BY"} <= tried
