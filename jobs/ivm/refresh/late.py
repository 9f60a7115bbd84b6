"""The count of late rows in a table's record, and its sum over the stages of a view.

    before: 3 late     Δ: 2 rows come too late, 1 that was late is retracted     after: 4 late

A record says how many rows of its inputs, up to its vector, came too late. So a refresh that is repeated after a kill
counts nothing twice, and one that computes all rows counts all of them anew.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.report import EarlyEvents
from strandline.jobs.model.stage import LatestStage, Stage, body_of
from strandline.jobs.model.tables import definition_of
from strandline.state_store.delta import reader
from strandline.state_store.errors import TableMissing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.ivm.refresh.runtime import Runtime
    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.layout import LakeLayout


def with_late_rows(
    runtime: Runtime[Any], stage: Stage, record: CommitRecord, moved: Collection[str] | None
) -> CommitRecord:
    """The record of an epoch with the late rows of its vector; as it is where no row is ever late.

    Args:
        record: of the commit to be made, with the late rows of the commit before.
        moved: the aliases of the inputs that moved; None: all rows are computed.
    """
    # Rows of a record that was written before they were counted are counted once, over all inputs.
    before = record.late if moved is not None else None
    # Most of the engine, which those who only count what was late do without.
    from strandline.jobs.ivm.rules.maintenance import late_rows

    text = late_rows(stage, runtime.dialect, moved if before is not None else None)
    return record if text is None else replace(record, late=(before or 0) + runtime.number(text))


def late_in(lake: LakeLayout, tables: Iterable[str]) -> int | None:
    """The late rows of all these tables, by their last commits; None where none is ever late, or was counted.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken.
    """
    heads = [reader.head(lake.table(table)) for table in dict.fromkeys(tables)]
    counts = [head.record.late for head in heads if head is not None and head.record.late is not None]
    return sum(counts) if counts else None


# Events that looked up a table before it had any row: they found none, and nothing in their rows says why.
#
#     products (event log)        |09:00 first row ───────>
#     orders              08:10 08:20 08:30                    3 of 3 events found no row of products that early
#
# It is told from the statistics of the logs' files, when a run has ended: a file whose events are all older counts
# whole, one that holds the moment is read for one column, and only some of those. No epoch is slower for it. An event
# that found no row of its own key, while others had one, is not among them.


def early_events(lake: LakeLayout, stages: Iterable[Stage]) -> tuple[EarlyEvents, ...]:
    """For each pair of a stream and a table that its events look up as of their time: how many came before its first
    row. Pairs without any are left out, and logs that retention has cut: their first row is not known any more.

    Raises:
        CorruptState, ForeignWrite, VersionGone: a log is broken.
    """
    pairs = {
        (core.inputs[0].relation.name, each.relation.name): None
        for stage in stages
        if not isinstance(stage, LatestStage)
        for core in body_of(stage)
        for each in core.inputs
        if each.as_of
    }
    found = (_early(lake, stream, log) for stream, log in pairs)
    return tuple(each for each in found if each is not None)


def _early(lake: LakeLayout, stream: str, log: str) -> EarlyEvents | None:
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
