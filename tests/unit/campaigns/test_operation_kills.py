"""The campaign of killed operations in small; `make nightly` runs it at length."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.campaigns.operation_kills import OPERATIONS, Campaign
from tests.support.examples import AT_LENGTH


@pytest.mark.kill
@pytest.mark.parametrize("name", OPERATIONS if AT_LENGTH else ["rebuild", "compact"])
def test_an_operation_that_is_killed_is_said_again(tmp_path: Path, name: str) -> None:
    made = Campaign(tmp_path, random.Random(name))
    made.begin()
    while not made.kills[name]:
        made.operation(name)
