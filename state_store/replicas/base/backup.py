"""Backups: a store's files, and a manifest that names them with their checksums.

A backup whose manifest is not there does not exist: the manifest is written last, and the folder gets its name when all
of it is on disk. So a kill leaves a backup or a hidden folder, which the next one removes.
"""

from __future__ import annotations

import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.delta.staging import checksum
from strandline.state_store.disk_errors import disk_errors
from strandline.state_store.errors import CorruptState, ObjectMissing
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, sync_file, sync_folder, write_new

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Store

_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1


def back_up(store: Store, folder: Path, about: dict[str, Any]) -> None:
    """Make a backup in a folder that is not there yet.

    Args:
        about: what the manifest says of the rows, for people.

    Raises:
        DiskFailed: the disk is full or broken; there is no backup.
        CorruptState: the store does not read back.
        FileExistsError: the folder is there.
    """
    if folder.exists():
        raise FileExistsError(folder)
    begun = folder.with_name(f".{folder.name}.begun")
    shutil.rmtree(begun, ignore_errors=True)
    make_folder(begun)
    store.copy_to(begun)
    failpoint("inside-replica-backup")
    files = sorted(path for path in begun.rglob("*") if path.is_file())
    named = {path.relative_to(begun).as_posix(): checksum(path) for path in files}
    for path in files:
        sync_file(path)
    for inner in {path.parent for path in files} - {begun}:
        sync_folder(inner)
    manifest = {"format": _FORMAT, **about, "files": named}
    write_new(begun / _MANIFEST, json.dumps(manifest, indent=1).encode())
    sync_folder(begun)
    failpoint("before-replica-backup-named")
    with disk_errors(folder):
        os.rename(begun, folder)
    sync_folder(folder.parent)


def check_backup(folder: Path) -> dict[str, Any]:
    """What the manifest of a backup says, after every file was compared with its checksum.

    Raises:
        ObjectMissing: there is no backup, or it was never finished.
        CorruptState: a file is missing or is not as it was written.
    """
    try:
        manifest: dict[str, Any] = json.loads((folder / _MANIFEST).read_bytes())
        files: dict[str, str] = manifest["files"]
        known = manifest["format"] == _FORMAT
    except FileNotFoundError:
        raise ObjectMissing(f"there is no backup '{folder.name}'", where=str(folder), hint="choose another") from None
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState("the manifest of a backup does not read back", where=str(folder)) from error
    if not known:
        raise CorruptState("a backup was written by another version of Strandline", where=str(folder))
    for name, expected in files.items():
        path = folder / name
        if not path.is_file() or checksum(path) != expected:
            raise CorruptState(f"a file of a backup is not as it was written: '{name}'", where=str(folder))
    return manifest


def copy_files(backup: Path, target: Path) -> None:
    """Copy the files of a backup, but for the manifest, to a folder that is not there yet.

    Raises:
        DiskFailed: the disk is full or broken.
    """
    with disk_errors(target):
        shutil.copytree(backup, target, ignore=shutil.ignore_patterns(_MANIFEST))
