"""The plan of a backup: which files of the lake are copied, and which the backup has already."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.jobs.operate.backup.image import lake_image
from strandline.jobs.operate.backup.manifest import numbers, objects, read_latest
from strandline.jobs.operate.backup.scrub import plan_scrub
from strandline.jobs.operate.verify.findings import sized
from strandline.state_store.delta import log
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import BackupBroken
from strandline.state_store.layout import Lake
from strandline.state_store.paths import file_names, is_folder, sizes_below, within

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.backup.image import Image, ImageFile
    from strandline.jobs.operate.backup.manifest import Manifest, Stored
    from strandline.jobs.operate.backup.scrub import Scrub
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class BackupPlan:
    """What a backup copies.

    Attributes:
        number: of the backup, one more than that of the last.
        copied: the files to read, and to write unless the backup has them.
        known: files that the last backup named, and that lie in the backup as they should.
        identities: {table: Delta's id}.
        scrub: files of this and older backups that are read again.
    """

    destination: LakePath
    number: int
    image: Image
    copied: tuple[ImageFile, ...]
    known: tuple[Stored, ...]
    identities: dict[str, str]
    scrub: Scrub

    def __str__(self) -> str:
        new, old = sum(file.size for file in self.copied), sum(file.size for file in self.known)
        return (
            f"backup {self.number} of {len(self.image.heads)} tables to {self.destination}: {len(self.copied)} files, "
            f"{sized(new)} to copy; {len(self.known)} files, {sized(old)} are there; "
            f"{len(self.scrub.due)} files, {sized(self.scrub.size)} to read again"
        )

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        return {
            "destination": str(self.destination),
            "number": self.number,
            "tables": {name: head.version for name, head in self.image.heads.items()},
            "copied": {"files": len(self.copied), "bytes": sum(file.size for file in self.copied)},
            "known": {"files": len(self.known), "bytes": sum(file.size for file in self.known)},
            "scrubbed": {"files": len(self.scrub.due), "bytes": self.scrub.size},
        }


def plan_backup(settings: Settings, destination: LakePath) -> BackupPlan:
    """The plan for the lake as it is now. Its pipelines may run.

    Raises:
        BackupBroken: the destination is something else than a backup, or part of the lake.
        CorruptState, ForeignWrite, VersionGone, InputReplaced: a table is broken: verify it.
    """
    lake = Lake(settings.lake)
    _check_outside(destination, lake)
    before, number = _last(destination)
    image = lake_image(lake)
    identities = {name: read_snapshot(lake.table(name), head.version).table_id for name, head in image.heads.items()}
    there = sizes_below(objects(destination).root)
    stored = {file.key: file for file in before.files} if before else {}
    same = {name for name, state in (before.tables if before else {}).items() if identities.get(name) == state.id}
    copied, known = [], []
    for file in image.files:
        old = stored.get((file.table, file.name)) if file.lasting and file.table in same else None
        if old is not None and old.size == file.size and _lies(old, destination, there):
            known.append(old)
        else:
            copied.append(file)
    scrub = plan_scrub(there, before.made if before else None, log.now_ms())
    return BackupPlan(destination, number, image, tuple(copied), tuple(known), identities, scrub)


def _check_outside(destination: LakePath, lake: Lake) -> None:
    inside, root = _followed(destination), _followed(lake.root)
    if f"{inside}/".startswith(f"{root}/") and inside != root:
        raise BackupBroken(
            "the destination lies in the lake: what loses the lake would lose its backups",
            where=str(destination),
            hint="name a folder elsewhere, best on another disk or an object store",
        )


def _followed(path: LakePath) -> LakePath:
    """The place that a path leads to, by whatever symbolic links."""
    return path.resolve() if isinstance(path, Path) else path


def _last(destination: LakePath) -> tuple[Manifest | None, int]:
    """The newest backup, None where its last file is lost, and the number of the next.

    Raises:
        BackupBroken: what is there is no backup.
    """
    made = numbers(destination)
    if not made and is_folder(destination) and set(file_names(destination)) - {"objects", "manifests"}:
        raise BackupBroken(
            "the destination holds something else than a backup",
            where=str(destination),
            hint="name a folder that is not there yet, or one with older backups",
        )
    try:
        return read_latest(destination), max(made, default=0) + 1
    except BackupBroken:
        return None, max(made, default=0) + 1


def _lies(file: Stored, destination: LakePath, there: dict[str, int]) -> bool:
    return there.get(within(file.of_backup(destination), objects(destination).root)) == file.size
