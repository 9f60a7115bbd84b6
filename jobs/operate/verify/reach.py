"""How far back a table's history is readable in full: its log, and the files that its commits name.

The log and the files of versions within the recovery horizon are kept, so a file that is gone sooner is a fault; one
that was cleaned up later only ends the history.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.operate.verify.findings import Outcome, failed
from strandline.jobs.operate.verify.history import oldest_base
from strandline.state_store.delta import log
from strandline.state_store.delta.deletion_vectors import vector_file
from strandline.state_store.tablespec import RECOVERY_HORIZON_DAYS, RECOVERY_HORIZON_MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from strandline.jobs.operate.verify.opened import Opened
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Reach:
    """The version to begin a fold with, −1: nothing; or the fault that leaves the history too short."""

    version: int = -1
    fault: Outcome | None = None


def reach(table: Opened) -> Reach:
    """The oldest version from which on all is there.

    Raises:
        CorruptState: the log names a file outside the table.
    """
    base = oldest_base(table.path, table.version)
    if base is None:
        return Reach(fault=failed("the log reaches back to no version that is whole"))
    removed: dict[LakePath, int] = {}
    for version in range(table.version, base, -1):
        # A version's changes need the files that it removes, too.
        for file, at in _removals(table.path, version):
            removed.setdefault(file, at)
        commit = log.read_commit(table.path, version)
        # No version but its own needs a file that lists changes: nothing takes it out of the table, time does.
        removed |= {file.path: commit.timestamp for file in commit.change_files}
        gone = next((file for file in _changed(table.path, commit) if not file.exists()), None)
        if gone is not None and removed.get(gone, log.now_ms()) > log.now_ms() - RECOVERY_HORIZON_MS:
            what = f"a file that the changes of version {version} need is gone, within {RECOVERY_HORIZON_DAYS} days"
            return Reach(fault=failed(what, gone))
        if gone is not None:
            return Reach(version)
    return Reach(base)


def _changed(path: LakePath, commit: log.Commit) -> Iterator[LakePath]:
    """The files that the changes of a commit are read from."""
    if commit.change_files:
        yield from (file.path for file in commit.change_files)
        return
    for file in (*commit.added, *commit.removed):
        yield file.path
        yield from _vector(path, file.deletion_vector)


def _removals(path: LakePath, version: int) -> Iterator[tuple[LakePath, int]]:
    """The files that a commit takes out of the table, compaction too, and when (milliseconds since the epoch)."""
    for action in log.read_actions(path, version):
        if "remove" in action:
            body = action["remove"]
            at = int(body.get("deletionTimestamp", 0))
            yield log.inside(path, body["path"]), at
            yield from ((file, at) for file in _vector(path, body.get("deletionVector")))


def _vector(path: LakePath, descriptor: Mapping[str, Any] | None) -> Iterator[LakePath]:
    found = vector_file(path, descriptor) if descriptor is not None else None
    if found is not None:
        yield found
