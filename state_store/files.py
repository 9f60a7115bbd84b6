"""Atomic and durable files: written to a temporary file, flushed, then linked or renamed in one step.

A write that fails leaves nothing behind; a process that is killed may leave a hidden `.tmp` file.

`create` is put-if-absent: only one of many processes gets the name, without a lock, so one that dies blocks nobody.
No folder is made: what was removed is not begun again by a late writer.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from uuid import uuid4

from state_store.failpoints import failpoint

if TYPE_CHECKING:
    from pathlib import Path


def create(path: Path, data: bytes) -> bool:
    """Write a new file; False, and nothing written, when the name is taken."""
    temporary = _temporary(path, data)
    failpoint("before-link")
    try:
        os.link(temporary, path)  # unlike a rename, a link fails when the name is taken
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)  # the folder may be gone with it
    sync_folder(path.parent)
    return True


def replace(path: Path, data: bytes) -> None:
    """Write a file, replacing the one of that name: a reader sees the old one or the new one."""
    temporary = _temporary(path, data)
    try:
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that nothing names yet, and flush it; a broken write leaves nothing behind."""
    with path.open("xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # A full disk above all: what was written of it would take the place that is missing.
            path.unlink(missing_ok=True)
            raise


def sync_file(path: Path) -> None:
    """Flush to disk what another process, or a library, has written."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Flush a folder to disk, so that new and removed names survive a power cut."""
    sync_file(folder)


def _temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    write_new(temporary, data)
    return temporary
