"""The errors of files of the local log that are not as they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath


def damaged(path: LakePath) -> CorruptState:
    """The error for a file whose checksums or numbers do not fit."""
    return CorruptState(
        "a file of the local log does not read back as it was written",
        where=str(path),
        hint="restore the file from a backup of the lake",
    )


def missing(folder: LakePath, partition: int, offset: int) -> CorruptState:
    """The error for a record that no file holds, though later ones are there."""
    return CorruptState(
        f"the local log has no record at offset {offset} of partition {partition}",
        where=str(folder),
        hint="a segment file was removed: restore it from a backup of the lake",
    )
