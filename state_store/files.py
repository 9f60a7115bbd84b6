"""Files that appear whole and stay: written aside, flushed, then given their name in one step.

`create` is put-if-absent: of many writers one gets the name, without a lock, so a writer that dies blocks nobody.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

if TYPE_CHECKING:
    from pathlib import Path


def create(path: Path, data: bytes) -> bool:
    """Write a file under a name nobody has; False, and nothing written, when the name is taken."""
    aside = _written_aside(path, data)
    try:
        os.link(aside, path)  # unlike a rename, a link fails when the name is taken
    except FileExistsError:
        return False
    finally:
        aside.unlink()
    sync_folder(path.parent)
    return True


def replace(path: Path, data: bytes) -> None:
    """Write a file in the place of the one that may be there: a reader sees the old one or the new one."""
    os.replace(_written_aside(path, data), path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make names given or removed in a folder last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _written_aside(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    with aside.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return aside
