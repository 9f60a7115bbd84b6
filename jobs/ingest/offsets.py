"""Offsets as plain values: the start of a run, the end of each micro-batch, and what each range of them held.

Offsets = {topic: {partition as text: next offset}}      as they stand in commits and in Spark's checkpoint

The range row: the last row of each range of records, in which its reader tells the driver what the range held.

    reader   records ──> Tally ──> range row ──────> Range   driver

It lets the driver commit without counting rows, past offsets that hold no record (transaction markers), and without
conditions on rows that meet them all.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import OffsetsVanished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import numpy as np
    from pyspark.sql import DataFrame

    from strandline.jobs.ingest.logs.log import Log
    from strandline.state_store.layout import LakeLayout


Offsets = dict[str, dict[str, int]]


def committed_offsets(source: Source, lake: LakeLayout) -> dict[str, int]:
    """{partition: next offset} that the source's event log holds; empty before its first commit. Raises TableLost."""
    from strandline.state_store.delta.heads import head

    found = head(lake, tables.event_log(source))
    return {} if found is None else dict(found.record.offsets.get(source.topic, {}))


def start_offsets(sources: Sequence[Source], committed: Mapping[str, Mapping[str, int]], log: Log) -> Offsets:
    """The start of a pipeline's stream: per partition, the smallest committed offset of the sources that read it.

    Args:
        committed: {source: {partition: next offset}}; other partitions start at the log's first offset.

    Raises:
        TopicMissing: a topic is not there.
        OffsetsVanished: records after a committed offset are not in the topic any more, or a whole partition is not.
    """
    start: Offsets = {}
    for topic in topics_of(sources):
        held = [committed.get(source.name, {}) for source in sources if source.topic == topic]
        begin, end = log.begin_offsets(topic), log.end_offsets(topic)
        for offsets in held:
            check_partitions(topic, offsets, begin)
        start[topic] = {}
        for partition, first in begin.items():
            name = str(partition)
            for offsets in held:
                if name in offsets:
                    check_kept(topic, partition, offsets[name], first, end[partition])
            start[topic][name] = min(offsets.get(name, first) for offsets in held)
    return start


def check_partitions(topic: str, wanted: Mapping[str, int], begin: Mapping[int, int]) -> None:
    """Raise OffsetsVanished unless the topic has every partition of `wanted`, {partition: next offset}."""
    for name, offset in wanted.items():
        if int(name) not in begin:
            raise OffsetsVanished(
                f"topic '{topic}' has no partition {name} any more, and {offset} records were read from it: "
                "it was deleted and created again with fewer partitions",
                hint="drop the source and create it again to read the new topic",
            )


def check_kept(topic: str, partition: int, wanted: int, begin: int, end: int) -> None:
    """Raise OffsetsVanished unless the topic still has every record from `wanted` on."""
    if wanted < begin:
        raise OffsetsVanished(
            f"topic '{topic}', partition {partition}: records {wanted} to {begin - 1} were removed unread",
            hint="raise the topic's retention; to go on without them, drop the source and create it again",
        )
    if wanted > end:
        raise OffsetsVanished(
            f"topic '{topic}', partition {partition} ends at {end}, but {wanted} records were read from it: "
            "it was deleted and created again",
            hint="drop the source and create it again to read the new topic",
        )


