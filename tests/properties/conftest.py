"""Views of properties are computed in the ways in which a run may compute them."""

from __future__ import annotations

from zlib import crc32

import pytest

from strandline.jobs.ivm.refresh import together


@pytest.fixture(autouse=True)
def computed_as_several(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """In half of the tests what could be computed with others is computed as one of several, though it is alone."""
    if crc32(request.node.name.encode()) % 2:
        monkeypatch.setattr(together, "FEWEST", 1)
