"""Drill: all that is not the log is lost: the stream's checkpoint, Delta's checkpoints, and the replica's folder."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from strandline.jobs.operate.drills.refreshed import refreshed
from strandline.jobs.operate.drills.scenario import Recovery
from strandline.state_store.delta import log, reader
from strandline.state_store.digest import Digest
from strandline.state_store.files import discard_folder, remove_file
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.state import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.jobs.operate.drills.ground import Ground
    from strandline.state_store.paths import LakePath


def rehearse(ground: Ground) -> Recovery:
    """Follow the view with a replica, lose its folder and every checkpoint, and come back.

    Raises: as `refreshed` and `Follower.catch_up`.
    """
    folder = ground.folder / "replica"
    replicated(ground, folder)
    shutil.rmtree(folder)
    for pipeline in ground.catalog.pipelines():
        discard_folder(ground.lake.checkpoint(pipeline))
    for table in ground.tables():
        _without_checkpoints(table.path)
    began = time.monotonic()
    refreshed(ground.settings, ground.view, ground.catalog)
    found = replicated(ground, folder)
    seconds = time.monotonic() - began
    said = Digest.parse(ground.table().record.digest)
    fault = "" if found == said else f"the replica has the digest {found}, the table's record says {said}"
    return Recovery(seconds, found.count, "checkpoints and replica lost: replica restored from the table", fault)


def replicated(ground: Ground, folder: Path) -> Digest:
    """The digest of a replica of the view in a folder, at the table's head, read back from the replica."""
    store = RocksStore(folder)
    try:
        # Without a unique key: all visible columns are the key, which fits every view.
        replica = Replica(ground.view, store, Layout(reader.schema(ground.path), None))
        follower = Follower(ground.path, replica, "drill")
        follower.catch_up()
        found = replica.digest()
        follower.leave()
        return found
    finally:
        store.close()


def _without_checkpoints(path: LakePath) -> None:
    """Remove the checkpoints of a table whose log reaches back to its beginning."""
    if log.versions(path)[:1] != [0]:
        return
    for version in log.checkpoints(path, upto=log.newest_version(path) or 0):
        remove_file(log.checkpoint_file(path, version))
    remove_file(log.hint_file(path))
