"""The segments of topics of format 1: a folder per partition, a file per call and partition. Read, never written.

<topic>/<partition>/<base offset>.log      magic "STL1" · count u32 · body length u64 · crc32(body) u32
                                           · crc32 of the header before it u32 · records as in `record_bytes`
"""

from __future__ import annotations

import struct
import zlib
from bisect import bisect_right
from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs import record_bytes
from strandline.jobs.ingest.logs.damage import damaged, missing
from strandline.jobs.ingest.logs.log import CHUNK, Records
from strandline.state_store.paths import file_names, file_size, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.state_store.paths import LakePath

_MAGIC = b"STL1"
_HEADER = struct.Struct("<4sIQII")
_CHECKED = _HEADER.size - 4


def bases(folder: LakePath) -> list[int]:
    """The base offsets of a partition's segments, sorted; none where there is no such folder."""
    try:
        return sorted(int(name[:20]) for name in file_names(folder) if name.endswith(".log"))
    except FileNotFoundError:
        return []


def end(folder: LakePath) -> int:
    """The offset after a partition's last record. Raises CorruptState."""
    found = bases(folder)
    return found[-1] + _count(folder / _name(found[-1])) if found else 0


def read(folder: LakePath, partition: int, start: int, until: int) -> Iterator[tuple[int, Records]]:
    """(bytes, records) of the offsets start <= offset < until, in order, at most `CHUNK` at a time.

    Raises:
        CorruptState: a file is broken or missing.
    """
    found = bases(folder)
    position = start
    for base in found[max(0, bisect_right(found, start) - 1) :]:
        if base >= until or position >= until:
            break
        path = folder / _name(base)
        held = _decode(path, partition, base)
        if base > position or base + len(held) <= position:
            break
        size = file_size(path) // len(held)
        while position < min(until, base + len(held)):
            piece = held.cut(position - base, min(until - base, position - base + CHUNK, len(held)))
            position += len(piece)
            yield size * len(piece), piece
    if position < until:
        raise missing(folder.parent, partition, position)


def size(folder: LakePath, start: int, until: int) -> int:
    """About how many bytes the records with start <= offset < until take. Raises CorruptState."""
    total = 0
    for base in bases(folder):
        path = folder / _name(base)
        count = _count(path)
        inside = max(0, min(until, base + count) - max(start, base))
        total += file_size(path) * inside // count
    return total


def _name(base: int) -> str:
    return f"{base:020d}.log"


def _count(path: LakePath) -> int:
    with open_file(path) as file:
        return _header(file.read(_HEADER.size), path)[0]


def _decode(path: LakePath, partition: int, base: int) -> Records:
    data = path.read_bytes()
    count, length, checksum = _header(data[: _HEADER.size], path)
    body = data[_HEADER.size :]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise damaged(path)
    records = Records(partition)
    record_bytes.decode_into(records, body, range(base, base + count))
    return records


def _header(data: bytes, path: LakePath) -> tuple[int, int, int]:
    if len(data) != _HEADER.size:
        raise damaged(path)
    magic, count, length, checksum, own = _HEADER.unpack(data)
    if magic != _MAGIC or own != zlib.crc32(data[:_CHECKED]) or not count:
        raise damaged(path)
    return count, length, checksum
