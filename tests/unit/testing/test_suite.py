"""Suites as they are written: what is read of them, and what is refused, with its place."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.testing.suite import Deletion, read_suite
from tests.unit.testing.conftest import Written


def test_a_test_of_one_step_leaves_steps_out(written: Written) -> None:
    suite = written(
        """
        tests:
          - name: one
            given: {sold: [{item: a, qty: 1}]}
            expect: {by_item: {rows: [{item: a, n: 1}]}}
        """
    )
    (case,) = suite.cases
    (step,) = case.steps
    assert step.given == {"sold": [{"item": "a", "qty": 1}]}
    assert step.expect["by_item"].rows == [{"item": "a", "n": 1}]
    assert step.expect["by_item"].inserted is None


def test_numbers_with_a_point_keep_their_digits_and_keys_can_be_deleted(written: Written) -> None:
    suite = written(
        """
        tests:
          - name: one
            given: {prices: [{item: a, price: 1.10}, !delete {item: a}], sold: [{share: .inf}, {share: 1e3}]}
            expect: {by_item: {rows: []}}
        """
    )
    given = suite.cases[0].steps[0].given
    assert given["prices"] == [{"item": "a", "price": Decimal("1.10")}, Deletion({"item": "a"})]
    assert given["sold"] == [{"share": float("inf")}, {"share": "1e3"}]


def test_other_files_may_be_tested_together(written: Written, tmp_path: Path) -> None:
    (tmp_path / "base.sql").write_text("")
    suite = written("files: [base.sql, shop.sql]\ntests: [{name: one, expect: {by_item: {rows: []}}}]")
    assert suite.files == (tmp_path / "base.sql", tmp_path / "shop.sql")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tests: [", "is no YAML"),
        ("tests: []", "tests: List should have at least 1 item"),
        ("[]", "the file: "),
        ("tests: [{name: one}]", "tests[0].steps: List should have at least 1 item"),
        ("tests: [{name: one, given: {sold: []}}]", "tests[0]: it expects nothing, so it could not fail"),
        ("tests: [{expect: {by_item: {rows: []}}}]", "tests[0].name: is missing"),
        (
            "tests: [{name: one, expect: {by_item: {row: []}}}]",
            "tests[0].steps[0].expect.by_item.row: is not known here",
        ),
        (
            "tests: [{name: one, steps: [{given: {sold: [1]}, expect: {by_item: {rows: []}}}]}]",
            "tests[0].steps[0].given.sold[0]",
        ),
        (
            "tests: [{name: one, expect: {by_item: {rows: []}}}, {name: one, expect: {by_item: {rows: []}}}]",
            "has two tests of the name 'one'",
        ),
        ("files: [none.sql]\ntests: [{name: one, expect: {by_item: {rows: []}}}]", "which is not there"),
        ("tests: [{name: one, expect: {by_item: {rows: !!python/object:os.system []}}}]", "is no YAML"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(written: Written, text: str, said: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        written(text)
    assert said in refused.value.message


def test_a_pipeline_without_tests_says_where_they_would_be(tmp_path: Path) -> None:
    (tmp_path / "shop.sql").write_text("")
    with pytest.raises(InvalidQuery, match=r"there is no file '.*shop\.test\.yaml'"):
        read_suite(tmp_path / "shop.sql")
