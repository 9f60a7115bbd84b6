"""One healthy lake for all tests, put back as it was before each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from jobs.ingest.logs.local_log import LocalLog
from jobs.model.settings import load_settings
from tests.unit.operate.verify.lakes import MadeLake, healthy


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[MadeLake, Path]:
    """The lake, and a copy of its folder."""
    folder = tmp_path_factory.mktemp("healthy")
    made = healthy(load_settings(lake=folder / "lake"))
    shutil.copytree(made.lake.root, folder / "kept")
    return made, folder / "kept"


@pytest.fixture
def made(template: tuple[MadeLake, Path]) -> MadeLake:
    """The healthy lake, for a test to damage."""
    lake, kept = template
    shutil.rmtree(lake.lake.root)
    shutil.copytree(kept, lake.lake.root)
    lake.log = LocalLog(lake.lake)  # one that knows nothing of what other tests produced
    return lake
