"""Backups of a store: its files, and a manifest that names them with their checksums.

A backup whose manifest is not there does not exist: the manifest is written last, and the folder gets its name when all
of it is on disk. So a kill leaves a backup or a hidden folder, which the next one removes.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.delta.data_files import checksum
from strandline.state_store.errors import CorruptState, ObjectMissing
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import disk_errors, make_folder, sync_file, sync_folder, write_new
from strandline.state_store.replicas.row_bytes import ROWS, ROWS_END
from strandline.state_store.replicas.store import Write

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from strandline.state_store.replicas.store import Store, StoreSnapshot


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
    """Compare every file of a backup with its checksum; return the manifest.

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


# Dump: the backup of a backend without files of its own, as one file.
#
#     one line of JSON: format, length of the state | the state | for each row: two lengths (4 bytes each), key, value
#
# Checksums are the manifest's, see above.

_NAME: Final = "rows.dump"
_DUMP_FORMAT: Final = 1
_LENGTHS: Final = struct.Struct("<II")
# DynamoDB takes 25 rows a request; the others are fastest at some thousands.
_ROWS_PER_WRITE: Final = 5_000


def dump(snapshot: StoreSnapshot, folder: Path) -> None:
    """Write a snapshot to a file in the folder."""
    state = snapshot.state() or b""
    with disk_errors(folder), (folder / _NAME).open("xb") as file:
        file.write(json.dumps({"format": _DUMP_FORMAT, "state": len(state)}).encode() + b"\n" + state)
        for key, value in snapshot.range(ROWS, ROWS_END):
            file.write(_LENGTHS.pack(len(key), len(value)) + key + value)


def load(folder: Path, store: Store, unfinished: bytes) -> None:
    """Put the rows of a dump into a store in place of its own; its state stands when all rows do.

    Args:
        unfinished: the state until then.

    Raises:
        CorruptState: the file is no dump.
        Others: as of `Store.write`.
    """
    store.clear(unfinished)
    with (folder / _NAME).open("rb") as file:
        try:
            state = file.read(int(json.loads(file.readline())["state"]))
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState("a backup does not read back", where=str(folder)) from error
        while rows := _rows(file, folder):
            store.write(Write(unfinished, [key for key, _ in rows], [value for _, value in rows]))
    store.write(Write(state))


def _rows(file: BinaryIO, folder: Path) -> list[tuple[bytes, bytes]]:
    rows: list[tuple[bytes, bytes]] = []
    while len(rows) < _ROWS_PER_WRITE and (head := file.read(_LENGTHS.size)):
        try:
            key, value = _LENGTHS.unpack(head)
        except struct.error as error:
            raise CorruptState("a backup does not read back", where=str(folder)) from error
        rows.append((file.read(key), file.read(value)))
    return rows
