"""Drill: the lake is lost, and restored from a backup: the one that was named, or one made of the copy just before."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.jobs.operate.backup.execute import execute_backup
from strandline.jobs.operate.backup.plan import plan_backup
from strandline.jobs.operate.backup.restore import execute_restore, plan_restore
from strandline.jobs.operate.drills.scenario import Recovery, Unrehearsable
from strandline.jobs.operate.verify.findings import sized
from strandline.state_store.delta import log, reader
from strandline.state_store.digest import Digest
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.operate.drills.ground import Ground
    from strandline.state_store.paths import LakePath


def rehearse(ground: Ground) -> Recovery:
    """Restore into an empty folder; every table's rows are compared with the digest that was backed up.

    Raises:
        BackupBroken: a file is missing or broken, or rows are others.
        Unrehearsable: the backup is older than the view.
    """
    source = ground.backup or _made(ground)
    began = time.monotonic()
    plan = plan_restore(source, ground.folder / "restored")
    if ground.view not in plan.manifest.tables:
        raise Unrehearsable(sentence("the backup is older than '{}'", Name(ground.view)))
    done = execute_restore(plan)
    seconds = time.monotonic() - began
    restored = Lake(plan.target).table(ground.view)
    version, state = done.tables[ground.view], plan.manifest.tables[ground.view]
    rows, now = reader.read_rows(restored, version), reader.head(ground.path)
    assert now is not None, "the copy has what the lake had"
    lost = [commit.record for commit in log.read_history(ground.path, version, now.version)]
    return Recovery(
        seconds,
        rows.num_rows,
        f"backup {done.number} restored: {done.files} files, {sized(done.size)}, {len(done.tables)} tables",
        _fault(ground, version, Digest.parse(state.digest)),
        lost_versions=len(lost),
        lost_rows=sum(record.inserted + record.deleted for record in lost if record is not None),
    )


def _made(ground: Ground) -> LakePath:
    destination = ground.folder / "backup"
    execute_backup(ground.settings, plan_backup(ground.settings, destination))
    return destination


def _fault(ground: Ground, version: int, backed_up: Digest) -> str:
    """The backup is of the same commit that the lake has at that version, unless the lake has lost it since."""
    if version not in log.versions(ground.path):
        return ""
    said = Digest.parse(reader.record_at(ground.path, version).digest)
    return "" if said == backed_up else f"the backup has the digest {backed_up} at version {version}, the lake {said}"
