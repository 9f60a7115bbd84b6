"""Clean-up of a table's folder: plan which files nobody needs any more, then remove them one by one.

A kill at any point is harmless: what is left is found by the next plan. No file that a version needs is in a plan, and
commits that came since it was made are looked through before.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from strandline.state_store import leases
from strandline.state_store.delta import log
from strandline.state_store.delta.checkpoint import live_actions
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.deletion_vectors import vector_file
from strandline.state_store.delta.entry import hinted_version
from strandline.state_store.delta.log import LOG, commit_name
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import DiskFailed
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import remove_file, remove_if_empty, sync_folder
from strandline.state_store.leases import Need, Retention, check_leases
from strandline.state_store.paths import Location, file_names, file_size, within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from strandline.state_store.delta.entry import Action
    from strandline.state_store.paths import LakePath


# The plan is data, to be printed: which files go, and why.
#
#     commits   0 … … … checkpoint … first … … … … newest
#               └──── go ────┘         └── kept: each of these versions can be read ──┘
#
# `first` is the oldest version that anybody needs: see `state_store.leases`. What is live in it, and what came later,
# is kept; so is the log from the last whole checkpoint below it on; where the feed is folded, from `first` itself,
# which gets a checkpoint. All else in the folder is nobody's, once it is older than any running epoch.

DAY_MS: Final = 86_400_000

ORPHAN_DAYS: Final = 7
"""The age from which a file that no commit names is nobody's. A running epoch has files that no commit names yet: the
longest, that computes a view over all history, takes hours. A week is also what Delta's own vacuum waits."""

_LOG: Final = "_delta_log"
_NUMBERED: Final = re.compile(r"(\d{20})\.(json|crc|checkpoint\.parquet)")


@dataclass(frozen=True)
class Needless:
    """A file, or an empty folder, that goes; relative to the table's folder."""

    name: str
    size: int
    reason: str


@dataclass(frozen=True)
class CleanupPlan:
    """What a clean-up removes.

    Attributes:
        version: the newest one when the plan was made.
        first: the oldest version that can be read for certain afterwards.
        files: what goes, entries of the log from the oldest on first.
        needs: who needs which version, the smallest first.
        expired: leases that have ended: they hold nothing, and their files go.
        fold: a checkpoint of `first` is written before anything goes.
    """

    path: LakePath
    version: int
    first: int
    files: tuple[Needless, ...]
    needs: tuple[Need, ...] = ()
    expired: tuple[leases.Lease, ...] = ()
    fold: bool = False

    @property
    def size(self) -> int:
        """The bytes that go."""
        return sum(file.size for file in self.files)

    def __str__(self) -> str:
        counts = Counter(file.reason for file in self.files)
        sizes = {reason: sum(file.size for file in self.files if file.reason == reason) for reason in counts}
        first = f"'{self.path.name}' at version {self.version}, kept from version {self.first} on"
        return "\n".join([first, *(f"  {n} files, {sizes[why] / 1e6:.1f} MB: {why}" for why, n in counts.items())])


def plan_cleanup(path: LakePath, now: int, retention: Retention | None = None) -> CleanupPlan:
    """Plan the clean-up of a table of ours.

    Args:
        now: milliseconds since the epoch.

    Raises:
        TableMissing: there is no table.
        LeaseHeld: a version is leased that is explicitly not to be kept.
        CorruptState, VersionGone: a version within the horizon, or a lease, does not read back: nothing is to be
            removed.
    """
    retention = retention or Retention()
    versions = log.versions(path)
    if not versions:
        raise log.missing(path)
    needs = _needs(path, now, retention)
    first, newest = needs[0].version, versions[-1]
    living = leases.living(path, now)
    named = named_since(path, first, newest)
    kept_from = _recorded(path, first) if retention.fold else _log_kept_from(path, first)
    superseded = _superseded(path, versions[0], first) - named if retention.fold else frozenset()
    kept = named | {leases.file_of(lease) for lease in living}
    files = [*_log_entries(path, kept_from), *_nobodys(path, kept, superseded, now - ORPHAN_DAYS * DAY_MS)]
    fold = retention.fold and kept_from > versions[0]
    return CleanupPlan(path, newest, first, tuple(files), tuple(needs), tuple(leases.expired(path, now)), fold)


def _needs(path: LakePath, now: int, retention: Retention) -> list[Need]:
    """Everything that is needed of a table, the smallest version first; what the log has lost already is left out.

    Args:
        now: milliseconds since the epoch.

    Raises:
        LeaseHeld: an explicit version is above one that is leased.
        CorruptState: a lease, or a commit within the horizon, does not read back.
    """
    versions = log.versions(path)
    living = [Need("lease", lease.version, lease.reader, lease.until) for lease in leases.living(path, now)]
    if retention.before is None:
        wanted = Need("horizon", _current_at(path, versions, now - retention.horizon_ms))
    else:
        wanted = Need("horizon", max(versions[0], min(retention.before, versions[-1])))
        check_leases(path, [need for need in living if need.version >= versions[0]], retention.before)
    found = [wanted, *(need for need in (*living, *retention.needs) if need.version >= versions[0])]
    return sorted(found, key=lambda need: need.version)


