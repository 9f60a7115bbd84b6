"""Drill: the rows are not believed, and computed again from the event logs by none of the rules that maintain them.

Every table between the view and its event logs is compared with its SQL over its own inputs, so by induction the view
equals its SQL over the event logs.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.jobs.operate.drills.scenario import Recovery, Unrehearsable
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.operate.verify.recompute import check_recompute, has_sql
from strandline.jobs.operate.verify.rows import check_digest
from strandline.state_store.delta import reader
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.operate.drills.ground import Ground


def rehearse(ground: Ground) -> Recovery:
    """Compute the view, and all that it reads, again.

    Raises:
        Unrehearsable: the view's SQL cannot be run again.
        CorruptState, VersionGone: an input does not read.
    """
    began = time.monotonic()
    checked = 0
    fault = unread = ""
    for table in ground.tables():
        outcome = check_digest(table, reader.digest_of_rows(table.path, table.snapshot))
        if outcome.ok and has_sql(table.subject, ground.catalog):
            outcome = check_recompute(table, ground.catalog, ground.lake, ground.library)
            checked += 1
        if outcome.ok is None and table.subject.table == ground.view:
            unread = outcome.what
        if outcome.ok is False:
            fault = fault or sentence("'{}': {}", Name(table.subject.table), outcome.what)
    if unread and not fault:
        raise Unrehearsable(unread)
    rows = ground.table().record.rows
    return Recovery(time.monotonic() - began, rows, f"{counted(checked, 'table')} computed again by its SQL", fault)
