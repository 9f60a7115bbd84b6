"""The lag of sources: the events of their topics that their event logs do not hold yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.identity import current_ids
from strandline.jobs.ingest.offsets import committed_offsets, start_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Source
    from strandline.state_store.layout import LakeLayout


def lag(source: Source, lake: LakeLayout, log: Log) -> int:
    """The number of records from the event log's last commit to the topic's end; 0 while there is no topic.

    An upper bound of the events with Kafka's transactions, whose marks take offsets too.

    Raises:
        SourceUnavailable: the brokers do not answer.
    """
    if not log.exists(source.topic):
        return 0
    ends, begins = log.end_offsets(source.topic), log.begin_offsets(source.topic)
    reached = committed_offsets(source, lake)
    return sum(
        log.span(source.topic, each, reached.get(str(each), begins.get(each, 0)), end) for each, end in ends.items()
    )


MOST_PARTITIONS: Final = 16
"""Of those that are furthest behind: to read one record of Kafka takes a connection of its own."""


def waiting_since(source: Source, lake: LakeLayout, log: Log, most: int | None = None) -> int | None:
    """The time of the oldest record that is not in the event log, in milliseconds since the epoch; None when none waits
    that has a time.

    Args:
        most: partitions to look at, those with the most records that wait; None: all.

    Raises:
        SourceError: the broker does not answer, or has not what the lake has read.
    """
    if not log.exists(source.topic):
        return None
    committed = {source.name: committed_offsets(source, lake)}
    ends = log.end_offsets(source.topic)
    starts = {int(partition): each for partition, each in start_offsets([source], committed, log)[source.topic].items()}
    waiting = sorted((each for each in starts if starts[each] < ends[each]), key=lambda each: starts[each] - ends[each])
    found = (time for each in waiting[:most] for time in _time_at(log, source.topic, each, starts[each]))
    return min(found, default=None)


def _time_at(log: Log, topic: str, partition: int, offset: int) -> Iterator[int]:
    for records in log.read(topic, partition, offset, offset + 1):
        yield from (moment for moment in records.timestamps[:1] if moment >= 0)


def behind(sources: Sequence[Source], lake: LakeLayout, log: Log) -> bool:
    """True if a topic holds records that are not in the lake.

    Raises:
        StrandlineError: what a run would stop for at its start: a topic that is missing or another one, records that
            were removed unread.
    """
    current_ids(sources, lake, log)
    start = start_offsets(sources, {each.name: committed_offsets(each, lake) for each in sources}, log)
    for topic, partitions in start.items():
        ends = log.end_offsets(topic)
        if any(offset < ends[int(partition)] for partition, offset in partitions.items()):
            return True
    return False
