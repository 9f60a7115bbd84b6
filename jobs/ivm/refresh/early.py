"""Events that looked up a table before it had any row: they found none, and nothing in their rows says why.

    products (event log)        |09:00 first row ───────>
    orders              08:10 08:20 08:30                    3 of 3 events found no row of products that early

It is told from the statistics of the logs' files, when a run has ended: a file whose events are all older counts whole,
one that holds the moment is read for one column, and only some of those. No epoch is slower for it. An event that found
no row of its own key, while others had one, is not among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.report import EarlyEvents
from strandline.jobs.model.stage import LatestStage
from strandline.jobs.model.tables import definition_of
from strandline.state_store.delta import reader
from strandline.state_store.errors import TableMissing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.stage import Stage
    from strandline.state_store.layout import Lake


def early_events(lake: Lake, stages: Iterable[Stage]) -> tuple[EarlyEvents, ...]:
    """For each pair of a stream and a table that its events look up as of their time: how many came before its first
    row. Pairs without any are left out, and logs that retention has cut: their first row is not known any more.

    Raises:
        CorruptState, ForeignWrite, VersionGone: a log is broken.
    """
    pairs = {
        (core.inputs[0].relation.name, each.relation.name): None
        for stage in stages
        if not isinstance(stage, LatestStage)
        for core in stage.body
        for each in core.inputs
        if each.as_of
    }
    found = (_early(lake, stream, log) for stream, log in pairs)
    return tuple(each for each in found if each is not None)


def _early(lake: Lake, stream: str, log: str) -> EarlyEvents | None:
    try:
        events, rows = reader.head(lake.table(stream)), reader.head(lake.table(log))
    except TableMissing:
        return None
    if events is None or rows is None or rows.record.trimmed is not None or not events.record.rows:
        return None
    first = reader.smallest(lake.table(log), "_stream_time", rows.version)
    if first is None:
        return None
    early = reader.rows_before(lake.table(stream), "_timestamp", first, events.version)
    return EarlyEvents(stream, definition_of(log), early, events.record.rows) if early else None
