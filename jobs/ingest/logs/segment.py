"""The file format of the local log's segments: a header with the number of records, then the records.

    header   magic 4s · count u32 · body length u64 · crc32(body) u32 · crc32(the header before it) u32
    record   timestamp i64 · key · value · header count u32 · (name · value) per header
    a field  length i32 (-1: null), then its bytes

All numbers are little-endian. Both checksums are verified at every read. The base offset is the file's name, not its
content: a producer that loses the race for an offset claims the next one with the same file.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

from jobs.ingest.logs.log import Records
from state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from jobs.ingest.logs.log import Header, Record

_MAGIC = b"STL1"
_FIXED = struct.Struct("<4sIQI")
_CRC = struct.Struct("<I")
_TIME_AND_KEY = struct.Struct("<qi")
_LENGTH = struct.Struct("<i")
_COUNT = struct.Struct("<I")
HEADER_BYTES = _FIXED.size + _CRC.size


def encode(records: Sequence[Record]) -> bytes:
    """The bytes of a segment that holds `records`."""
    parts: list[bytes] = []
    for record in records:
        parts.append(struct.pack("<q", record.timestamp_ms))
        parts += (_field(record.key), _field(record.value), _COUNT.pack(len(record.headers)))
        for name, value in record.headers:
            parts += (_field(name.encode()), _field(value))
    body = b"".join(parts)
    header = _FIXED.pack(_MAGIC, len(records), len(body), zlib.crc32(body))
    return header + _CRC.pack(zlib.crc32(header)) + body


def count(path: Path) -> int:
    """The number of records in the file, from its header alone.

    Raises:
        CorruptState: the header is broken.
    """
    with path.open("rb", buffering=0) as file:
        return _header(file.read(HEADER_BYTES), path)[0]


def decode(path: Path, partition: int, base: int) -> Records:
    """Every record of the file, the first one at offset `base`.

    Raises:
        CorruptState: a checksum or a length does not fit.
    """
    data = path.read_bytes()
    total, length, checksum = _header(data[:HEADER_BYTES], path)
    body = memoryview(data)[HEADER_BYTES:]
    if len(body) != length or zlib.crc32(body) != checksum:
        raise _corrupt(path)
    records = Records(partition, list(range(base, base + total)))
    position = HEADER_BYTES
    for _ in range(total):
        timestamp, size = _TIME_AND_KEY.unpack_from(data, position)
        key, position = _bytes_at(data, position + 12, size)
        value, position = _field_at(data, position)
        headers, position = _headers_at(data, position)
        records.timestamps.append(timestamp)
        records.keys.append(key)
        records.values.append(value)
        records.headers.append(headers)
    return records


def _field(value: bytes | None) -> bytes:
    return _LENGTH.pack(-1) if value is None else _LENGTH.pack(len(value)) + value


def _bytes_at(data: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    return (None, position) if size < 0 else (data[position : position + size], position + size)


def _field_at(data: bytes, position: int) -> tuple[bytes | None, int]:
    (size,) = _LENGTH.unpack_from(data, position)
    return _bytes_at(data, position + 4, size)


def _headers_at(data: bytes, position: int) -> tuple[list[Header] | None, int]:
    (number,) = _COUNT.unpack_from(data, position)
    position += 4
    if not number:
        return None, position
    headers: list[Header] = []
    for _ in range(number):
        name, position = _field_at(data, position)
        value, position = _field_at(data, position)
        headers.append(((name or b"").decode(), value))
    return headers, position


def _header(data: bytes, path: Path) -> tuple[int, int, int]:
    if len(data) < HEADER_BYTES or zlib.crc32(data[: _FIXED.size]) != _CRC.unpack_from(data, _FIXED.size)[0]:
        raise _corrupt(path)
    magic, total, length, checksum = _FIXED.unpack_from(data)
    if magic != _MAGIC:
        raise _corrupt(path)
    return total, length, checksum


def _corrupt(path: Path) -> CorruptState:
    return CorruptState(
        "a file of the local log does not read back as it was written",
        where=str(path),
        hint="restore the file from a backup of the lake",
    )