def _current_at(path: LakePath, versions: Sequence[int], horizon: int) -> int:
    """The last of the oldest versions that are all older than the horizon: a clock that went back keeps more."""
    first = versions[0]
    for version in versions:
        if log.read_commit(path, version).timestamp > horizon:
            break
        first = version
    return first


def _log_kept_from(path: LakePath, first: int) -> int:
    """The oldest entry of the log that is kept: of the last whole checkpoint, and of the record that it goes by."""
    checkpoint = next((number for number in log.checkpoints_before(path, first) if _whole(path, number)), None)
    return 0 if checkpoint is None else _recorded(path, checkpoint)


def _recorded(path: LakePath, upto: int) -> int:
    """The newest entry up to a version that has a record of ours, which the versions after it go by."""
    for version in range(upto, -1, -1):
        if not log.commit_file(path, version).exists() or log.read_commit(path, version).record is not None:
            return version
    return 0


def _whole(path: LakePath, version: int) -> bool:
    return live_actions(log.checkpoint_file(path, version)) is not None


def named_since(path: LakePath, first: int, newest: int) -> frozenset[str]:
    """Find every file that a version from `first` on needs: to read it, or to read its changes."""
    names = {name for body in read_snapshot(path, first).files.values() for name in _files_of(path, body)}
    for version in range(first + 1, newest + 1):
        names |= named_by(path, log.read_actions(path, version))
    return frozenset(names)


def _superseded(path: LakePath, oldest: int, first: int) -> frozenset[str]:
    """Every file that a commit up to `first` has named: no running epoch can be about to name it."""
    entries = log.read_entries(path, oldest - 1, first)
    names = {name for actions in entries for name in named_by(path, actions)}
    base = next((number for number in log.checkpoints(path, upto=first) if _whole(path, number)), None)
    if base is not None:
        names |= {name for body in read_snapshot(path, base).files.values() for name in _files_of(path, body)}
    return frozenset(names)


def named_by(path: LakePath, actions: Iterable[Action]) -> frozenset[str]:
    """The files that a commit adds, relative to the table."""
    bodies = (action.get("add") or action.get("cdc") for action in actions)
    return frozenset(name for body in bodies if body for name in _files_of(path, body))


def _files_of(path: LakePath, body: Mapping[str, Any]) -> Iterator[str]:
    yield unquote(body["path"])
    vector = body.get("deletionVector")
    file = vector_file(path, vector) if vector else None
    if file is not None:
        yield within(file, path)


def _log_entries(path: LakePath, kept_from: int) -> Iterator[Needless]:
    """Entries and checkpoints below a version, the oldest first, so that the log never has a gap."""
    reason = "entries of the log below the version that is kept"
    numbered = (name for name in sorted(file_names(path / _LOG)) if _NUMBERED.fullmatch(name))
    for name in numbered:
        if int(name[:20]) >= kept_from:
            return
        yield Needless(f"{_LOG}/{name}", file_size(path / _LOG / name), reason)


def _nobodys(path: LakePath, named: frozenset[str], superseded: frozenset[str], before: int) -> Iterator[Needless]:
    """What lies below the table and no kept version names; of the log's folder, only temporary files."""
    orphan = f"files that no kept version names, older than {ORPHAN_DAYS} days"
    for name, size, modified in _objects(path) if isinstance(path, Location) else _files(path, named):
        if name in superseded:
            yield Needless(name, size, "files that only older versions name")
        elif modified < before and not _needed(name, named):
            yield Needless(name, size, orphan)


def _objects(path: Location) -> Iterator[tuple[str, int, int]]:
    """The name, relative to the table, the size and the time (ms) of all that lies below it."""
    return ((within(found, path), about.size, about.modified) for found, about in path.entries())


def _files(path: Path, named: frozenset[str]) -> Iterator[tuple[str, int, int]]:
    """The same on a disk, and empty folders; only what is not needed is looked at."""
    for folder, folders, names in os.walk(path):
        found = [Path(folder, name) for name in names] if folders or names else [Path(folder)]
        for each in found:
            name = within(each, path)
            about = None if _needed(name, named) else _about(each)
            if about is not None:
                yield name, about.st_size, about.st_mtime_ns // 1_000_000


def _needed(name: str, named: frozenset[str]) -> bool:
    folder, _, last = name.rpartition("/")
    temporary = last.startswith(".") and last.endswith(".tmp")
    if folder == _LOG:
        return not temporary
    # Hadoop writes a checksum beside each file.
    hidden = last.startswith(".") and last.endswith(".crc")
    return (f"{folder}/{last[1:-4]}".lstrip("/") if hidden else name) in named


def _about(file: Path) -> os.stat_result | None:
    try:
        return file.stat()
    except FileNotFoundError:  # an epoch that came to nothing has removed it
        return None


def clean(plan: CleanupPlan, now: int | None = None) -> int:
    """Carry out a plan; return the bytes that were freed.

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
