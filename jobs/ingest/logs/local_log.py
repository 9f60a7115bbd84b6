"""The embedded log: a directory per topic, append-only files, no broker. Safe for many producers at once.

    <lake>/topics/<topic>/topic.json       its name, number of partitions and id (jobs.ingest.logs.segments)
    <lake>/topics/<topic>/<number>.log     one immutable segment (strandline.jobs.ingest.logs.segments)

A call of `produce` makes one segment, for all the partitions that it has records for. The producer writes and syncs a
temporary file, then links it to the next number. If the name is taken, linking fails, and it tries again after that
segment. So offsets are dense, the records of a call appear together or not at all in every partition, and no process
holds a lock: one that is killed leaves at most a hidden temporary file, which nobody reads.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs.log import CHUNK, CHUNK_BYTES, Records, TopicIdentity, partition_for
from strandline.jobs.ingest.logs.segments import (
    TOPIC_FILE,
    Segments,
    decode_into,
    encode,
    following,
    frame_bytes,
    frames,
    header_bytes,
    missing,
    read_topic_file,
    write_topic_file,
)
from strandline.jobs.model.errors import OffsetsVanished, TopicMissing
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import create, make_folder, sync_folder
from strandline.state_store.paths import Location, folders_in, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.ingest.logs.log import Record
    from strandline.jobs.ingest.logs.segments import Encoded, SegmentHeader, TopicFile
    from strandline.state_store.layout import LakeLayout

# How often a wait looks at the ends. A look at a folder takes 0.1 ms; one at an object store is a request that costs.
_LOOK_SECONDS = 0.05
_LOOK_FAR_SECONDS = 1.0

_Piece = tuple[int, Records]
"""Some neighbouring records, and the bytes they take."""


class LocalLog:
    """The log kept in a lake. An instance caches the newest segment that it knows of each topic, nothing else."""

    def __init__(self, lake: LakeLayout) -> None:
        self._lake = lake
        self._newest: dict[tuple[str, str], SegmentHeader] = {}
        """By the topic's name and id: a topic that was made again begins anew."""

    def ensure_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create the topic unless it is there. `replicas` is ignored: the files are the only copy."""
        if self.exists(topic):
            return
        folder = self._lake.topic(topic)
        make_folder(folder)
        write_topic_file(folder, topic, partitions)

    def exists(self, topic: str) -> bool:
        return (self._lake.topic(topic) / TOPIC_FILE).exists()

    def topics(self) -> list[str]:
        found = (folder / TOPIC_FILE for folder in folders_in(self._lake.topic("x").parent))
        return sorted(read_topic_file(path).topic for path in found if path.exists())

    def identity(self, topic: str) -> TopicIdentity:
        """The id in the topic's file. There are no leaders: the files are the only copy."""
        return TopicIdentity(self._described(topic).id)

    def continues(self, topic: str, earlier: str) -> bool:
        """Never: a topic has one id for its life."""
        return False

    def leader_epochs(self, topic: str, offsets: Mapping[int, int]) -> dict[int, int]:
        """None are known: there are no leaders."""
        return {}

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return self._segments(self._described(topic)).begins()

    def end_offsets(self, topic: str) -> dict[int, int]:
        """{partition: the end}, all after the same segment: a call of `produce` is in all of them or in none."""
        return {number: part.end for number, part in enumerate(self._head(self._described(topic)).parts)}

    def settled_ends(self, topic: str) -> dict[int, int]:
        """The ends: what is committed stays."""
        return self.end_offsets(topic)

    def wait(self, offsets: Mapping[str, Mapping[int, int]], seconds: float) -> None:
        """Look at the topics' ends again and again. Raises TopicMissing."""
        pause = _LOOK_FAR_SECONDS if isinstance(self._lake.root, Location) else _LOOK_SECONDS
        deadline = time.monotonic() + seconds
        while not self._beyond(offsets) and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, pause))

    def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Append; all the records become visible together, and those of one partition get neighbouring offsets."""
        places = self.produce_after(topic, records, None)
        assert places is not None
        return places

    def produce_after(
        self, topic: str, records: Sequence[Record], ends: Mapping[int, int] | None
    ) -> list[tuple[int, int]] | None:
        """As `produce`, unless the topic has other ends than these by now: then None, and nothing is written."""
        described = self._described(topic)
        total = described.partitions
        chosen = [
            record.partition if record.partition is not None else partition_for(record.key, total, position)
            for position, record in enumerate(records)
        ]
        mine: dict[int, list[Record]] = {}
        for record, partition in zip(records, chosen, strict=True):
            if not 0 <= partition < total:
                raise TopicMissing(f"topic '{topic}' has no partition {partition}", hint="partitions count from 0")
            mine.setdefault(partition, []).append(record)
        if not mine:
            return []
        added = {partition: encode(mine[partition]) for partition in sorted(mine)}
        header = self._append(described, added, ends)
        if header is None:
            return None
        following = [part.base for part in header.parts]
        places = []
        for partition in chosen:
            places.append((partition, following[partition]))
            following[partition] += 1
        return places

    def close(self) -> None:
        """Nothing is kept."""

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The records of a range; small segments are joined, and large ones are read in parts.

        Raises:
            TopicMissing: there is no such topic.
            OffsetsVanished: the range begins before the first record that is kept.
            CorruptState: a segment is broken or missing.
        """
        if start >= end:
            return
        described = self._described(topic)
        segments = self._segments(described)
        first = segments.begins()[partition]
        if start < first:
            raise OffsetsVanished(f"topic '{topic}', partition {partition}: offsets {start} to {first - 1} are gone")
        chain = segments.chain(partition, start, end, self._head(described))
        yield from _runs(_pieces(segments, chain, range(start, end), partition))

    def size(self, topic: str, partition: int, start: int, end: int) -> int:
        """The bytes that a range takes in the files, a range that ends inside a frame by its share of the frame."""
        described = self._described(topic)
        return self._segments(described).size(partition, start, end, self._head(described))

    def span(self, topic: str, partition: int, start: int, end: int) -> int:
        """How many offsets there are; at most as many records."""
        return max(end - start, 0)

    def whole(self, topic: str, partition: int, start: int, end: int) -> int:
        """The end itself: a micro-batch may end after any record."""
        return end

    def _beyond(self, offsets: Mapping[str, Mapping[int, int]]) -> bool:
        for topic, wanted in offsets.items():
            ends = self.end_offsets(topic)
            if any(ends.get(partition, 0) > offset for partition, offset in wanted.items()):
                return True
        return False

    def _described(self, topic: str) -> TopicFile:
        folder = self._lake.topic(topic)
        try:
            return read_topic_file(folder / TOPIC_FILE)
        except FileNotFoundError:
            raise TopicMissing(
                f"topic '{topic}' is not there",
                where=str(folder),
                hint="CREATE STREAM … WITH (PARTITIONS = n) makes it",
            ) from None

    def _segments(self, described: TopicFile) -> Segments:
        return Segments(self._lake.topic(described.topic), described)

    def _head(self, described: TopicFile) -> SegmentHeader:
        """The newest segment's header. Starts from the last one known: the folder is listed only once."""
        name = (described.topic, described.id)
        known = self._newest.get(name)
        found = self._segments(described).newest(known)
        if found != known:
            # Its writer may have been killed before the flush; offsets that commits record must not go with the power.
            sync_folder(self._lake.topic(described.topic))
            self._newest[name] = found
        return found

    def _append(
        self, described: TopicFile, added: Mapping[int, Encoded], ends: Mapping[int, int] | None
    ) -> SegmentHeader | None:
        segments = self._segments(described)
        body = b"".join(part.data for part in added.values())
        while True:
            head = self._head(described)
            if ends is not None and ends != {number: part.end for number, part in enumerate(head.parts)}:
                return None
            header = following(head, added)
            try:
                made = create(segments.path(header.number), header_bytes(header) + body)
            except FileNotFoundError:
                raise TopicMissing(f"topic '{described.topic}' was removed while records were written to it") from None
            if made:
                failpoint("after-segment")
                self._newest[described.topic, described.id] = header
                return header


