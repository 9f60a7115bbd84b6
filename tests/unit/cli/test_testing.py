"""`strandline test`: what it prints, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.test_main import invoke

SQL = """CREATE STREAM sold (item VARCHAR KEY, qty INT) WITH (KAFKA_TOPIC = 'sold');
CREATE TABLE by_item AS SELECT item, COUNT(*) AS n FROM sold GROUP BY item;
"""
TESTS = """tests:
  - {name: right, given: {sold: [{item: a, qty: 1}]}, expect: {by_item: {rows: [{item: a, n: 1}]}}}
  - {name: wrong, given: {sold: [{item: a, qty: 1}]}, expect: {by_item: {rows: [{item: a, n: 2}]}}}
"""
QUICK = ("--engine", "duckdb", "--cuts", "1", "--no-kills", "--seed", "5")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.sql").write_text(SQL)
    (tmp_path / "shop.test.yaml").write_text(TESTS)
    return "shop.sql"


def test_each_fault_is_shown_with_the_way_to_see_it_again(file: str) -> None:
    code, out, err = invoke("test", file, *QUICK)
    assert code == 1
    assert "FAILED  wrong (as written), step 1\n        rows of by_item:\n" in out
    assert "FAILED  wrong (cut, seed 5), step 1\n" in out
    assert "ok      right: 2 trials" in out
    assert "FAILED  wrong: 2 of 2 trials" in out
    assert err == "1 of 2 tests passed, 4 trials; to see them again: strandline test shop.test.yaml --seed 5\n"


def test_tests_that_pass(file: str) -> None:
    code, out, err = invoke("test", "shop.test.yaml", "--only", "RIGHT", *QUICK)
    assert (code, err) == (0, "1 of 1 tests passed, 2 trials\n")
    assert "wrong" not in out


def test_json_is_an_object_for_each_trial(file: str) -> None:
    code, out, _ = invoke("test", file, "--json", *QUICK)
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert [(each["test"], each["trial"], each["passed"]) for each in found] == [
        *(("right", "as written", True), ("wrong", "as written", False)),
        *(("right", "cut", True), ("wrong", "cut", False)),
    ]
    (fault,) = found[1]["faults"]
    assert fault == {
        "table": "by_item",
        "what": "rows",
        "missing": ["{item: a, n: 2}"],
        "unexpected": ["{item: a, n: 1}"],
    }


def test_no_such_test_and_no_such_file_are_errors_of_the_user(file: str) -> None:
    assert invoke("test", file, "--only", "none", *QUICK)[0] == 2
    code, _, err = invoke("test", "other.sql", *QUICK)
    assert (code, "there is no file 'other.test.yaml'" in err) == (2, True)
