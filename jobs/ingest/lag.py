"""The lag of an event log: the events of its topic that it does not hold yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jobs.ingest.offsets import committed_offsets
from jobs.model.errors import SourceError

if TYPE_CHECKING:
    from jobs.ingest.logs.log import Log
    from jobs.model.definitions import Source
    from state_store.layout import Lake


def events_behind(source: Source, lake: Lake, log: Log) -> int | None:
    """The number of events that wait in the source's topic; None when the broker does not answer."""
    try:
        if not log.exists(source.topic):
            return 0
        ends, begins = log.end_offsets(source.topic), log.begin_offsets(source.topic)
    except SourceError:
        return None
    reached = committed_offsets(source, lake)
    return sum(max(end - reached.get(str(p), begins.get(p, 0)), 0) for p, end in ends.items())
