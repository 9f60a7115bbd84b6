"""The lake whose views are asked about."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import load_settings
from tests.unit.operate.verify.lakes import MadeLake, healthy


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> MadeLake:
    """A healthy lake; its tables are only read."""
    return healthy(load_settings(lake=tmp_path_factory.mktemp("healthy") / "lake"))
