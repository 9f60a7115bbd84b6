"""Two lakes for all tests of operations, each put back as it was before each test: one healthy and small, which the
checks look at, and one with some epochs behind it, which is operated on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.settings import load_settings
from tests.support.on_disk import on_disk
from tests.support.operated_lake import operated, put_back
from tests.unit.operate.verify.lakes import MadeLake, healthy


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[MadeLake, Path]:
    """The healthy lake, and a copy of its folder."""
    folder = tmp_path_factory.mktemp("healthy")
    made = healthy(load_settings(lake=folder / "lake"))
    shutil.copytree(on_disk(made.lake.root), folder / "kept")
    return made, folder / "kept"


@pytest.fixture
def made(template: tuple[MadeLake, Path]) -> MadeLake:
    """The healthy lake, for a test to damage."""
    lake, kept = template
    put_back(kept.parent / "lake", kept)
    lake.log = LocalLog(lake.lake)  # one that knows nothing of what other tests produced
    return lake


@pytest.fixture(scope="session")
def operated_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[MadeLake, Path]:
    """The lake with epochs, and a copy of its folder."""
    folder = tmp_path_factory.mktemp("operated")
    made = operated(load_settings(lake=folder / "lake"))
    shutil.copytree(folder / "lake", folder / "kept")
    return made, folder / "kept"


@pytest.fixture
def shop(operated_template: tuple[MadeLake, Path]) -> MadeLake:
    """The lake with epochs, for a test to operate on."""
    made, kept = operated_template
    put_back(kept.parent / "lake", kept)
    made.log = LocalLog(made.lake)
    return made
