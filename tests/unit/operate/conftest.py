"""One lake with some epochs behind it for all tests of operations, put back as it was before each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs.model.settings import load_settings
from tests.support.operated_lake import operated, put_back
from tests.unit.operate.verify.lakes import MadeLake


@pytest.fixture(scope="session")
def operated_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[MadeLake, Path]:
    """The lake, and a copy of its folder."""
    folder = tmp_path_factory.mktemp("operated")
    made = operated(load_settings(lake=folder / "lake"))
    shutil.copytree(folder / "lake", folder / "kept")
    return made, folder / "kept"


@pytest.fixture
def shop(operated_template: tuple[MadeLake, Path]) -> MadeLake:
    """The lake, for a test to operate on."""
    made, kept = operated_template
    put_back(kept.parent / "lake", kept)
    return made
