"""A place of a lake that is on this machine's disk, for tests that break files there by hand."""

from __future__ import annotations

from pathlib import Path

from strandline.state_store.delta.log import LOG
from strandline.state_store.paths import LakePath


def on_disk(path: LakePath) -> Path:
    """The same place; a test whose lake is on an object store asks for it in error."""
    assert isinstance(path, Path)
    return path


def data_files(table: LakePath) -> list[Path]:
    """The files in a table's folder that hold rows, named by its log or not."""
    return [file for file in on_disk(table).rglob("*.parquet") if LOG not in file.parts]
