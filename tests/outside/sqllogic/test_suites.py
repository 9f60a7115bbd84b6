"""The suites of others, as they stand in their files: no answer is wrong. `make nightly` runs all files, `make test`
some of each suite; where the suites are absent the test is skipped, and says how to get them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.outside.sqllogic.run import run
from tests.outside.sqllogic.suites import PLACE, SUITES
from tests.support.examples import AT_LENGTH

# So many files of each suite take some ten seconds.
_FILES = {
    "pg_ivm": ("create_immv",),
    "openivm": ("/cte.", "/distinct."),
    "risingwave": ("join/", "top_n/"),
    "duckdb": ("setops/",),
}
_MOST = 6
_FEWEST_RIGHT = 5


@pytest.mark.timeout(0)  # all files take an hour
@pytest.mark.parametrize("name", SUITES)
def test_no_answer_is_wrong(name: str) -> None:
    suite = SUITES[name]
    if not suite.folder(PLACE).is_dir():
        pytest.skip(f"{suite.checkout} is absent from {PLACE}: tests/outside/sqllogic/suites.py says how to get it")
    files = suite.files(PLACE)
    if not AT_LENGTH:
        files = [file for file in files if any(part in str(file) for part in _FILES[name])][:_MOST]
    outcomes = list(run([(suite, file) for file in files], PLACE, 0, 1))
    assert Counter(each.result for each in outcomes)["right"] >= _FEWEST_RIGHT
    assert "\n".join(str(each) for each in outcomes if each.result == "wrong") == ""
