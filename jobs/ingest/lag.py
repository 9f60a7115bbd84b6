"""The lag of a source: the events of its topic that its event log does not hold yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ingest.offsets import committed_offsets

if TYPE_CHECKING:
    from jobs.ingest.logs.log import Log
    from jobs.model.definitions import Source
    from state_store.layout import Lake


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
