"""The execution of a backup: files first, then the manifest that names them all, then the name of the newest.

    scrub ──> read, checksum compared with the log's ──> <file>.<crc>, unless it is there ──> manifest ──> latest.json

A kill leaves files that nothing names; the next backup finds them there and does not write them again.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.operate.recovery import image as manifests
from strandline.jobs.operate.recovery.image import (
    BackupFile,
    Manifest,
    TableState,
    check_definitions,
    lake_image,
    numbers,
    objects,
    read_latest,
)
from strandline.jobs.operate.verify.findings import sized
from strandline.state_store.delta import log
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import BackupBroken, CorruptState, VersionGone
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, replace
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import file_names, is_folder, sizes_below, within
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.recovery.image import Image, ImageFile
    from strandline.state_store.paths import LakePath


# The scrub of a backup: files that it holds already are read again, so that what a disk has lost is found in time.
#
#     objects ──due──> read, checksum compared with that of the name ──> as written
#                                             └─ damaged ──> copied again, where the lake still has it ──> mended
#                                                        └─> named, with the backups that it is part of
#
# A small backup is read whole each time. Of a large one every backup reads the files whose turn it is: each file has
# a moment of its own in every `SCRUB_DAYS`, told by its name, so nothing has to be remembered of what was read when.

SCRUB_DAYS: Final = 30
"""Each file is read again within this time, if backups are made at least as often: storage arrays are scrubbed monthly,
since a second fault that meets an unnoticed first one is what loses data."""
_SMALL_BYTES: Final = 256 << 20
"""Read whole by each backup: a second or two."""
_SCRUB_MS: Final = SCRUB_DAYS * 86_400_000
_CHECKSUM_DIGITS: Final = 8


@dataclass(frozen=True)
class Scrub:
    """Files of a backup that are due to be read, by their names below its folder of objects, with their sizes."""

    due: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes that are read."""
        return sum(self.due.values())


@dataclass(frozen=True)
class Scrubbed:
    """What a scrub found.

    Attributes:
        read: files.
        mended: those that were damaged, and were copied from the lake again.
        damaged: {file that is damaged or gone, and that the lake does not hold any more: the backups it is part of}.
    """

    read: int
    mended: tuple[str, ...]
    damaged: Mapping[str, tuple[int, ...]]


def plan_scrub(there: Mapping[str, int], last: int | None, now: int) -> Scrub:
    """The files whose turn it is.

    Args:
        there: {file below the folder of objects: its size}.
        last: when the backup before was made, in milliseconds since the epoch; None: there was none.
        now: likewise.
    """
    objects = {name: size for name, size in there.items() if _checksum(name) is not None}
    if last is None or sum(objects.values()) <= _SMALL_BYTES:
        return Scrub(objects)
    return Scrub({name: size for name, size in objects.items() if _turns(name, now) > _turns(name, last)})


def execute_scrub(scrub: Scrub, backup: LakePath, lake: LakeLayout, image: Image) -> Scrubbed:
    """Read what is due, and mend what can be mended.

    Args:
        image: of the lake, whose files mend those of the backup.

    Raises:
        DiskFailed, StorageDenied, StorageUnavailable: the backup cannot be read or written.
    """
    root = manifests.objects(backup).root
    broken = {name for name in scrub.due if not _is_whole(root / name, name)}
    mended = {name for name in broken if _mend(name, root, lake, image)}
    return Scrubbed(len(scrub.due), tuple(sorted(mended)), _parts_of(broken - mended, backup))


def _turns(name: str, moment: int) -> int:
    """How often it was the file's turn up to a moment."""
    phase = zlib.crc32(name.encode()) * _SCRUB_MS >> 32
    return (moment - phase) // _SCRUB_MS


def _checksum(name: str) -> str | None:
    """The checksum in the name of an object; None of another file, as one that a kill has left."""
    found = name.rpartition(".")[2]
    return found if len(found) == _CHECKSUM_DIGITS and not set(found) - set("0123456789abcdef") else None


def _is_whole(file: LakePath, name: str) -> bool:
    try:
        return f"{zlib.crc32(file.read_bytes()):08x}" == _checksum(name)
    except FileNotFoundError:
        return False


def _mend(name: str, root: LakePath, lake: LakeLayout, image: Image) -> bool:
    """Copy a damaged file again; False where the lake has no such content any more."""
    objects = LakeLayout(root)
    file = next((each for each in image.files if within(each.path(objects), root) == name.rpartition(".")[0]), None)
    if file is None:
        return False
    try:
        data = file.path(lake).read_bytes()
    except FileNotFoundError:
        return False
    if f"{zlib.crc32(data):08x}" != _checksum(name):
        return False
    replace(root / name, data)
    return True


