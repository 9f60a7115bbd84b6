"""The segments of one local topic: the newest, the first offsets kept, and those that hold a range of a partition.

    <topic>/<number>.log      segments in the order in which they were appended, numbered from 0 without a gap

A partition's segments are a chain: each says which earlier one holds the records before its own. So a reader finds the
end of its range by halving, and opens no segment of other partitions' records only on its way to the range's start.

The file format of the local log's segments: the records that one call appended, to one partition or to several.

    segment  header · the frames of partition 0 · of partition 1 · …
    header   magic 4s · partitions u32 · the segment's number u64 · the topic's id 16s · an entry each · crc32 u32
    entry    end u64 · count u64 · total u64 · length u64 · earlier i64                         (see `SegmentPartition`)
    frame    count u32 · length u32 · crc32 of the records u32 · crc32 of these 12 bytes u32 · records

All numbers are little-endian, records as in `_record_bytes`. Every byte is under a checksum that is verified when the
byte is used, so a reader of one partition reads the header and its own frames only. The header says where the
partitions stand after the segment, so the newest one alone says where the topic stands.
"""

from __future__ import annotations

import json
import struct
import zlib
from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, BinaryIO
from uuid import uuid4

from strandline.jobs.ingest.logs.log import CHUNK
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create
from strandline.state_store.paths import file_names, open_file
from strandline.state_store.stored_state import of_members

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.ingest.logs.log import Header, Record, Records
    from strandline.state_store.paths import LakePath


# The file that says what a local topic is: its name, its number of partitions and its id.
#
#     topic.json   {"format": 2, "topic": …, "partitions": n, "id": 32 hex digits, "crc": crc32 of the other members}
#
# A topic gets its id when it is made, so one that was removed and made again is told from the first.

TOPIC_FILE = "topic.json"
_FORMAT = 2


@dataclass(frozen=True)
class TopicFile:
    """One local topic."""

    topic: str
    partitions: int
    id: str
    format: int = _FORMAT


def write_topic_file(folder: LakePath, topic: str, partitions: int) -> None:
    """Write the file of a new topic; of several processes that do, the first one's stays."""
    members = asdict(TopicFile(topic, partitions, uuid4().hex))
    create(folder / TOPIC_FILE, json.dumps({**members, "crc": of_members(members, ascii_only=True)}).encode())


def read_topic_file(path: LakePath) -> TopicFile:
    """The topic that the file describes.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptState: it is not as it was written, or of a format that this version does not read.
    """
    try:
        members = json.loads(path.read_bytes())
        version = members["format"]
        checksum = members.pop("crc")
        if version == _FORMAT and checksum == of_members(members, ascii_only=True):
            return TopicFile(**members)
    except (ValueError, KeyError, TypeError):
        pass
    raise CorruptState(
        "the file that describes a local topic does not read back as it was written",
        where=str(path),
        hint="restore the file from a backup of the lake",
    )


_SUFFIX = ".log"
_DIGITS = 20


