"""The count of late rows in a table's record, and its sum over the stages of a view.

    before: 3 late     Δ: 2 rows come too late, 1 that was late is retracted     after: 4 late

A record says how many rows of its inputs, up to its vector, came too late. So a refresh that is repeated after a kill
counts nothing twice, and one that computes all rows counts all of them anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strandline.jobs.ivm.rules.late import late_rows
from strandline.jobs.model.stage import AggregateStage
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from strandline.jobs.ivm.refresh.runtime import Runtime
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.layout import Lake


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
    text = late_rows(stage, runtime.dialect, moved if before is not None else None)
    return record if text is None else replace(record, late=(before or 0) + runtime.number(text))


def late_in(lake: Lake, stages: Iterable[Stage]) -> int | None:
    """The late rows of all these stages' tables, by their last commits; None where none is ever late, or was counted.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken.
    """
    windowed = {stage.table for stage in stages if isinstance(stage, AggregateStage) and stage.late}
    heads = [reader.head(lake.table(table)) for table in sorted(windowed)]
    counts = [head.record.late for head in heads if head is not None and head.record.late is not None]
    return sum(counts) if counts else None
