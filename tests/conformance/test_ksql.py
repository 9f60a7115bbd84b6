"""A sample of ksqlDB's cases on DuckDB: what passes must go on to pass.

The whole suite is run by hand, see docs/conformance.md.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.conformance.cases import CLASSES, Case, read_cases
from tests.conformance.ksql import run
from tests.conformance.report import Outcome, count

PLACE = Path(os.environ.get("STRANDLINE_CONFORMANCE", Path(__file__).parents[3] / "shared" / "conformance" / "ksql"))
"""The cases are not part of the project: they lie beside it, or where the variable says."""

# Every so many cases of a class: some thirty of the large classes, all of the smallest.
_STEP = {
    "table-aggregate": 8,
    "table-window": 3,
    "table-join": 3,
    "stream-plain": 13,
    "stream-join": 4,
    "negative": 6,
}

# Shares of the cases that are run: the project's aims. They are never lowered without a reason in the commit.
FLOORS = {
    "table-aggregate": 0.98,
    "table-window": 0.98,
    "table-join": 0.98,
    "table-plain": 0.98,
    "stream-plain": 0.95,
    "stream-join": 0.95,
    "negative": 0.95,
}


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    if not PLACE.is_dir():
        pytest.skip(f"ksqlDB's cases are not here: {PLACE} is absent (set STRANDLINE_CONFORMANCE)")
    return read_cases(PLACE)


@pytest.mark.parametrize("kind", CLASSES)
def test_the_share_of_cases_that_pass_does_not_fall(cases: list[Case], kind: str) -> None:
    sample = [case for case in cases if case.kind == kind][:: _STEP.get(kind, 1)]
    outcomes = list(run(sample, "A", "duckdb", cuts=1))
    passed, failed = count(outcomes, "passed"), count(outcomes, "failed")
    assert passed + failed > 0
    assert passed / (passed + failed) >= FLOORS[kind], _told(outcomes)


def _told(outcomes: list[Outcome]) -> str:
    return "\n".join(f"{each.file}: {each.name}: {each.reason}" for each in outcomes if each.outcome == "failed")
