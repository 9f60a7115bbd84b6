"""The execution of a backup: files first, then the manifest that names them all, then the name of the newest.

    scrub ──> read, checksum compared with the log's ──> <file>.<crc>, unless it is there ──> manifest ──> latest.json

A kill leaves files that nothing names; the next backup finds them there and does not write them again.
"""

from __future__ import annotations

import time
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.operate.backup import manifest as manifests
from strandline.jobs.operate.backup.image import check_definitions
from strandline.jobs.operate.backup.manifest import Manifest, Stored, TableState
from strandline.jobs.operate.backup.scrub import execute_scrub
from strandline.state_store.delta import log
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, replace
from strandline.state_store.layout import Lake
from strandline.state_store.paths import sizes_below, within
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.backup.image import ImageFile
    from strandline.jobs.operate.backup.plan import BackupPlan


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
    lake = Lake(settings.lake)
    steps.begin(f"reading {len(plan.scrub.due):,} files again")
    scrubbed = execute_scrub(plan.scrub, plan.destination, lake, plan.image)
    root = manifests.objects(plan.destination).root
    there = sizes_below(root)
    new, written = [], []
    for number, file in enumerate(plan.copied, 1):
        steps.begin(f"copying file {number:,} of {len(plan.copied):,}")
        data = _read(file, lake)
        stored = Stored(file.table, file.name, len(data), f"{zlib.crc32(data):08x}")
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


def _read(file: ImageFile, lake: Lake) -> bytes:
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


def _manifest(plan: BackupPlan, lake: Lake, files: list[Stored]) -> Manifest:
    place = {(file.table, file.name): number for number, file in enumerate(plan.image.files)}
    tables = {
        name: TableState(plan.identities[name], head.version, head.record.digest)
        for name, head in plan.image.heads.items()
    }
    ordered = tuple(sorted(files, key=lambda file: place[file.key]))
    return Manifest(plan.number, log.now_ms(), str(lake.root), tables, ordered)