def _parts_of(names: set[str], backup: LakePath) -> dict[str, tuple[int, ...]]:
    """The backups that name each file; a file that no manifest names any more is nobody's loss."""
    root = manifests.objects(backup).root
    found: dict[str, list[int]] = {}
    for number in manifests.numbers(backup) if names else ():
        try:
            named = {within(file.of_backup(backup), root) for file in manifests.read(backup, number).files}
        except BackupBroken:
            continue  # it cannot be restored, whatever its files are
        for name in names & named:
            found.setdefault(name, []).append(number)
    return {name: tuple(numbers) for name, numbers in sorted(found.items())}


# The plan of a backup: which files of the lake are copied, and which the backup has already.


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
    known: tuple[BackupFile, ...]
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
    lake = LakeLayout(settings.lake)
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


def _check_outside(destination: LakePath, lake: LakeLayout) -> None:
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


def _lies(file: BackupFile, destination: LakePath, there: dict[str, int]) -> bool:
    return there.get(within(file.of_backup(destination), objects(destination).root)) == file.size


@dataclass(frozen=True)
class BackupResult:
    """A backup that was made.

    Attributes:
        files, size: of the whole backup; `size` in bytes.
        written, written_size: what this one wrote.
        scrubbed: files of this and older backups that were read again.
        mended: those of them that were damaged, and were copied from the lake again.
        damaged: {file that is damaged, and that the lake has no more: the backups that cannot be restored for it}.
        tables: {table: the version that it holds}.
    """

    destination: str
    number: int
    files: int
    size: int
    written: int
    written_size: int
    scrubbed: int
    mended: tuple[str, ...]
    damaged: dict[str, tuple[int, ...]]
    tables: dict[str, int]
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return asdict(self)


def execute_backup(settings: Settings, plan: BackupPlan, steps: Steps = UNWATCHED) -> BackupResult:
    """Carry out a plan. Killed at any point, it is begun again with a new plan, and finds what was written.

    Raises:
        CorruptState: a file of the lake is not as it was written. The backup before it still stands.
        VersionGone: a clean-up has removed a file, or a view was replaced, since the plan was made: plan again.
        DiskFailed, StorageDenied, StorageUnavailable: the destination cannot be written.
    """
    began = time.monotonic()
    lake = LakeLayout(settings.lake)
    steps.begin(f"reading {len(plan.scrub.due):,} files again")
    scrubbed = execute_scrub(plan.scrub, plan.destination, lake, plan.image)
    root = manifests.objects(plan.destination).root
    there = sizes_below(root)
    new, written = [], []
    for number, file in enumerate(plan.copied, 1):
        steps.begin(f"copying file {number:,} of {len(plan.copied):,}")
        data = _read(file, lake)
        stored = BackupFile(file.table, file.name, len(data), f"{zlib.crc32(data):08x}")
        new.append(stored)
        target = stored.of_backup(plan.destination)
        if there.get(within(target, root)) != stored.size:
            make_folder(target.parent)
            replace(target, data)
            written.append(stored)
            failpoint("inside-backup")
    check_definitions(plan.image, lake)
    made = _manifest(plan, lake, [*plan.known, *new])
    failpoint("before-backup-manifest")
    manifests.write(plan.destination, made)
    return BackupResult(
        destination=str(plan.destination),
        number=plan.number,
        files=len(made.files),
        size=sum(file.size for file in made.files),
        written=len(written),
        written_size=sum(file.size for file in written),
        scrubbed=scrubbed.read,
        mended=scrubbed.mended,
        damaged=dict(scrubbed.damaged),
        tables={name: state.version for name, state in made.tables.items()},
        seconds=round(time.monotonic() - began, 3),
    )


def _read(file: ImageFile, lake: LakeLayout) -> bytes:
    path = file.path(lake)
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        message = sentence("'{}' was removed while the lake was backed up", file.name)
        raise VersionGone(message, where=str(path), hint="back up again") from error
    if file.checksum is not None and f"{zlib.crc32(data):08x}" != file.checksum:
        raise CorruptState(
            sentence("a file of '{}' is not as it was written", Name(file.table)),
            where=str(path),
            hint="type: strandline verify",
        )
    return data


def _manifest(plan: BackupPlan, lake: LakeLayout, files: list[BackupFile]) -> Manifest:
    place = {(file.table, file.name): number for number, file in enumerate(plan.image.files)}
    tables = {
        name: TableState(plan.identities[name], head.version, head.record.digest)
        for name, head in plan.image.heads.items()
    }
    ordered = tuple(sorted(files, key=lambda file: place[file.key]))
    return Manifest(plan.number, log.now_ms(), str(lake.root), tables, ordered)
