"""Offsets as plain values: the start of a run, and the end of each micro-batch.

Offsets = {topic: {partition as text: next offset}}      as they stand in commits and in Spark's checkpoint
"""

from __future__ import annotations

from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import OffsetsVanished

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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
