"""Tests that begin with the same lake: it is made once for their module, and each test gets a copy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.model.settings import Settings, load_settings
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk


def begins_with(made: Callable[[Settings], object]) -> tuple[Any, Any]:
    """The fixtures `template` and `lake` of a module: the folder of what `made` leaves, and a copy for each test."""

    @pytest.fixture(scope="module")
    def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
        folder = tmp_path_factory.mktemp("template") / "lake"
        made(load_settings(lake=folder))
        return folder

    @pytest.fixture
    def lake(template: Path, lake: LakeLayout) -> LakeLayout:
        shutil.copytree(template, on_disk(lake.root), dirs_exist_ok=True)
        return lake

    return template, lake
