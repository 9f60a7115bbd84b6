"""What is kept beside tables survives a power cut at any moment, and nothing that is half there is taken for whole."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support.power_histories import HISTORIES, assert_each_disk


@pytest.mark.parametrize("name", list(HISTORIES))
def test_what_was_reported_survives(tmp_path: Path, name: str) -> None:
    cuts = assert_each_disk(HISTORIES[name](), tmp_path, random.Random(1), most=3)
    assert cuts.disks > 10
