"""Upkeep of the log: its names flushed before more is built on them, and checkpoints, so that opening stays cheap."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pyarrow as pa

from strandline.state_store.delta import log
from strandline.state_store.delta.checkpoint import as_rows, removed_actions, write_checkpoint
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import StoreError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import sync_folder
from strandline.state_store.tablespec import RECOVERY_HORIZON_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.state_store.delta.entry import Action
    from strandline.state_store.paths import LakePath

_log = logging.getLogger("strandline.store")


def flush_log(path: LakePath) -> None:
    """Flush the names in the log of a table: the versions that were seen in it survive a power cut.

    A writer that was killed, or is not done yet, may have given a version its name without flushing it. So what builds
    on a version flushes it first: the next version of the table, and a commit that names it in its vector.
    """
    sync_folder(log.commit_file(path, 0).parent)


def make_checkpoint(path: LakePath, version: int) -> None:
    """Write the checkpoint of `version`. A failure only makes the next start slower: the commits are still there."""
    failpoint("before-checkpoint")
    try:
        live = read_snapshot(path, version).actions
        hint = log.hint_file(path)
        write_checkpoint(log.checkpoint_file(path, version), hint, version, live, _removed(path, version))
    except (OSError, StoreError, pa.ArrowException) as error:
        _log.warning("no checkpoint of '%s' at version %d: %s", path.name, version, error)
    failpoint("after-checkpoint")


def _removed(path: LakePath, version: int) -> pa.Table:
    """The removals within the recovery horizon: those of the checkpoint before, and of the commits since."""
    before = next(log.checkpoints_before(path, version - 1), -1)
    since = [action for actions in log.read_entries(path, before, version) for action in actions]
    kept = removed_actions(log.checkpoint_file(path, before), log.now_ms() - RECOVERY_HORIZON_MS)
    return pa.concat_tables([kept, as_rows(_telling([action for action in since if "remove" in action]))])


def _telling(removals: Sequence[Action]) -> list[Action]:
    """The removals, the newest first, that name a file which no other one names.

    They stand there to keep the files from another tool's vacuum. An epoch removes each file that it takes rows from,
    to add it again with another vector; all of these vectors lie in one file.
    """
    named: set[str] = set()
    kept: list[Action] = []
    for action in reversed(removals):
        body = action["remove"]
        vector = body.get("deletionVector") or {}
        files = {body["path"], f"{vector.get('storageType')} {vector.get('pathOrInlineDv')}"}
        if not files <= named:
            named |= files
            kept.append(action)
    return kept
