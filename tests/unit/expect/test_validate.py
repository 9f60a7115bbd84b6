"""Twenty of Great Expectations' expectations, on the rows of a real view."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.jobs.expect.expectations import validate
from strandline.jobs.model.definitions import Expectation
from strandline.state_store.delta import reader
from tests.unit.operate.verify.lakes import MadeLake

# The view: totals(page, n, seconds) = (a, 3, 0.6), (b, 2, 3.5), (d, 1, 4.0).
HOLD: dict[str, dict[str, Any]] = {
    "expect_column_distinct_values_to_be_in_set": {"column": "page", "value_set": ["a", "b", "c", "d"]},
    "expect_column_distinct_values_to_contain_set": {"column": "page", "value_set": ["a"]},
    "expect_column_distinct_values_to_equal_set": {"column": "page", "value_set": ["a", "b", "d"]},
    "expect_column_max_to_be_between": {"column": "n", "min_value": 3, "max_value": 3},
    "expect_column_mean_to_be_between": {"column": "n", "min_value": 2, "max_value": 2},
    "expect_column_median_to_be_between": {"column": "n", "min_value": 2, "max_value": 2},
    "expect_column_min_to_be_between": {"column": "n", "min_value": 1},
    "expect_column_pair_values_to_be_equal": {"column_A": "page", "column_B": "page"},
    "expect_column_stdev_to_be_between": {"column": "n", "min_value": 0.9, "max_value": 1.1},
    "expect_column_sum_to_be_between": {"column": "seconds", "min_value": 8.0, "max_value": 8.2},
    "expect_column_to_exist": {"column": "page"},
    "expect_column_unique_value_count_to_be_between": {"column": "page", "min_value": 3, "max_value": 3},
    "expect_column_value_lengths_to_equal": {"column": "page", "value": 1},
    "expect_column_values_to_be_between": {"column": "n", "min_value": 1, "max_value": 3},
    "expect_column_values_to_be_in_set": {"column": "page", "value_set": ["a", "b", "d"]},
    "expect_column_values_to_be_unique": {"column": "page"},
    "expect_column_values_to_match_regex": {"column": "page", "regex": "^[a-d]$"},
    "expect_column_values_to_not_be_null": {"column": "page"},
    "expect_compound_columns_to_be_unique": {"column_list": ["page", "n"]},
    "expect_table_row_count_to_be_between": {"min_value": 3, "max_value": 3},
}
# Of each, the arguments with which the same rows fail.
FAIL: dict[str, dict[str, Any]] = {
    "expect_column_distinct_values_to_be_in_set": {"value_set": ["a"]},
    "expect_column_distinct_values_to_contain_set": {"value_set": ["z"]},
    "expect_column_distinct_values_to_equal_set": {"value_set": ["a"]},
    "expect_column_max_to_be_between": {"min_value": 4, "max_value": 5},
    "expect_column_mean_to_be_between": {"min_value": 3, "max_value": 4},
    "expect_column_median_to_be_between": {"min_value": 3, "max_value": 4},
    "expect_column_min_to_be_between": {"min_value": 2},
    "expect_column_pair_values_to_be_equal": {"column_B": "n"},
    "expect_column_stdev_to_be_between": {"min_value": 2, "max_value": 3},
    "expect_column_sum_to_be_between": {"min_value": 9, "max_value": 10},
    "expect_column_to_exist": {"column": "nope"},
    "expect_column_unique_value_count_to_be_between": {"min_value": 4, "max_value": 5},
    "expect_column_value_lengths_to_equal": {"value": 2},
    "expect_column_values_to_be_between": {"max_value": 2},
    "expect_column_values_to_be_in_set": {"value_set": ["a", "b"]},
    "expect_column_values_to_be_unique": {"column": "one"},
    "expect_column_values_to_match_regex": {"regex": "^[a-c]$"},
    "expect_column_values_to_not_be_null": {"column": "gap"},
    "expect_compound_columns_to_be_unique": {"column_list": ["one", "gap"]},
    "expect_table_row_count_to_be_between": {"min_value": 4, "max_value": 5},
}


def test_twenty_expectations_hold_on_a_view_and_say_what_they_saw(pages: MadeLake) -> None:
    path = pages.lake.table("totals")
    version, verdicts = validate(path, [Expectation(kind, arguments) for kind, arguments in HOLD.items()])
    head = reader.head(path)
    assert head is not None
    assert version == head.version
    assert len(verdicts) == 20
    assert [(v.check, v.what) for v in verdicts if v.ok is not True] == []
    regex = next(v for v in verdicts if v.check == "expect_column_values_to_match_regex__page")
    assert regex.numbers == {"rows": 3, "unexpected rows": 0, "unexpected percent": 0.0, "missing values": 0}
    assert "values must match this regular expression" in regex.markdown
    assert "Run Name" not in regex.markdown


def test_each_of_them_fails_on_rows_that_do_not_meet_it(pages: MadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """An expectation that cannot fail is no check. Two columns more: one of a single value, one with a gap."""
    read = reader.read_rows

    def wider(*arguments: Any, **options: Any) -> Any:
        import pyarrow as pa

        rows = read(*arguments, **options)
        gap = pa.array([None, None, "x"], pa.string())
        return rows.append_column("one", pa.array([1, 1, 1])).append_column("gap", gap)

    monkeypatch.setattr(reader, "read_rows", wider)
    wanted = [Expectation(kind, {**HOLD[kind], **changed}, "warn") for kind, changed in FAIL.items()]
    _, verdicts = validate(pages.lake.table("totals"), wanted)
    assert [v.check for v in verdicts if v.ok is not False] == []
    assert {v.severity for v in verdicts} == {"warn"}
    regex = next(v for v in verdicts if v.check.startswith("expect_column_values_to_match_regex"))
    assert regex.what == "1 of 3 rows are unexpected: 'd'"
    assert regex.numbers["unexpected rows"] == 1
    assert "| d" in regex.markdown or "\nd" in regex.markdown


@pytest.mark.parametrize(
    ("expectation", "said"),
    [
        (Expectation("expect_column_values_to_be_between", {"column": "nope", "min_value": 1}), "does not exist"),
        (Expectation("expect_column_values_to_be_between", {"colum": "n"}), "Great Expectations refuses it"),
        (
            Expectation("expect_column_values_to_match_regex", {"column": "page", "regex": "("}),
            "could not be evaluated",
        ),
    ],
)
def test_an_expectation_that_cannot_be_evaluated_fails_and_says_why(
    expectation: Expectation, said: str, pages: MadeLake
) -> None:
    _, (verdict,) = validate(pages.lake.table("totals"), [expectation])
    assert verdict.ok is False
    assert said in verdict.what