def cut(start: Offsets, end: Offsets, rows: int | None, log: Log) -> Offsets:
    """The end of a micro-batch: `end`, or less so that it spans about `rows` records, shared among the partitions.

    While there is something to read it advances: a partition with a backlog gets at least one row while any is left,
    and as many more as there are up to the next place where it may end.
    """
    sizes = {
        (topic, name): log.span(topic, int(name), start.get(topic, {}).get(name, 0), last)
        for topic, partitions in end.items()
        for name, last in partitions.items()
    }
    total = sum(sizes.values())
    if rows is None or total <= rows:
        return {topic: dict(partitions) for topic, partitions in end.items()}
    reached: Offsets = {}
    left = rows
    for (topic, name), size in sorted(sizes.items(), key=lambda item: item[1]):
        share = min(size, left, max(1, rows * size // total)) if size else 0
        left -= share
        first, last = start.get(topic, {}).get(name, 0), end[topic][name]
        until = first + share
        if size != last - first:  # its offsets have gaps, which it knows
            until = first + _most(first, last, share, partial(log.span, topic, int(name), first)) if share else first
        reached.setdefault(topic, {})[name] = log.whole(topic, int(name), first, until)
    return reached


def _most(first: int, last: int, share: int, measure: Callable[[int], int]) -> int:
    """The most offsets from `first` on, up to `last`, that measure no more than a share; one at least."""
    return max(1, bisect_right(range(first + 1, last + 1), share, key=measure))


def cut_bytes(start: Offsets, end: Offsets, most: int, log: Log) -> Offsets:
    """`end`, or less so that the records from `start` on take about `most` bytes, shared among the partitions.

    It is as exact as `log.size`. A partition with a backlog gets at least one record, however large.
    """
    spans = {
        (topic, name): (start.get(topic, {}).get(name, 0), last)
        for topic, partitions in end.items()
        for name, last in partitions.items()
    }
    # The longest first: a log that estimates looks at that one.
    longest = sorted(spans.items(), key=lambda item: item[1][0] - item[1][1])
    sizes = {key: log.size(key[0], int(key[1]), first, last) for key, (first, last) in longest if first < last}
    total = sum(sizes.values())
    reached: Offsets = {topic: dict(partitions) for topic, partitions in end.items()}
    if total <= most:
        return reached
    for (topic, name), size in sizes.items():
        first, last = spans[topic, name]
        share = most * size // total
        until = first + _most(first, last, share, partial(log.size, topic, int(name), first))
        reached[topic][name] = log.whole(topic, int(name), first, until)
    return reached


def not_before(offsets: Offsets, floor: Offsets) -> Offsets:
    """Offsets that never step back: a broker that lags (a new leader) must not make Spark read a range twice."""
    merged: Offsets = {topic: dict(partitions) for topic, partitions in offsets.items()}
    for topic, partitions in floor.items():
        for name, first in partitions.items():
            known = merged.setdefault(topic, {})
            known[name] = max(first, known.get(name, first))
    return merged


def topics_of(sources: Iterable[Source]) -> list[str]:
    """The topics to read, each once, in the order of the sources."""
    return list(dict.fromkeys(source.topic for source in sources))


def as_text(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets with partition numbers as text, as JSON needs member names."""
    return {str(partition): offset for partition, offset in offsets.items()}


def as_numbers(offsets: Offsets) -> dict[str, dict[int, int]]:
    """Offsets with partition numbers as the log has them."""
    return {topic: {int(name): offset for name, offset in each.items()} for topic, each in offsets.items()}


NEVER: Final = -(1 << 63)
"""The running time before the first good record, in microseconds."""

RANGE_TYPE: Final = (
    "STRUCT<next: BIGINT, first: BIGINT, good: BIGINT, broken: BIGINT, "
    "first_time: TIMESTAMP, running_time: TIMESTAMP, leader_epoch: INT>"
)


@dataclass
class RangeTotals:
    """Totals of a range so far.

    Attributes:
        first: the offset of the first record.
        good, broken: the offsets of the last good record and of the last broken one.
        first_time, running_time: the running time of the first good record and of the last, in microseconds.
        leader_epoch: the term of the leader that took in the last record.
    """

    first: int | None = None
    good: int | None = None
    broken: int | None = None
    first_time: int = NEVER
    running_time: int = NEVER
    leader_epoch: int | None = None

    def add(self, offsets: np.ndarray[Any, Any], running: np.ndarray[Any, Any], broken: np.ndarray[Any, Any]) -> None:
        """Count some more records, in offset order; arrays of one length."""
        if not len(offsets):
            return
        self.first = int(offsets[0]) if self.first is None else self.first
        self.running_time = int(running[-1])
        if not broken.all():
            self.first_time = int(running[~broken][0]) if self.good is None else self.first_time
            self.good = int(offsets[~broken][-1])
        if broken.any():
            self.broken = int(offsets[broken][-1])

    def range_row(self, following: int) -> dict[str, int | None]:
        """The value of `_range` when the next range begins at `following`."""
        times = {"first_time": self.first_time, "running_time": self.running_time}
        return {
            "next": following,
            "first": self.first,
            "good": self.good,
            "broken": self.broken,
            **{name: None if time == NEVER else time for name, time in times.items()},
            "leader_epoch": self.leader_epoch,
        }


@dataclass(frozen=True)
class Range:
    """A range row as the driver has it; attributes as of `RangeTotals`. Times in microseconds; None: there is none."""

    partition: str
    next: int
    good: int | None
    broken: int | None
    running_time: int | None
    leader_epoch: int | None = None
    first: int | None = None
    first_time: int | None = None

    def begins_before(self, offset: int) -> bool:
        """True if it holds records below the offset."""
        return self.first is not None and self.first < offset

    def is_late(self, stream_time: int) -> bool:
        """True if a good record's running time may be below the stream time (microseconds)."""
        return self.good is not None and (self.first_time is None or self.first_time < stream_time)


def ranges_of(micro_batch: DataFrame) -> dict[str, list[Range]]:
    """{source: its ranges}. The Spark job that reads and decodes the topics; later jobs find the rows in memory."""
    from pyspark.sql import functions as f

    rows = micro_batch.where("_range IS NOT NULL").select(
        "_source",
        "_partition",
        "_range.next",
        "_range.good",
        "_range.broken",
        f.unix_micros("_range.running_time").alias("running_time"),
        "_range.leader_epoch",
        "_range.first",
        f.unix_micros("_range.first_time").alias("first_time"),
    )
    found: dict[str, list[Range]] = {}
    for name, partition, *rest in rows.collect():
        found.setdefault(name, []).append(Range(str(partition), *rest))
    return found
