"""Atomic and durable files: written to a temporary file, flushed, then linked or renamed in one step.

A write that fails leaves nothing behind; a process that is killed may leave a hidden `.tmp` file.

`create` is put-if-absent: only one of many processes gets the name, without a lock, so one that dies blocks nobody.
It and `replace` make no folder: what was removed is not begun again by a late writer.

Every write here raises DiskFailed on a full or broken disk, StorageDenied where this user may not write, and KeyRefused
for a name that is too long for the disk.

On an object store a put is all of this at once, and flushing and making folders is nothing. There a write raises
StorageUnavailable when the store does not answer: it may have been done nevertheless.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.state_store.disk_errors import disk_errors
from strandline.state_store.errors import StorageDenied
from strandline.state_store.failpoints import failpoint
from strandline.state_store.location import Location

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.state_store.paths import LakePath


def create(path: LakePath, data: bytes) -> bool:
    """Write a new file; False, and nothing written, when the name is taken."""
    if isinstance(path, Location):
        failpoint("before-link")
        made = path.create(data)
        failpoint("after-link")
        return made
    temporary = _temporary(path, data)
    failpoint("before-link")
    with disk_errors(path):
        try:
            os.link(temporary, path)  # unlike a rename, a link fails when the name is taken
            failpoint("after-link")
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)  # the folder may be gone with it
    sync_folder(path.parent)
    return True


def replace(path: LakePath, data: bytes) -> None:
    """Write a file, replacing the one of that name: a reader sees the old one or the new one."""
    if isinstance(path, Location):
        failpoint("before-rename")
        path.replace(data)
        return
    temporary = _temporary(path, data)
    failpoint("before-rename")
    with disk_errors(path):
        try:
            os.replace(temporary, path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def write_new(path: LakePath, data: bytes) -> None:
    """Write a file that nothing names yet, and flush it; a broken write leaves nothing behind."""
    if isinstance(path, Location):
        path.replace(data)
        return
    with disk_errors(path), path.open("xb") as file:
        try:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            # A full disk above all: what was written of it would take the place that is missing.
            path.unlink(missing_ok=True)
            raise


def sync_file(path: LakePath) -> None:
    """Flush to disk what another process, or a library, has written."""
    if isinstance(path, Location):
        return
    with disk_errors(path):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_folder(folder: LakePath) -> None:
    """Flush a folder to disk, so that new and removed names survive a power cut."""
    sync_file(folder)


def make_folder(folder: LakePath) -> None:
    """Make a folder and those above it unless they are there, outermost first, each flushed before the next.

    So only the name of the innermost folder that is there may be unflushed: whoever made it was killed before that.
    """
    if isinstance(folder, Location):
        return
    with disk_errors(folder):
        try:
            os.mkdir(folder)
        except FileNotFoundError:
            if folder.parent.is_dir():  # as below /proc: there is a folder, and nothing can be made in it
                raise StorageDenied(
                    f"no folder '{folder.name}' can be made there", where=str(folder), hint="take another folder"
                ) from None
            make_folder(folder.parent)
            make_folder(folder)  # another process may have been faster
            return
        except FileExistsError:
            if not folder.is_dir():
                raise
            with suppress(StorageDenied):  # a folder above the lake, made by another user
                sync_folder(folder.parent)
            return
    sync_folder(folder.parent)


def _temporary(path: Path, data: bytes) -> Path:
    temporary = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    write_new(temporary, data)
    return temporary
