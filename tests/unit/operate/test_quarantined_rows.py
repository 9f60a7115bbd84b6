"""The condition that stands for an expectation keeps out the rows that Great Expectations itself calls unexpected."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Expectation
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clauses.quarantine import row_condition
from strandline.jobs.query.expressions.infer import condition
from strandline.jobs.query.expressions.scope import Scope

SCOPE = Scope(Relation("r", (("i", t.BIGINT), ("s", t.VARCHAR), ("a", t.DOUBLE), ("b", t.DOUBLE)), "append"), ("r",))
ROWS: list[tuple[Any, ...]] = [
    (0, "ab", 1.0, 1.0),
    (1, "b", 2.5, 1.0),
    (2, None, None, None),
    (3, "it's\\d", -1.0, 0.0),
    (4, "", None, 3.0),
    (5, "Ä1", 0.1, None),
]
EXPECTATIONS: list[tuple[str, dict[str, Any]]] = [
    ("expect_column_values_to_be_null", {"column": "a"}),
    ("expect_column_values_to_not_be_null", {"column": "s"}),
    ("expect_column_values_to_be_between", {"column": "a", "min_value": 0.1}),
    ("expect_column_values_to_be_between", {"column": "a", "min_value": 0.1, "strict_min": True, "max_value": 2.5}),
    ("expect_column_values_to_be_between", {"column": "i", "max_value": 3, "strict_max": True, "min_value": -1}),
    ("expect_column_values_to_be_in_set", {"column": "s", "value_set": ["b", "it's\\d"]}),
    ("expect_column_values_to_be_in_set", {"column": "i", "value_set": [1, 2, 4]}),
    ("expect_column_values_to_not_be_in_set", {"column": "s", "value_set": ["", "ab"]}),
    ("expect_column_values_to_match_regex", {"column": "s", "regex": "b$"}),
    ("expect_column_values_to_match_regex", {"column": "s", "regex": "\\d"}),
    ("expect_column_values_to_not_match_regex", {"column": "s", "regex": "^[a-z]"}),
    ("expect_column_value_lengths_to_equal", {"column": "s", "value": 2}),
    ("expect_column_value_lengths_to_be_between", {"column": "s", "min_value": 1, "max_value": 2}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "a", "column_B": "b"}),
    ("expect_column_pair_values_a_to_be_greater_than_b", {"column_A": "a", "column_B": "b", "or_equal": True}),
    ("expect_column_pair_values_to_be_equal", {"column_A": "a", "column_B": "b"}),
]


@pytest.fixture(scope="module")
def batch() -> Any:
    import great_expectations as gx
    import pandas as pd

    frame = pd.DataFrame(ROWS, columns=["i", "s", "a", "b"])
    asset = gx.get_context(mode="ephemeral").data_sources.add_pandas("lake").add_dataframe_asset("rows")
    return asset.add_batch_definition_whole_dataframe("rows").get_batch({"dataframe": frame})


@pytest.mark.parametrize(("kind", "arguments"), EXPECTATIONS, ids=str)
def test_the_same_rows_are_kept_out(kind: str, arguments: dict[str, Any], batch: Any) -> None:
    from great_expectations.expectations.registry import get_expectation_impl

    found = batch.validate(get_expectation_impl(kind)(**arguments), result_format={"result_format": "COMPLETE"})
    unexpected = set(found.result["unexpected_index_list"] or ())
    meant = condition(row_condition(Expectation(kind, arguments)), SCOPE, "EXPECT")
    with duckdb.connect() as db:
        db.execute("CREATE TABLE r (i BIGINT, s VARCHAR, a DOUBLE, b DOUBLE)")
        db.executemany("INSERT INTO r VALUES (?, ?, ?, ?)", ROWS)
        out = db.execute(f"SELECT i FROM r WHERE NOT coalesce({lower(meant, 'duckdb')}, FALSE)").fetchall()
    assert 0 < len(unexpected) < len(ROWS)
    assert {number for (number,) in out} == unexpected
