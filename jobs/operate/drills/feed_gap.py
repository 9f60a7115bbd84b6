"""Drill: the change feed has a gap where a reader stands. Found, it is healed by a snapshot; it is never read over."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING

from strandline.jobs.operate.drills.rollback import midway, readable, rolled_back
from strandline.jobs.operate.drills.scenario import Recovery
from strandline.jobs.operate.verify.reach import reach
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.digest import Digest
from strandline.state_store.errors import VersionGone
from strandline.state_store.files import remove_file
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.memory import MemoryStore
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.jobs.operate.drills.ground import Ground
    from strandline.state_store.replicas.follow import Progress


def rehearse(ground: Ground) -> Recovery:
    """Let a replica follow to the middle of the feed, remove the next version, and let it go on.

    Raises:
        Unrehearsable: the view has fewer than three versions.
        CorruptState, VersionGone: the snapshot at the head does not read.
    """
    table = ground.table()
    start = reach(table)
    if start.fault is not None:
        raise VersionGone(start.fault.what, where=start.fault.where)
    # The head stays: without its record nobody could say what the rows must be.
    then = midway(readable(ground.path, start.version)[:-1]).version
    replica = Replica(ground.view, MemoryStore(), Layout(reader.schema(ground.path), None))
    Follower(_as_of(ground, then), replica, "drill").catch_up()
    # Without it the head could not be read either: the log would have no beginning.
    make_checkpoint(ground.path, table.version)
    remove_file(log.commit_file(ground.path, then + 1))
    restores: list[Progress] = []
    began = time.monotonic()
    at = Follower(ground.path, replica, "drill", restores.append).catch_up()
    seconds = time.monotonic() - began
    said, found = Digest.parse(table.record.digest), replica.digest()
    fault = "" if found == said else f"the replica has the digest {found}, the table's record says {said}"
    if not restores:
        fault = f"the replica came to version {at.version} without noticing that version {then + 1} is gone"
    return Recovery(seconds, found.count, f"version {then + 1} removed: found, and restored from a snapshot", fault)


def _as_of(ground: Ground, version: int) -> Path:
    """The view's table as it was at a version, in a folder of its own."""
    path = ground.folder / "before"
    shutil.copytree(ground.path, path)
    rolled_back(path, version)
    return path
