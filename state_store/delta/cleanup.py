"""Clean-up: the files that a plan names are removed, one after the other.

A kill at any point is harmless: what is left is found by the next plan. No file that a version needs is in a plan, and
commits that came since it was made are looked through before.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from strandline.state_store import leases
from strandline.state_store.delta import log
from strandline.state_store.delta.checkpoint import live_actions
from strandline.state_store.delta.cleanup_plan import named_by
from strandline.state_store.delta.hint import hinted_version
from strandline.state_store.delta.log_listing import LOG, commit_name
from strandline.state_store.delta.log_upkeep import make_checkpoint
from strandline.state_store.errors import DiskFailed
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import sync_folder
from strandline.state_store.folders import remove_file, remove_if_empty
from strandline.state_store.retention import Need, check_leases

if TYPE_CHECKING:
    from strandline.state_store.delta.cleanup_plan import CleanupPlan
    from strandline.state_store.paths import LakePath


def clean(plan: CleanupPlan, now: int | None = None) -> int:
    """Carry out a plan: the bytes that were freed.

    Args:
        now: milliseconds since the epoch, by which leases have ended; default: the clock.

    Raises:
        LeaseHeld: a reader has leased an older version since the plan was made: nothing was removed.
        CorruptState, VersionGone: a commit made since the plan does not read back: nothing was removed.
        OSError: a file cannot be removed. Those before it are gone; run it again.
    """
    path = plan.path
    if plan.files:
        _check_leases(plan, log.now_ms() if now is None else now)
        _fold(plan)
        _forget_hint(plan)
    spared: set[str] = set()
    for version in range(plan.version + 1, (log.newest_version(path) or 0) + 1):
        spared |= named_by(path, log.read_actions(path, version))
    freed = 0
    for file in plan.files:
        if file.name not in spared:
            _remove(path / file.name)
            freed += file.size
            failpoint("inside-cleanup")
    for folder in {(path / file.name).parent for file in plan.files} - {path, log.commit_file(path, 0).parent}:
        remove_if_empty(folder)
    sync_folder(path)
    return freed


def _check_leases(plan: CleanupPlan, now: int) -> None:
    """Raise LeaseHeld if a reader has leased an older version since the plan, which went by all leases there were."""
    oldest = log.versions(plan.path)[0]
    leased = [lease for lease in leases.living(plan.path, now) if lease.version >= oldest]
    check_leases(plan.path, [Need("lease", lease.version, lease.reader, lease.until) for lease in leased], plan.first)


def _fold(plan: CleanupPlan) -> None:
    """Write the checkpoint of the first version that is kept, if the log is to begin there.

    Raises:
        DiskFailed: it does not read back.
    """
    file = log.checkpoint_file(plan.path, plan.first)
    if not plan.fold or live_actions(file) is not None:
        return
    make_checkpoint(plan.path, plan.first)
    if live_actions(file) is None:
        raise DiskFailed(
            f"no checkpoint of version {plan.first} could be written: nothing was removed", where=str(file)
        )


def _forget_hint(plan: CleanupPlan) -> None:
    """Remove the hint if it names an entry that goes: whoever goes by it would take that one for the newest.

    Such a hint is left by a writer that was killed, or had no disk, between its checkpoint and the hint to it.
    """
    hint = log.hint_file(plan.path)
    named = hinted_version(hint)
    if named is not None and f"{LOG}/{commit_name(named)}" in {file.name for file in plan.files}:
        remove_file(hint)
        sync_folder(hint.parent)


def _remove(found: LakePath) -> None:
    if isinstance(found, Path) and found.is_dir():
        remove_if_empty(found)
    else:
        remove_file(found)
