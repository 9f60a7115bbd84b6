"""The lag of sources: the events of their topics that their event logs do not hold yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest.identity import current_ids
from strandline.jobs.ingest.offsets import committed_offsets, start_offsets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Source
    from strandline.state_store.layout import Lake


def lag(source: Source, lake: Lake, log: Log) -> int:
    """The number of offsets from the event log's last commit to the topic's end; 0 while there is no topic.

    An upper bound of the events with Kafka's transactions, whose marks take offsets too.

    Raises:
        SourceUnavailable: the brokers do not answer.
    """
    if not log.exists(source.topic):
        return 0
    ends, begins = log.end_offsets(source.topic), log.begin_offsets(source.topic)
    reached = committed_offsets(source, lake)
    return sum(max(end - reached.get(str(each), begins.get(each, 0)), 0) for each, end in ends.items())


def behind(sources: Sequence[Source], lake: Lake, log: Log) -> bool:
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
