"""Upkeep of a table's files: the writer compacts them now and then, after an epoch's commit and never instead of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from strandline.state_store.delta.compaction import compact
from strandline.state_store.delta.compaction_plan import plan_compaction
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import CommitConflict, StoreError

if TYPE_CHECKING:
    from strandline.state_store.commits import Head
    from strandline.state_store.paths import LakePath
    from strandline.state_store.tablespec import TableSpec

_log = logging.getLogger("strandline.store")

EVERY: Final = 16
"""Versions between two looks. Planning opens the table, some milliseconds; shared by so many commits it is nothing, and
in between a table grows by 16 files at most."""


def maintain_files(path: LakePath, spec: TableSpec, head: Head) -> Head | None:
    """Compact the table if its files call for it: the head of the compaction, None when there was none.

    To be called after each commit, by the process that made it. A failure is logged and nothing else: the table is as
    it was, and the next look is 16 versions away.
    """
    if head.version % EVERY:
        return None
    try:
        snapshot = read_snapshot(path, head.version)
        plan = plan_compaction(snapshot)
        if not plan.merges:
            return None
        made = compact(path, spec, head, snapshot, plan)
    except CommitConflict as error:
        _log.info("no compaction of '%s': %s", path.name, error.message)
        return None
    except (OSError, StoreError, pa.ArrowException, ValueError) as error:
        _log.warning("no compaction of '%s' at version %d: %s", path.name, head.version, error)
        return None
    _log.debug("compacted '%s': %s", path.name, plan)
    return made
