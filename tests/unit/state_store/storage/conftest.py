"""Every test here runs on both kinds of storage: a folder, and a prefix of an S3."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from strandline.state_store.storage import StorageOptions
from strandline.state_store.storage_verbs import Storage
from tests.support.s3_server import BUCKET, S3Server
from tests.unit.state_store.storage.places import Place


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        (tmp_path / "lake").mkdir()
        return Place(str(tmp_path / "lake"), StorageOptions())
    return s3_place(request.getfixturevalue("s3_server"))


@pytest.fixture
def storage(place: Place) -> Storage:
    return place.open()


@pytest.fixture
def s3(s3_server: S3Server) -> Place:
    """For what only an object store does."""
    return s3_place(s3_server)


def s3_place(server: S3Server) -> Place:
    return Place(f"s3://{BUCKET}/{uuid4().hex}", server.options())
