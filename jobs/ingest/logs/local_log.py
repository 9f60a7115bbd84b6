"""The embedded log: a directory per topic, append-only files, no broker. Safe for many producers at once.

    <lake>/topics/<topic>/topic.json                     its name, number of partitions and id
    <lake>/topics/<topic>/<partition>/<base offset>.log  one immutable segment (jobs.ingest.logs.segment)

A producer writes and syncs a temporary file, then links it to the name of the next offset. If the name is taken,
linking fails, and it tries again after that segment. So offsets are dense, a segment appears whole or not at all, and
no process holds a lock.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from contextlib import suppress
from typing import TYPE_CHECKING

from jobs.ingest.logs import segment, topic_file
from jobs.ingest.logs.log import CHUNK, Records, TopicIdentity
from jobs.ingest.logs.partitioner import partition_for
from jobs.model.errors import OffsetsVanished, TopicMissing
from state_store.errors import CorruptState
from state_store.files import create

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from jobs.ingest.logs.log import Record
    from jobs.ingest.logs.topic_file import TopicFile
    from state_store.layout import Lake


class LocalLog:
    """The log kept in a lake. An instance caches the last known end of each partition, nothing else."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._ends: dict[Path, int] = {}

    def ensure_topic(self, topic: str, partitions: int = 1, replicas: int = 1) -> None:
        """Create the topic unless it is there. `replicas` is ignored: the files are the only copy."""
        folder = self._lake.topic(topic)
        if self.exists(topic):
            return
        for partition in range(partitions):
            (folder / str(partition)).mkdir(parents=True, exist_ok=True)
        topic_file.write(folder, topic, partitions)

    def exists(self, topic: str) -> bool:
        return (self._lake.topic(topic) / topic_file.NAME).exists()

    def topics(self) -> list[str]:
        found = self._lake.topic("x").parent.glob(f"*/{topic_file.NAME}")
        return sorted(topic_file.read(path).topic for path in found)

    def identity(self, topic: str) -> TopicIdentity:
        """The id in the topic's file. There are no leaders: the files are the only copy."""
        return TopicIdentity(self._described(topic).id)

    def begin_offsets(self, topic: str) -> dict[int, int]:
        return {number: min(_bases(folder), default=0) for number, folder in self._partitions(topic).items()}

    def end_offsets(self, topic: str) -> dict[int, int]:
        return {number: self._end(folder) for number, folder in self._partitions(topic).items()}

    def produce(self, topic: str, records: Sequence[Record]) -> list[tuple[int, int]]:
        """Append; the records of one partition become visible together and get neighbouring offsets."""
        folders = self._partitions(topic)
        chosen = [
            record.partition if record.partition is not None else partition_for(record.key, len(folders), position)
            for position, record in enumerate(records)
        ]
        bases: dict[int, int] = {}
        for partition in sorted(set(chosen)):
            if partition not in folders:
                raise TopicMissing(f"topic '{topic}' has no partition {partition}", hint="partitions count from 0")
            mine = [record for record, where in zip(records, chosen, strict=True) if where == partition]
            bases[partition] = self._append(folders[partition], mine)
        offsets = []
        for partition in chosen:
            offsets.append((partition, bases[partition]))
            bases[partition] += 1
        return offsets

    def read(self, topic: str, partition: int, start: int, end: int) -> Iterator[Records]:
        """The records of a range; small segments are joined and large ones cut to runs of at most `CHUNK`."""
        if start >= end:
            return
        folder = self._partitions(topic)[partition]
        bases = sorted(_bases(folder))
        if not bases or start < bases[0]:
            first = bases[0] if bases else end
            raise OffsetsVanished(f"topic '{topic}', partition {partition}: offsets {start} to {first - 1} are gone")
        run = Records(partition)
        position = start
        for base in bases[bisect_right(bases, start) - 1 :]:
            if base >= end:
                break
            held = segment.decode(folder / _name(base), partition, base)
            if base > position or base + len(held) <= position:
                raise _gap(folder, position)
            _extend(run, held, position - base, min(end - base, len(held)))
            position = run.offsets[-1] + 1
            while len(run) >= CHUNK:
                yield _shift(run)
        if position < end:
            raise _gap(folder, position)
        if len(run):
            yield run

    def _partitions(self, topic: str) -> dict[int, Path]:
        return {number: self._lake.topic(topic) / str(number) for number in range(self._described(topic).partitions)}

    def _described(self, topic: str) -> TopicFile:
        folder = self._lake.topic(topic)
        try:
            return topic_file.read(folder / topic_file.NAME)
        except FileNotFoundError:
            raise TopicMissing(
                f"topic '{topic}' is not there",
                where=str(folder),
                hint="CREATE STREAM … WITH (PARTITIONS = n) makes it",
            ) from None

    def _append(self, folder: Path, records: Sequence[Record]) -> int:
        data = segment.encode(records)
        while True:
            base = self._end(folder)
            if create(folder / _name(base), data):
                self._ends[folder] = base + len(records)
                return base

    def _end(self, folder: Path) -> int:
        """The offset after the last segment. Starts from the last known end: the folder is listed only once."""
        end = self._ends.get(folder)
        if end is None:
            end = max(_bases(folder), default=0)
        with suppress(FileNotFoundError):
            while True:
                end += segment.count(folder / _name(end))
        self._ends[folder] = end
        return end


def _name(base: int) -> str:
    return f"{base:020d}.log"


def _bases(folder: Path) -> list[int]:
    with os.scandir(folder) as entries:
        return [int(entry.name[:20]) for entry in entries if entry.name.endswith(".log")]


def _extend(run: Records, held: Records, first: int, last: int) -> None:
    run.offsets += held.offsets[first:last]
    run.timestamps += held.timestamps[first:last]
    run.keys += held.keys[first:last]
    run.values += held.values[first:last]
    run.headers += held.headers[first:last]


def _shift(run: Records) -> Records:
    """Take the first `CHUNK` records off the run."""
    head = Records(run.partition)
    _extend(head, run, 0, CHUNK)
    for column in (run.offsets, run.timestamps, run.keys, run.values, run.headers):
        del column[:CHUNK]
    return head


def _gap(folder: Path, offset: int) -> CorruptState:
    return CorruptState(
        f"the local log has no record at offset {offset}",
        where=str(folder),
        hint="a segment file was removed: restore it from a backup of the lake",
    )
