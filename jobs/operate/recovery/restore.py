"""The restore of a backup into an empty lake, verified; one that was killed goes on.

    all files there? ──> mark ──> file by file, checksum compared ──> rows = digest of the manifest ──> mark removed

The definitions come last: until they are there, no command takes the folder for a lake that can run.
"""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.operate.recovery import image as manifests
from strandline.jobs.operate.verify.findings import sized
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest
from strandline.state_store.errors import BackupBroken, LakeNotEmpty
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, replace
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import sizes_below, within
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.model.report import Steps
    from strandline.jobs.operate.recovery.image import BackupFile, Manifest
    from strandline.state_store.paths import LakePath

_MARK: Final = "restoring.json"


@dataclass(frozen=True)
class RestorePlan:
    """What a restore writes.

    Attributes:
        missing: the files that the lake has not yet: all of them, but for one that was killed.
    """

    source: LakePath
    target: LakePath
    manifest: Manifest
    missing: tuple[BackupFile, ...]

    def __str__(self) -> str:
        size = sum(file.size for file in self.missing)
        return (
            f"backup {self.manifest.number} of {self.manifest.lake}, {len(self.manifest.tables)} tables, to "
            f"{self.target}: {len(self.missing)} of {len(self.manifest.files)} files, {sized(size)} to copy"
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        return {
            "source": str(self.source),
            "target": str(self.target),
            "number": self.manifest.number,
            "tables": len(self.manifest.tables),
            "files": len(self.manifest.files),
            "missing": {"files": len(self.missing), "bytes": sum(file.size for file in self.missing)},
        }


@dataclass(frozen=True)
class RestoreResult:
    """A lake that was restored: every table has the version and the digest that the backup says."""

    lake: str
    number: int
    made: int
    tables: dict[str, int]
    rows: int
    files: int
    size: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return asdict(self)


def plan_restore(source: LakePath, target: LakePath, number: int | None = None) -> RestorePlan:
    """The plan to restore a backup.

    Args:
        number: of the backup; default: the newest.

    Raises:
        BackupBroken: there is no backup, or one of its files is missing.
        LakeNotEmpty: the target holds anything else than an unfinished restore of this backup.
    """
    manifest = manifests.read_latest(source) if number is None else manifests.read(source, number)
    if manifest is None:
        raise BackupBroken("there is no backup", where=str(source), hint="make one: strandline backup DEST")
    root = manifests.objects(source).root
    there = sizes_below(root)
    for file in manifest.files:
        name = within(file.of_backup(source), root)
        if there.get(name) != file.size:
            raise BackupBroken(
                f"backup {manifest.number} is not whole: '{name}' is missing or too short",
                where=str(source),
                hint="restore an older backup by its number, or back up again: missing files are copied again",
            )
    done = _done(target, source, manifest)
    return RestorePlan(source, target, manifest, tuple(file for file in manifest.files if file.key not in done))


def execute_restore(plan: RestorePlan, steps: Steps = UNWATCHED) -> RestoreResult:
    """Carry out a plan. A kill leaves an unfinished lake, with which a new plan goes on.

    Raises:
        BackupBroken: a file is not as it was written, or the rows of a table are not those that were backed up.
        DiskFailed, StorageDenied, StorageUnavailable: the target cannot be written.
    """
    began = time.monotonic()
    lake = LakeLayout(plan.target)
    make_folder(plan.target)
    replace(plan.target / _MARK, json.dumps(_mark(plan.source, plan.manifest)).encode())
    for number, file in enumerate(plan.missing, 1):
        steps.begin(f"copying file {number:,} of {len(plan.missing):,}")
        data = file.of_backup(plan.source).read_bytes()
        if f"{zlib.crc32(data):08x}" != file.checksum:
            raise BackupBroken("a file of the backup is not as it was written", where=str(file.of_backup(plan.source)))
        target = file.of_lake(lake)
        make_folder(target.parent)
        replace(target, data)
        failpoint("inside-restore")
    rows = 0
    for number, name in enumerate(plan.manifest.tables, 1):
        steps.begin(
            sentence("comparing the rows of '{}', table {} of {}", Name(name), number, len(plan.manifest.tables))
        )
        rows += _checked(lake, name, plan.manifest)
    remove_file(plan.target / _MARK)
    return RestoreResult(
        lake=str(plan.target),
        number=plan.manifest.number,
        made=plan.manifest.made,
        tables={name: state.version for name, state in plan.manifest.tables.items()},
        rows=rows,
        files=len(plan.manifest.files),
        size=sum(file.size for file in plan.manifest.files),
        seconds=round(time.monotonic() - began, 3),
    )


def _checked(lake: LakeLayout, table: str, manifest: Manifest) -> int:
    """The rows of a restored table, which must have the digest that was backed up."""
    state = manifest.tables[table]
    path = lake.table(table)
    found = reader.digest_of_rows(path, read_snapshot(path, state.version))
    if found != Digest.parse(state.digest):
        raise BackupBroken(
            sentence(
                "the rows of '{}' are not those that were backed up: digest {}, not {}",
                Name(table),
                found,
                state.digest,
            ),
            where=str(path),
        )
    return found.count


def _done(target: LakePath, source: LakePath, manifest: Manifest) -> set[tuple[str, str]]:
    """The files that an unfinished restore of this backup has written."""
    there = sizes_below(target)
    if not there:
        return set()
    try:
        begun = json.loads((target / _MARK).read_bytes())
    except (FileNotFoundError, ValueError):
        begun = None
    if begun != _mark(source, manifest):
        raise LakeNotEmpty(
            f"'{target}' is not empty, and what is there is not an unfinished restore of this backup",
            where=str(target),
            hint="name an empty folder; to restore over a lake, move it away first",
        )
    lake = LakeLayout(target)
    return {file.key for file in manifest.files if there.get(within(file.of_lake(lake), target)) == file.size}


def _mark(source: LakePath, manifest: Manifest) -> dict[str, Any]:
    return {"source": str(source), "number": manifest.number, "made": manifest.made}
