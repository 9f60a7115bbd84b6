"""Nexmark's 23 questions: views maintained from batches hold what DuckDB answers over all events."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import duckdb
import pytest

from benchmarks.nexmark.generator import Event
from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.layout import LakeLayout
from tests.nexmark.expected import EXPECTED
from tests.nexmark.maintained_views import MaintainedViews, answers, holding, inserts, with_amendments

# Where the batches end: of all sizes, some of a few events, one empty.
CUTS = (1, 40, 700, 703, 703, 1500, 2600)


@cache
def events(*, amended: bool) -> tuple[Event, ...]:
    return tuple(with_amendments() if amended else inserts())


@cache
def database(end: int, *, amended: bool) -> duckdb.DuckDBPyConnection:
    """What is there after so many events: all views are asked of it."""
    return holding(events(amended=amended)[:end])


@cache
def wanted(view: str, end: int, *, amended: bool) -> Any:
    return answers(database(end, amended=amended), view)


def batches(given: Sequence[Event], cuts: Sequence[int]) -> list[Sequence[Event]]:
    bounds = [0, *cuts, len(given)]
    return [given[begin:end] for begin, end in pairwise(bounds)]


@pytest.mark.parametrize("cuts", [(), CUTS], ids=["one batch", "eight batches"])
@pytest.mark.parametrize("view", EXPECTED)
def test_a_view_over_streams_holds_what_its_question_answers(
    lake: LakeLayout, view: str, cuts: tuple[int, ...]
) -> None:
    maintained = MaintainedViews(Catalog(lake), [view], as_tables=False)
    for batch in batches(events(amended=False), cuts):
        maintained.take(batch)
    found = maintained.rows(view)
    assert found == wanted(view, len(events(amended=False)), amended=False)
    assert found, "a question without an answer tests nothing"


@pytest.mark.parametrize("view", EXPECTED)
def test_a_view_over_tables_follows_changes_and_withdrawals(lake: LakeLayout, view: str) -> None:
    maintained = MaintainedViews(Catalog(lake), [view], as_tables=True)
    given = events(amended=True)
    end = 0
    for batch in batches(given, CUTS):
        maintained.take(batch)
        end += len(batch)
        assert maintained.rows(view) == wanted(view, end, amended=True)
