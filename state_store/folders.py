"""Folders of a lake as wholes: removed, moved, copied.

On a disk a folder is renamed in one step. An object store has no folders and nothing to rename: there a table's folder
is copied and then removed object by object, its log first and from the newest entry down. So whoever reads meanwhile
finds an older version of the table, or none, and never one whose files are gone.
"""

from __future__ import annotations

import errno
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.state_store.errors import StoreError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import sync_folder
from strandline.state_store.location import Location
from strandline.state_store.paths import LakePath, within
from strandline.state_store.process import process

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG: Final = "_delta_log"
_HINT: Final = f"{_LOG}/_last_checkpoint"
_FILLED: Final = (errno.ENOTEMPTY, errno.EEXIST)
"""What systems say of a folder in which something is."""


def remove_file(path: LakePath) -> None:
    """Remove a file; nothing happens when there is none. On a disk its folder is not flushed."""
    if isinstance(path, Location):
        path.delete()
    else:
        path.unlink(missing_ok=True)


def remove_folder(folder: LakePath) -> None:
    """Remove a folder and all in it."""
    if isinstance(folder, Location):
        for name in _from_the_log_down(folder):
            failpoint("inside-removal")
            (folder / name).delete()
    else:
        shutil.rmtree(folder)


def discard_folder(folder: LakePath) -> None:
    """Remove a folder that nothing names; what cannot be removed is left to clean-up."""
    if isinstance(folder, Location):
        with suppress(StoreError):
            remove_folder(folder)
    else:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(where: Path, prefix: str) -> None:
    """Remove the temporary folders `<prefix><pid>-…` in a folder whose processes were killed."""
    for folder in where.glob(f"{prefix}*"):
        pid = folder.name.removeprefix(prefix).partition("-")[0]
        if pid.isdecimal() and process(int(pid)) is None:
            shutil.rmtree(folder, ignore_errors=True)


def move_folder(folder: LakePath, target: LakePath) -> None:
    """Give a folder another name, which is not taken; on a disk in one step, flushed.

    On an object store a kill may leave a copy that is not whole under the new name, and part of the old one.
    """
    if isinstance(folder, Location) and isinstance(target, Location):
        for name in reversed(_from_the_log_down(folder)):
            failpoint("inside-copy")
            (target / name).replace((folder / name).read_bytes())
        remove_folder(folder)
    elif isinstance(folder, Path) and isinstance(target, Path):
        folder.rename(target)
        sync_folder(folder.parent)
        sync_folder(target.parent)
    else:
        raise ValueError(f"'{target}' is another storage than that of '{folder}'")


def copy_to_disk(folder: LakePath, target: Path) -> None:
    """Copy a folder and all in it to one on this machine that is not there yet; nothing if there is none to copy."""
    if isinstance(folder, Path):
        if folder.exists():
            shutil.copytree(folder, target)
        return
    for file in folder.list(recursive=True):
        copy = target / within(file, folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())


def remove_if_empty(folder: LakePath) -> None:
    """Remove a folder if it is there and nothing is in it; an object store has no empty ones."""
    if isinstance(folder, Path):
        # The system looks and removes at once: another process may fill or remove it between two steps of ours.
        with suppress(FileNotFoundError):
            try:
                folder.rmdir()
            except OSError as error:
                if error.errno not in _FILLED:
                    raise


def _from_the_log_down(folder: Location) -> Sequence[str]:
    """The names below a table's folder: the hint, the log from the newest entry down, then all else."""
    names = sorted((within(file, folder) for file in folder.list(recursive=True)), reverse=True)
    return sorted(names, key=lambda name: (name != _HINT, not name.startswith(f"{_LOG}/")))
