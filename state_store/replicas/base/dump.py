"""A store as one file: what a backup is where the backend has no files of its own.

    one line of JSON: format, length of the state | the state | for each row: two lengths (4 bytes each), key, value

Checksums are the manifest's, see `base.backup`.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Final

from strandline.state_store.disk_errors import disk_errors
from strandline.state_store.errors import CorruptState
from strandline.state_store.replicas.base.store import Write
from strandline.state_store.replicas.codec.keys import ROWS, ROWS_END

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

    from strandline.state_store.replicas.base.store import Snapshot, Store

_NAME: Final = "rows.dump"
_FORMAT: Final = 1
_LENGTHS: Final = struct.Struct("<II")
# DynamoDB takes 25 rows a request; the others are fastest at some thousands.
_ROWS_PER_WRITE: Final = 5_000


def dump(snapshot: Snapshot, folder: Path) -> None:
    """Write a snapshot to a file in the folder."""
    state = snapshot.state() or b""
    with disk_errors(folder), (folder / _NAME).open("xb") as file:
        file.write(json.dumps({"format": _FORMAT, "state": len(state)}).encode() + b"\n" + state)
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
