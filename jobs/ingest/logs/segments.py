"""The segments of one local topic: the newest, the first offsets kept, and those that hold a range of a partition.

    <topic>/<number>.log      segments in the order in which they were appended, numbered from 0 without a gap

A partition's segments are a chain: each says which earlier one holds the records before its own. So a reader finds the
end of its range by halving, and opens no segment of other partitions' records only on its way to the range's start.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs import segment
from strandline.jobs.ingest.logs.damage import missing
from strandline.jobs.ingest.logs.segment import NONE, Header, Part
from strandline.state_store.paths import file_names, open_file

if TYPE_CHECKING:
    from strandline.jobs.ingest.logs.topic_file import TopicFile
    from strandline.state_store.paths import LakePath

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

    def header(self, number: int) -> Header:
        """The header of a segment. Raises FileNotFoundError, CorruptState."""
        return segment.read_header(self.path(number), number, self._topic.id, self._topic.partitions)

    def newest(self, known: Header | None = None) -> Header:
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

    def chain(self, partition: int, start: int, end: int, newest: Header) -> list[Header]:
        """The segments that hold the partition's records with start <= offset < end, in order.

        Raises:
            CorruptState: one of them is broken or missing.
        """
        number, expected = self._reaching(partition, end, newest), None
        if number > newest.number:
            if end > newest.parts[partition].end:
                raise missing(self._folder, partition, end - 1)
            return []
        found: list[Header] = []
        while number != NONE:
            header = self._linked(number, partition, expected)
            part = header.parts[partition]
            if part.count:
                found.append(header)
            if part.base <= start:
                break
            number, expected = part.earlier, part.base
        return found[::-1]

    def size(self, partition: int, start: int, end: int, newest: Header) -> int:
        """The bytes of the partition's records with start <= offset < end: exact for whole frames, else by their share.

        Raises:
            CorruptState: a segment is broken.
        """
        return self._bytes_before(partition, end, newest) - self._bytes_before(partition, start, newest)

    def _bytes_before(self, partition: int, offset: int, newest: Header) -> int:
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

    def _reaching(self, partition: int, offset: int, newest: Header) -> int:
        """The number of the first segment that leaves the partition at `offset` or behind it."""

        def end(number: int) -> int:
            try:
                return self.header(number).parts[partition].end
            except FileNotFoundError:
                # The first ones were removed. If one in the middle is missing, a later one is found, whose chain leads
                # to it.
                return NONE

        return bisect_left(range(newest.number + 1), offset, key=end)

    def _linked(self, number: int, partition: int, expected: int | None) -> Header:
        """The header of a segment that ends where the later one begins."""
        try:
            header = self.header(number)
        except FileNotFoundError:
            raise missing(self._folder, partition, (expected or 1) - 1) from None
        if expected is not None and header.parts[partition].end != expected:
            raise missing(self._folder, partition, expected - 1)
        return header

    def _before_the_first(self) -> Header:
        return Header(NONE, self._topic.id, (Part(end=0),) * self._topic.partitions)
