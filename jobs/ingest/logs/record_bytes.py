"""The bytes of records in the files of the local log.

    record   timestamp i64 · key · value · header count u32 · (name · value) per header
    a field  length i32 (-1: null), then its bytes

All numbers are little-endian. The bytes carry no checksum: what holds them does.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.ingest.logs.log import Header, Record, Records

_TIME = struct.Struct("<q")
_TIME_AND_KEY = struct.Struct("<qi")
_LENGTH = struct.Struct("<i")
_COUNT = struct.Struct("<I")


def encode(record: Record) -> bytes:
    """The bytes of one record. Its offset is not among them."""
    parts = [_TIME.pack(record.timestamp_ms), _field(record.key), _field(record.value)]
    parts.append(_COUNT.pack(len(record.headers)))
    for name, value in record.headers:
        parts += (_field(name.encode()), _field(value))
    return b"".join(parts)


def decode_into(records: Records, data: bytes, offsets: Sequence[int]) -> None:
    """Add the records of `data`, one for each offset, to `records`."""
    position = 0
    for _ in offsets:
        timestamp, size = _TIME_AND_KEY.unpack_from(data, position)
        key, position = _bytes_at(data, position + 12, size)
        value, position = _field_at(data, position)
        headers, position = _headers_at(data, position)
        records.timestamps.append(timestamp)
        records.keys.append(key)
        records.values.append(value)
        records.headers.append(headers)
    records.offsets += offsets


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
