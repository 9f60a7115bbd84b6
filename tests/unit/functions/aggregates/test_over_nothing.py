"""What each aggregate says it is over no rows, beside what its accumulator gives there."""

from __future__ import annotations

import duckdb
import pytest

from strandline.jobs.engines.engine import DuckDb
from strandline.jobs.functions.aggregates.registry import function_of
from tests.support.aggregate_cases import CALLS, called

_VALUES = {"null": None, "zero": 0}


@pytest.mark.parametrize("name", CALLS)
def test_the_value_over_nothing_is_that_of_no_accumulator(name: str, duck: duckdb.DuckDBPyConnection) -> None:
    engine, made = DuckDb(), called("__a0", name)
    found = function_of(made)
    kept = f"CAST(NULL AS {found.accumulator(made).duckdb()})"
    value = engine.cast(found.result(engine, made, kept), made.type)
    row = duck.execute(f"SELECT {value}, CAST({value} AS VARCHAR)").fetchone()
    assert row is not None
    nothing = found.over_nothing(made)
    if nothing == "empty":
        assert row[1] in ("[]", "{}")
    else:
        assert row[0] == _VALUES[nothing]
