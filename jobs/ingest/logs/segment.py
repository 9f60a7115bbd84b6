"""The file format of the local log's segments: the records that one call appended, to one partition or to several.

    segment  header · the frames of partition 0 · of partition 1 · …
    header   magic 4s · partitions u32 · the segment's number u64 · the topic's id 16s · an entry each · crc32 u32
    entry    end u64 · count u64 · total u64 · length u64 · earlier i64                         (see `SegmentPartition`)
    frame    count u32 · length u32 · crc32 of the records u32 · crc32 of these 12 bytes u32 · records

All numbers are little-endian, records as in `record_bytes`. Every byte is under a checksum that is verified when the
byte is used, so a reader of one partition reads the header and its own frames only. The header says where the
partitions stand after the segment, so the newest one alone says where the topic stands.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from strandline.jobs.ingest.logs.log import CHUNK
from strandline.state_store.errors import CorruptState
from strandline.state_store.paths import open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.ingest.logs.log import Header, Record, Records
    from strandline.state_store.paths import LakePath


# The errors of files of the local log that are not as they were written.


def damaged(path: LakePath) -> CorruptState:
    """The error for a file whose checksums or numbers do not fit."""
    return CorruptState(
        "a file of the local log does not read back as it was written",
        where=str(path),
        hint="restore the file from a backup of the lake",
    )


def missing(folder: LakePath, partition: int, offset: int) -> CorruptState:
    """The error for a record that no file holds, though later ones are there."""
    return CorruptState(
        f"the local log has no record at offset {offset} of partition {partition}",
        where=str(folder),
        hint="a segment file was removed: restore it from a backup of the lake",
    )


# The bytes of records in the files of the local log.
#
#     record   timestamp i64 · key · value · header count u32 · (name · value) per header
#     a field  length i32 (-1: null), then its bytes
#
# All numbers are little-endian. The bytes carry no checksum: what holds them does.

_TIME = struct.Struct("<q")
_TIME_AND_KEY = struct.Struct("<qi")
_LENGTH = struct.Struct("<i")
_UINT32 = struct.Struct("<I")


def record_bytes(record: Record) -> bytes:
    """The bytes of one record. Its offset is not among them."""
    parts = [_TIME.pack(record.timestamp_ms), _field(record.key), _field(record.value)]
    parts.append(_UINT32.pack(len(record.headers)))
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
    (number,) = _UINT32.unpack_from(data, position)
    position += 4
    if not number:
        return None, position
    headers: list[Header] = []
    for _ in range(number):
        name, position = _field_at(data, position)
        value, position = _field_at(data, position)
        headers.append(((name or b"").decode(), value))
    return headers, position


NONE = -1
"""The number before the first segment."""

_MAGIC = b"STL2"
_FIXED = struct.Struct("<4sIQ16s")
_ENTRY = struct.Struct("<QQQQq")
_FRAME = struct.Struct("<III")
# A frame is what a reader holds at once, and the finest step in which a backlog is cut by bytes.
_FRAME_BYTES = 1 << 20


@dataclass(frozen=True)
class SegmentPartition:
    """A partition as one segment leaves it.

    Attributes:
        end: the offset after its last record.
        count: how many of its records this segment holds.
        total: the bytes of its frames in all segments up to this one.
        length: the bytes of its frames in this segment.
        earlier: the number of the newest segment before this one that holds records of it; `NONE`: there is none.
    """

    end: int = 0
    count: int = 0
    total: int = 0
    length: int = 0
    earlier: int = NONE

    @property
    def base(self) -> int:
        """The offset before the segment's first record of the partition."""
        return self.end - self.count


@dataclass(frozen=True)
class SegmentHeader:
    """The header of a segment."""

    number: int
    topic_id: str
    parts: tuple[SegmentPartition, ...]

    def begin_of(self, partition: int) -> int:
        """The position of the partition's first frame in the file."""
        return _header_bytes(len(self.parts)) + sum(part.length for part in self.parts[:partition])


@dataclass(frozen=True)
class Frame:
    """Some neighbouring records of one partition: their first offset, their number, and their place in the file."""

    base: int
    count: int
    position: int
    length: int
    checksum: int

    @property
    def size(self) -> int:
        """The bytes of the frame with its head."""
        return _FRAME.size + _UINT32.size + self.length


