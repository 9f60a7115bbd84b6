"""A share of the campaign that kills a pipeline's driver; `python -m tests.campaigns.pipeline_kills` does the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.campaigns.pipeline_kills import RANDOM, RefreshDriver, campaign


@pytest.mark.kill
def test_a_driver_killed_in_a_refresh_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Two places at which every drain comes by, so that both are kills, and a moment."""
    result = campaign(tmp_path, 3, ["inside-refresh", "after-refresh-commit", RANDOM], RefreshDriver)
    assert result.kills.total() + result.missed == 3
    assert result.kills["inside-refresh"] + result.kills["after-refresh-commit"] > 0
