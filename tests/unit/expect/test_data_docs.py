"""The page on expectations: what it says, and that a value of a row is never markup in it."""

from __future__ import annotations

import pytest

from strandline.jobs.expect.expectations import Verdict, page, read_docs, validate, write_docs
from strandline.jobs.model.definitions import Expectation
from tests.unit.operate.verify.lakes import MadeLake

BETWEEN = "expect_column_values_to_be_between"


def test_the_page_has_what_great_expectations_rendered(pages: MadeLake) -> None:
    wanted = [
        Expectation(BETWEEN, {"column": "n", "min_value": 1}),
        Expectation("expect_table_row_count_to_be_between", {"min_value": 4}, "warn"),
        Expectation("expect_column_values_to_be_in_set", {"column": "page", "value_set": ["a"]}, blocking=True),
    ]
    lake = pages.lake
    version, verdicts = validate(lake.table("totals"), wanted)
    assert read_docs(lake, "totals") is None
    write_docs(lake, "totals", version, [*zip(wanted, verdicts, strict=True)])
    made = (read_docs(lake, "totals") or b"").decode()
    assert f"Version {version}: 1 passed, 1 warning, 1 failed." in made
    assert '<section class="failed"><h2>expect_column_values_to_be_in_set__page <small>failed, blocking</small>' in made
    assert "2 of 3 rows are unexpected" in made
    assert "values must belong to this set" in made
    assert "<table>" in made
    assert "<script" not in made
    assert "http://" not in made.replace("http-equiv", "")
    assert "https://" not in made


@pytest.mark.parametrize("value", ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>"])
def test_a_value_of_a_row_is_text(value: str) -> None:
    expectation = Expectation(BETWEEN, {"column": value})
    verdict = Verdict(expectation.name, False, f"1 of 1 rows are unexpected: {value}", markdown=f"| {value} |\n| --- |")
    made = page(value, 3, [(expectation, verdict)])
    assert value not in made
    assert made.count("&lt;") >= 4
