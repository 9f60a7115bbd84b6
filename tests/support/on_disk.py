"""A place of a lake that is on this machine's disk, for tests that break files there by hand."""

from __future__ import annotations

from pathlib import Path

from strandline.state_store.paths import LakePath


def on_disk(path: LakePath) -> Path:
    """The same place; a test whose lake is on an object store asks for it in error."""
    assert isinstance(path, Path)
    return path