@dataclass(frozen=True)
class Encoded:
    """The frames of one partition's new records."""

    count: int
    data: bytes


def encode(records: Sequence[Record]) -> Encoded:
    """The frames of `records`, to be given to `following` and written after its header."""
    frames: list[bytes] = []
    held: list[bytes] = []
    size = 0
    for record in records:
        data = record_bytes(record)
        if held and (size + len(data) > _FRAME_BYTES or len(held) == CHUNK):
            frames.append(_frame(held))
            held, size = [], 0
        held.append(data)
        size += len(data)
    frames.append(_frame(held))
    return Encoded(len(records), b"".join(frames))


def following(before: SegmentHeader, added: Mapping[int, Encoded]) -> SegmentHeader:
    """The header of the segment that adds these records, {partition: frames}, to a topic that stands at `before`."""
    parts = list(before.parts)
    for partition, part in enumerate(before.parts):
        more = added.get(partition)
        count, length = (more.count, len(more.data)) if more is not None else (0, 0)
        earlier = before.number if part.count else part.earlier
        parts[partition] = SegmentPartition(part.end + count, count, part.total + length, length, earlier)
    return SegmentHeader(before.number + 1, before.topic_id, tuple(parts))


def header_bytes(header: SegmentHeader) -> bytes:
    """The header as it stands in the file."""
    fixed = _FIXED.pack(_MAGIC, len(header.parts), header.number, _id_bytes(header.topic_id))
    entries = [_ENTRY.pack(part.end, part.count, part.total, part.length, part.earlier) for part in header.parts]
    data = b"".join([fixed, *entries])
    return data + _UINT32.pack(zlib.crc32(data))


def read_header(path: LakePath, number: int, topic_id: str, partitions: int) -> SegmentHeader:
    """The header of a segment.

    Raises:
        FileNotFoundError: there is no such segment.
        CorruptState: it is broken, or that of another segment or topic.
    """
    size = _header_bytes(partitions)
    with open_file(path) as file:
        data = file.read(size)
    if len(data) != size or zlib.crc32(data[: -_UINT32.size]) != _UINT32.unpack_from(data, size - _UINT32.size)[0]:
        raise damaged(path)
    if _FIXED.unpack_from(data) != (_MAGIC, partitions, number, _id_bytes(topic_id)):
        raise damaged(path)
    entries = _ENTRY.iter_unpack(data[_FIXED.size : -_UINT32.size])
    return SegmentHeader(number, topic_id, tuple(SegmentPartition(*entry) for entry in entries))


def frames(file: BinaryIO, path: LakePath, header: SegmentHeader, partition: int) -> Iterator[Frame]:
    """The frames of a partition, by their heads alone.

    Raises:
        CorruptState: a head is broken, or they are not what the header says.
    """
    part = header.parts[partition]
    base, position = part.base, header.begin_of(partition)
    after = position + part.length
    size = _FRAME.size + _UINT32.size
    while position < after:
        file.seek(position)
        data = file.read(size)
        if len(data) != size or zlib.crc32(data[: _FRAME.size]) != _UINT32.unpack_from(data, _FRAME.size)[0]:
            raise damaged(path)
        count, length, checksum = _FRAME.unpack_from(data)
        yield Frame(base, count, position + size, length, checksum)
        base, position = base + count, position + size + length
    if base != part.end or position != after:
        raise damaged(path)


def frame_bytes(file: BinaryIO, path: LakePath, frame: Frame) -> bytes:
    """The bytes of the frame's records. Raises CorruptState."""
    file.seek(frame.position)
    data = file.read(frame.length)
    if len(data) != frame.length or zlib.crc32(data) != frame.checksum:
        raise damaged(path)
    return data


def _frame(encoded: Sequence[bytes]) -> bytes:
    body = b"".join(encoded)
    head = _FRAME.pack(len(encoded), len(body), zlib.crc32(body))
    return head + _UINT32.pack(zlib.crc32(head)) + body


def _header_bytes(partitions: int) -> int:
    return _FIXED.size + partitions * _ENTRY.size + _UINT32.size


def _id_bytes(topic_id: str) -> bytes:
    return bytes.fromhex(topic_id).ljust(16, b"\0")