class Segments:
    """The files of a topic. An instance lasts for one call: it remembers what it has listed."""

    def __init__(self, folder: LakePath, topic: TopicFile) -> None:
        self._folder = folder
        self._topic = topic

    def path(self, number: int) -> LakePath:
        return self._folder / f"{number:0{_DIGITS}d}{_SUFFIX}"

    def numbers(self) -> list[int]:
        """The numbers of the segments that are kept, sorted."""
        names = [name for name in file_names(self._folder) if name.endswith(_SUFFIX)]
        return sorted(int(name[:_DIGITS]) for name in names if len(name) == _DIGITS + len(_SUFFIX))

    def header(self, number: int) -> SegmentHeader:
        """The header of a segment. Raises FileNotFoundError, CorruptState."""
        return _read_header(self.path(number), number, self._topic.id, self._topic.partitions)

    def newest(self, known: SegmentHeader | None = None) -> SegmentHeader:
        """The header of the newest segment; before the first one, a header with the number `_NONE`.

        Args:
            known: an earlier answer: the folder is not listed, only the segments after it are looked for.
        """
        if known is None:
            numbers = self.numbers()
            known = self.header(numbers[-1]) if numbers else self._before_the_first()
        while True:
            try:
                known = self.header(known.number + 1)
            except FileNotFoundError:
                return known

    def begins(self) -> dict[int, int]:
        """{partition: the first offset that is kept}."""
        numbers = self.numbers()
        bases = [part.base for part in self.header(numbers[0]).parts] if numbers else [0] * self._topic.partitions
        return dict(enumerate(bases))

    def chain(self, partition: int, start: int, end: int, newest: SegmentHeader) -> list[SegmentHeader]:
        """The segments that hold the partition's records with start <= offset < end, in order.

        Raises:
            CorruptState: one of them is broken or missing.
        """
        number, expected = self._reaching(partition, end, newest), None
        if number > newest.number:
            if end > newest.parts[partition].end:
                raise missing(self._folder, partition, end - 1)
            return []
        found: list[SegmentHeader] = []
        while number != _NONE:
            header = self._linked(number, partition, expected)
            part = header.parts[partition]
            if part.count:
                found.append(header)
            if part.base <= start:
                break
            number, expected = part.earlier, part.base
        return found[::-1]

    def size(self, partition: int, start: int, end: int, newest: SegmentHeader) -> int:
        """The bytes of the partition's records with start <= offset < end: exact for whole frames, else by their share.

        Raises:
            CorruptState: a segment is broken.
        """
        return self._bytes_before(partition, end, newest) - self._bytes_before(partition, start, newest)

    def _bytes_before(self, partition: int, offset: int, newest: SegmentHeader) -> int:
        number = self._reaching(partition, offset, newest)
        header = newest if number > newest.number else self.header(number)
        part = header.parts[partition]
        if offset >= part.end:
            return part.total
        total, path = part.total - part.length, self.path(number)
        with open_file(path) as file:
            for frame in frames(file, path, header, partition):
                if offset <= frame.base:
                    break
                total += frame.size * min(offset - frame.base, frame.count) // frame.count
        return total

    def _reaching(self, partition: int, offset: int, newest: SegmentHeader) -> int:
        """The number of the first segment that leaves the partition at `offset` or behind it."""

        def end(number: int) -> int:
            try:
                return self.header(number).parts[partition].end
            except FileNotFoundError:
                # The first ones were removed. If one in the middle is missing, a later one is found, whose chain leads
                # to it.
                return _NONE

        return bisect_left(range(newest.number + 1), offset, key=end)

    def _linked(self, number: int, partition: int, expected: int | None) -> SegmentHeader:
        """The header of a segment that ends where the later one begins."""
        try:
            header = self.header(number)
        except FileNotFoundError:
            raise missing(self._folder, partition, (expected or 1) - 1) from None
        if expected is not None and header.parts[partition].end != expected:
            raise missing(self._folder, partition, expected - 1)
        return header

    def _before_the_first(self) -> SegmentHeader:
        return SegmentHeader(_NONE, self._topic.id, (SegmentPartition(end=0),) * self._topic.partitions)


# The errors of files of the local log that are not as they were written.


def _damaged(path: LakePath) -> CorruptState:
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


def _record_bytes(record: Record) -> bytes:
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


_NONE = -1
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
        earlier: the number of the newest segment before this one that holds records of it; `_NONE`: there is none.
    """

    end: int = 0
    count: int = 0
    total: int = 0
    length: int = 0
    earlier: int = _NONE

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
        data = _record_bytes(record)
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


def _read_header(path: LakePath, number: int, topic_id: str, partitions: int) -> SegmentHeader:
    """The header of a segment.

    Raises:
        FileNotFoundError: there is no such segment.
        CorruptState: it is broken, or that of another segment or topic.
    """
    size = _header_bytes(partitions)
    with open_file(path) as file:
        data = file.read(size)
    if len(data) != size or zlib.crc32(data[: -_UINT32.size]) != _UINT32.unpack_from(data, size - _UINT32.size)[0]:
        raise _damaged(path)
    if _FIXED.unpack_from(data) != (_MAGIC, partitions, number, _id_bytes(topic_id)):
        raise _damaged(path)
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
            raise _damaged(path)
        count, length, checksum = _FRAME.unpack_from(data)
        yield Frame(base, count, position + size, length, checksum)
        base, position = base + count, position + size + length
    if base != part.end or position != after:
        raise _damaged(path)


def frame_bytes(file: BinaryIO, path: LakePath, frame: Frame) -> bytes:
    """The bytes of the frame's records. Raises CorruptState."""
    file.seek(frame.position)
    data = file.read(frame.length)
    if len(data) != frame.length or zlib.crc32(data) != frame.checksum:
        raise _damaged(path)
    return data


def _frame(encoded: Sequence[bytes]) -> bytes:
    body = b"".join(encoded)
    head = _FRAME.pack(len(encoded), len(body), zlib.crc32(body))
    return head + _UINT32.pack(zlib.crc32(head)) + body


def _header_bytes(partitions: int) -> int:
    return _FIXED.size + partitions * _ENTRY.size + _UINT32.size


def _id_bytes(topic_id: str) -> bytes:
    return bytes.fromhex(topic_id).ljust(16, b"\0")
