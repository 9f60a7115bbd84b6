"""The segments of one local topic: the newest, the first offsets kept, and those that hold a range of a partition.

    <topic>/<number>.log      segments in the order in which they were appended, numbered from 0 without a gap

A partition's segments are a chain: each says which earlier one holds the records before its own. So a reader finds the
end of its range by halving, and opens no segment of other partitions' records only on its way to the range's start.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.jobs.ingest.logs import segment
from strandline.jobs.ingest.logs.segment import NONE, SegmentHeader, SegmentPartition, missing
from strandline.state_store.checksum import of_members
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create
from strandline.state_store.paths import file_names, open_file

if TYPE_CHECKING:
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
        return segment.read_header(self.path(number), number, self._topic.id, self._topic.partitions)

    def newest(self, known: SegmentHeader | None = None) -> SegmentHeader:
        """The header of the newest segment; before the first one, a header with the number `NONE`.

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
        while number != NONE:
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
            for frame in segment.frames(file, path, header, partition):
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
                return NONE

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
        return SegmentHeader(NONE, self._topic.id, (SegmentPartition(end=0),) * self._topic.partitions)
