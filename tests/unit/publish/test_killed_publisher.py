"""A publisher that is killed publishes each record once all the same: here to the lake's own topics."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import Settings
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.killed_publisher import published
from tests.support.published_lake import PublishedLake


@pytest.mark.kill
def test_a_killed_publisher_loses_and_doubles_nothing(settings: Settings) -> None:
    """Before the segment is written, when it is there, and when the publisher knows so; first the whole view, then
    the changes of two versions."""
    made = PublishedLake(settings)
    with DuckDBEngine("500MB", 1) as duckdb_engine:
        for failpoint in ("before-publish", "after-segment", "after-publish"):
            for _ in range(2):
                made.epoch(duckdb_engine)
            assert published(settings, "by_town", failpoint) == -9
            assert published(settings, "by_town", "") == 0
    folds = list(made.folds("by_town"))
    assert [version for version, _ in folds] == [2, 3, 4, 5, 6]
    assert [digest for _, digest in folds] == [made.digest("by_town", version) for version, _ in folds]
