"""Deletion vectors: the deleted rows of a data file, as Delta's protocol stores them.

A vector is a set of row positions in a 64-bit Roaring bitmap, in a file beside the data or in the log itself. delta-rs
applies them when it reads rows; its change feed (1.6.6) reports the wrong rows as deleted when a commit removes a whole
file that had a vector. So the changelog is read without it, and needs the vectors.
"""

from __future__ import annotations

import base64
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import numpy as np

from state_store.errors import CorruptState, VersionGone

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

_BITMAP_ARRAY: Final = 1681511377
"""The magic number of Delta's 64-bit bitmap in Roaring's portable form."""
_WITH_RUNS: Final = 12347
_WITHOUT_RUNS: Final = 12346
# A container without runs and with more values than this is a bitmap of 8 KiB.
_ARRAY_LIMIT: Final = 4096
# With runs, the offsets are stored only from this number of containers.
_OFFSETS_FROM: Final = 4

_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_B85: Final = str.maketrans(_Z85, _B85)


def deleted_rows(table: Path, descriptor: Mapping[str, Any]) -> NDArray[np.int64]:
    """The positions, ascending, of the rows that a vector deletes.

    Args:
        descriptor: the `deletionVector` of an action in the log.

    Raises:
        VersionGone: the vector's file is gone.
        CorruptState: the vector is broken, or lies outside the table.
    """
    try:
        positions = _decoded(_bytes(table, descriptor))
    except FileNotFoundError as error:
        raise VersionGone(f"a deletion vector of '{table.name}' is gone", where=str(table)) from error
    except (struct.error, ValueError, IndexError) as error:
        raise CorruptState(f"a deletion vector of '{table.name}' does not read back", where=str(table)) from error
    if len(positions) != int(descriptor["cardinality"]):
        raise CorruptState(f"a deletion vector of '{table.name}' has lost rows", where=str(table))
    return positions


def _bytes(table: Path, descriptor: Mapping[str, Any]) -> bytes:
    text, size = str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
    match descriptor["storageType"]:
        case "i":
            return _z85(text)[:size]
        case "u":
            prefix, name = text[:-20], UUID(bytes=_z85(text[-20:]))
            folder = table / prefix if prefix.isalnum() else table
            with (folder / f"deletion_vector_{name}.bin").open("rb") as file:
                file.seek(int(descriptor.get("offset") or 0))
                (stored,) = struct.unpack(">i", file.read(4))
                content, checksum = file.read(size), file.read(4)
            if stored != size or struct.unpack(">I", checksum)[0] != zlib.crc32(content):
                raise CorruptState(f"a deletion vector of '{table.name}' fails its checksum", where=str(table))
            return content
        case other:
            raise CorruptState(f"a deletion vector of '{table.name}' lies elsewhere (type '{other}')", where=str(table))


def _z85(text: str) -> bytes:
    return base64.b85decode(text.translate(_TO_B85))


def _decoded(content: bytes) -> NDArray[np.int64]:
    magic, count = struct.unpack_from("<iQ", content)
    if magic != _BITMAP_ARRAY:
        raise ValueError(magic)
    at = 12
    parts = [np.empty(0, np.int64)]
    for _ in range(count):
        (high,) = struct.unpack_from("<I", content, at)
        low, at = _bitmap32(content, at + 4)
        parts += [low + (high << 32)]
    return np.concatenate(parts)


def _bitmap32(content: bytes, at: int) -> tuple[NDArray[np.int64], int]:
    """The values of the 32-bit Roaring bitmap at `at`, and the position after it."""
    (cookie,) = struct.unpack_from("<I", content, at)
    runs: list[bool]
    if cookie & 0xFFFF == _WITH_RUNS:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(content, np.uint8, (count + 7) // 8, at + 4)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(bool).tolist()
        at += 4 + len(flags)
        has_offsets = count >= _OFFSETS_FROM
    elif cookie == _WITHOUT_RUNS:
        (count,) = struct.unpack_from("<I", content, at + 4)
        runs, has_offsets = [False] * count, True
        at += 8
    else:
        raise ValueError(cookie)
    headers = np.frombuffer(content, np.uint16, 2 * count, at).astype(np.int64).reshape(count, 2)
    at += 4 * count + (4 * count if has_offsets else 0)
    parts = [np.empty(0, np.int64)]
    for (key, less_one), is_run in zip(headers.tolist(), runs, strict=True):
        values, at = _container(content, at, less_one + 1, is_run)
        parts.append(values + (key << 16))
    return np.concatenate(parts), at


def _container(content: bytes, at: int, size: int, is_run: bool) -> tuple[NDArray[np.int64], int]:
    """One block of 65,536 positions: as runs, as a bitmap, or as a list."""
    if is_run:
        (count,) = struct.unpack_from("<H", content, at)
        pairs = np.frombuffer(content, np.uint16, 2 * count, at + 2).astype(np.int64).reshape(count, 2)
        spans = [np.arange(start, start + length + 1) for start, length in pairs.tolist()]
        return np.concatenate(spans), at + 2 + 4 * count
    if size > _ARRAY_LIMIT:
        bits = np.unpackbits(np.frombuffer(content, np.uint8, 8192, at), bitorder="little")
        return np.flatnonzero(bits).astype(np.int64), at + 8192
    return np.frombuffer(content, np.uint16, size, at).astype(np.int64), at + 2 * size
