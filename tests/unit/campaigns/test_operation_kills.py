"""The campaign of killed operations in small; `make nightly` runs it at length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaigns.operation_kills import Campaign


@pytest.mark.kill
@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("rebuild", "inside-refresh:1"),
        ("backup", "inside-backup:1"),
        ("publish", "before-publish:1"),
        ("retention", "after-trim-digest:1"),
        ("compact", "after-compaction-staged:1"),
        ("column", "after-source-columns:1"),
        ("rename", "after-called:1"),
        ("swap", "after-swap-file:1"),
    ],
)
def test_an_operation_that_is_killed_is_said_again(tmp_path: Path, name: str, place: str) -> None:
    made = Campaign(tmp_path, random.Random(name))
    made.begin()
    made.operation(name, place)
    assert made.kills[name] >= 1