def _pieces(segments: Segments, chain: Sequence[SegmentHeader], offsets: range, partition: int) -> Iterator[_Piece]:
    """The range as it lies in the files: pieces of at most `CHUNK` records."""
    start, end = offsets.start, offsets.stop
    begin = chain[0].parts[partition].base if chain else end
    if start < begin:
        raise missing(segments.path(0).parent, partition, start)
    for header in chain:
        path = segments.path(header.number)
        with open_file(path) as file:
            for frame in frames(file, path, header, partition):
                if frame.base + frame.count <= start:
                    continue
                if frame.base >= end:
                    break
                piece = Records(partition)
                decode_into(piece, frame_bytes(file, path, frame), range(frame.base, frame.base + frame.count))
                if start > frame.base or end < frame.base + frame.count:
                    piece = piece.cut(max(0, start - frame.base), min(end - frame.base, frame.count))
                yield frame.length, piece


def _runs(pieces: Iterator[_Piece]) -> Iterator[Records]:
    """The pieces joined as long as `CHUNK` and `CHUNK_BYTES` allow."""
    run: Records | None = None
    size = 0
    for length, piece in pieces:
        if run is not None and (len(run) + len(piece) > CHUNK or size + length > CHUNK_BYTES):
            yield run
            run = None
        if run is None:
            run, size = piece, length
        else:
            run.extend(piece)
            size += length
    if run is not None:
        yield run
