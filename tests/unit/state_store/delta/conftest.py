"""A folder for tables on both kinds of storage: a disk, and a prefix of an S3."""

from __future__ import annotations

from pathlib import Path

import pytest

from state_store.paths import LakePath
from tests.support.lakes import s3_folder


@pytest.fixture(params=["disk", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> LakePath:
    return tmp_path if request.param == "disk" else s3_folder(request.getfixturevalue("s3_server"))
