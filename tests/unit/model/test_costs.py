"""What refreshes would cost at another FRESHNESS: the fit, and what follows from it."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from strandline.jobs.model.report import DAY_SECONDS, CostFit, RefreshCosts


def fitted(*refreshes: tuple[int, float]) -> CostFit:
    fit = CostFit()
    for rows, seconds in refreshes:
        fit.add(rows, seconds)
    return fit


def of_line(fixed: float, by_row: float, *rows: int) -> CostFit:
    return fitted(*((each, fixed + by_row * each) for each in rows))


def test_the_two_parts_of_a_line_are_found() -> None:
    fit = of_line(0.02, 0.000_5, 1, 10, 100, 40)
    assert fit.by_row() == pytest.approx(0.000_5)
    costs = RefreshCosts.of(fit, [of_line(0.01, 0.0, 1, 10, 100, 40)])
    assert costs is not None
    assert costs.refreshes == 4
    assert costs.fixed_seconds == pytest.approx(0.03)
    assert costs.rows_seconds == pytest.approx(151 * 0.000_5)


@pytest.mark.parametrize("refreshes", [[(5, 0.1), (5, 0.3)], [(0, 0.1)], [(1, 0.5), (100, 0.1)]])
def test_what_cannot_be_told_apart_is_fixed(refreshes: list[tuple[int, float]]) -> None:
    """Refreshes that are all as large, of no rows, or dearer when smaller."""
    assert fitted(*refreshes).by_row() == 0.0


def test_a_view_that_was_never_refreshed_by_changes_has_no_costs() -> None:
    assert RefreshCosts.of(CostFit(), [fitted((1, 1.0))]) is None


def test_patience_divides_the_fixed_part_alone() -> None:
    """A round a second for a minute: what a target of a minute costs is a sixtieth of it, and all rows."""
    costs = RefreshCosts(refreshes=60, fixed_seconds=0.02, rows_seconds=0.6)
    found = costs.seconds_a_day(lasted=60.0, rounds=60)
    rows = 0.6 / 60 * DAY_SECONDS
    assert found["none"] == found["1"] == pytest.approx(DAY_SECONDS * 0.02 + rows)
    assert found["60"] == pytest.approx(DAY_SECONDS / 60 * 0.02 + rows, abs=0.1)
    assert found["3600"] == pytest.approx(24 * 0.02 + rows, abs=0.1)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 100)), min_size=1), st.integers(1, 10_000))
def test_patience_never_costs_more_and_no_part_is_below_zero(refreshes: list[tuple[int, float]], rounds: int) -> None:
    costs = RefreshCosts.of(fitted(*refreshes), [])
    assert costs is not None
    assert costs.fixed_seconds >= -1e-6
    assert costs.rows_seconds >= 0
    found = list(costs.seconds_a_day(100.0, rounds).values())
    assert found == sorted(found, reverse=True)
