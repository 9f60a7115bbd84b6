"""The rehearsals of drills. Losses: a version of the feed, the lake, a table, all but the log, the tail of a topic.

Recoveries: back to a time, rows computed again that are not believed, a driver that was killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.offsets import committed_offsets, start_offsets
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import OffsetsVanished, RefreshFailed
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.ground import (
    DrillNotApplicable,
    Recovery,
    midway,
    readable,
    refreshed,
    rolled_back,
)
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.verify.findings import counted, sized
from strandline.jobs.operate.verify.inputs import check_offsets
from strandline.jobs.operate.verify.recompute import check_recompute, has_sql
from strandline.jobs.operate.verify.tables import check_digest, reach
from strandline.state_store import changelog
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import VersionGone
from strandline.state_store.files import discard_folder, remove_file
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import files_in
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pyarrow as pa

    from strandline.jobs.operate.recovery.ground import Ground
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.paths import LakePath
    from strandline.state_store.replicas.follow import RestoreProgress


# Drill: the table is taken back to what it was at a time, as a restore from yesterday does, and catches up.


def rehearse_point_in_time(ground: Ground) -> Recovery:
    """Take the view back, and refresh it from the vector that it had then.

    Raises:
        DrillNotApplicable: the view has but one version.
        Others: as `refreshed`; an input no longer has the changes since, or has them broken.
    """
    refreshed(ground.settings, ground.view, ground.catalog)
    expected = ground.rows()
    then = _taken_back(ground)
    began = time.monotonic()
    refreshed(ground.settings, ground.view, ground.catalog)
    fault = ground.differing(expected)
    what = f"taken back to version {then.version}, caught up from the vector in its record"
    return Recovery(time.monotonic() - began, expected.num_rows, what, fault)


def _taken_back(ground: Ground) -> Commit:
    """Take the view's table back to the middle of its readable history: the commit that is its head now.

    Raises:
        DrillNotApplicable: it has but one version.
        VersionGone: its history has a gap.
    """
    table = ground.table()
    start = reach(table)
    if start.fault is not None:
        raise VersionGone(start.fault.what, where=start.fault.where)
    commits = readable(ground.path, start.version)
    if any(each.record.gone for each in ground.tables()):
        # Before its first refresh it is a new view: it would be computed from the events that retention has left.
        commits = [each for each in commits if each.record is not None and each.record.vector]
    then = midway(commits)
    rolled_back(ground.path, then.version)
    return then


# Drill: the rows are not believed, and computed again from the event logs by none of the rules that maintain them.
#
# Every table between the view and its event logs is compared with its SQL over its own inputs, so by induction the
# view equals its SQL over the event logs.


def rehearse_recomputed(ground: Ground) -> Recovery:
    """Compute the view, and all that it reads, again.

    Raises:
        DrillNotApplicable: the view's SQL cannot be run again.
        CorruptState, VersionGone: an input does not read.
    """
    began = time.monotonic()
    checked = 0
    fault = unread = ""
    for table in ground.tables():
        outcome = check_digest(table, reader.digest_of_rows(table.path, table.snapshot))
        if outcome.ok and has_sql(table.subject, ground.catalog):
            outcome = check_recompute(table, ground.catalog, ground.lake, ground.library)
            checked += 1
        if outcome.ok is None and table.subject.table == ground.view:
            unread = outcome.what
        if outcome.ok is False:
            fault = fault or sentence("'{}': {}", Name(table.subject.table), outcome.what)
    if unread and not fault:
        raise DrillNotApplicable(unread)
    rows = ground.table().record.rows
    return Recovery(time.monotonic() - began, rows, f"{counted(checked, 'table')} computed again by its SQL", fault)


# Drill: the driver is killed in the middle of an epoch: a child process, by SIGKILL, with its files written and the
# log entry not. Another one is started, and must come to the same rows.

_FAILPOINT: Final = "before-log-entry"
"""All files of the epoch are flushed, and no commit names them: the most that a kill can leave behind."""

_PATIENCE: Final = 300.0
"""Seconds after which a child is taken to hang."""

_SAID: Final = 300
"""Characters of a child's last words: an error with its hint."""


def rehearse_killed_driver(ground: Ground) -> Recovery:
    """Take the view back to a version, kill the process that brings it forward, start another.

    Raises:
        DrillNotApplicable: the view has but one version.
        RefreshFailed: the first process was not killed, or the second one failed.
        Others: as `refreshed`.
    """
    refreshed(ground.settings, ground.view, ground.catalog)
    expected = ground.rows()
    then = _taken_back(ground).version
    killed = _child(ground, f"{_FAILPOINT}:1")
    if killed.returncode != -signal.SIGKILL:
        raise RefreshFailed(f"the driver was not killed, but ended: {_last_words(killed)}", where=ground.view)
    half = log.newest_version(ground.path)
    began = time.monotonic()
    again = _child(ground, "")
    seconds = time.monotonic() - began
    if again.returncode != 0:
        raise RefreshFailed(f"the second driver failed: {_last_words(again)}", where=ground.view)
    fault = ground.differing(expected)
    if half != then:
        fault = f"the killed epoch left version {half}, where {then} was the head"
    return Recovery(seconds, expected.num_rows, f"killed in the epoch after version {then}, started again", fault)


def _last_words(child: subprocess.CompletedProcess[str]) -> str:
    return child.stderr.strip()[-_SAID:] or f"exit code {child.returncode}"


def _child(ground: Ground, failpoint: str) -> subprocess.CompletedProcess[str]:
    settings = ground.settings
    environment = {
        **os.environ,
        "STRANDLINE_LAKE": str(settings.lake),
        "STRANDLINE_FUNCTIONS__MODULES": json.dumps(settings.functions.modules),
        "STRANDLINE_KERNEL_MEMORY_MB": str(settings.kernel_memory_mb),
        "STRANDLINE_FAILPOINT": failpoint,
    }
    command = [sys.executable, "-m", "strandline.jobs.operate.recovery.ground", ground.view]
    try:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired as error:
        raise RefreshFailed(f"a driver did not end within {_PATIENCE:g} s", where=ground.view) from error


# Drill: the change feed has a gap where a reader stands. Found, it is healed by a snapshot; it is never read over.


def rehearse_feed_gap(ground: Ground) -> Recovery:
    """Let a replica follow to the middle of the feed, remove the next version, and let it go on.

    Raises:
        DrillNotApplicable: the view has fewer than three versions.
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
    restores: list[RestoreProgress] = []
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


# Drill: the lake is lost, and restored from a backup: the one that was named, or one made of the copy just before.


def rehearse_from_backup(ground: Ground) -> Recovery:
    """Restore into an empty folder; every table's rows are compared with the digest that was backed up.

    Raises:
        BackupBroken: a file is missing or broken, or rows are others.
        DrillNotApplicable: the backup is older than the view.
    """
    source = ground.backup or _made(ground)
    began = time.monotonic()
    plan = plan_restore(source, ground.folder / "restored")
    if ground.view not in plan.manifest.tables:
        raise DrillNotApplicable(sentence("the backup is older than '{}'", Name(ground.view)))
    done = execute_restore(plan)
    seconds = time.monotonic() - began
    restored = LakeLayout(plan.target).table(ground.view)
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


# Drill: the table is lost, and rebuilt from its changelog alone, to its head and to what it was at a time.


def rehearse_from_changelog(ground: Ground) -> Recovery:
    """Fold the feed from the oldest version that is readable in full.

    Raises:
        VersionGone: a file that the feed needs is gone, or a version is.
        NegativeWeight, CorruptState: the feed is broken.
    """
    table = ground.table()
    began = time.monotonic()
    start = reach(table)
    if start.fault is not None:
        raise VersionGone(start.fault.what, where=start.fault.where)
    commits = readable(ground.path, start.version)
    # The rows of a version before the view was replaced have not all columns of today.
    base = -1 if start.version < 0 else commits[0].version
    rows = rebuilt(ground.path, base, table.version)
    fault = _difference(ground.path, table.version, rows)
    seconds = time.monotonic() - began
    then = midway(commits).version if len(commits) > 1 else table.version
    fault = fault or _difference(ground.path, then, rebuilt(ground.path, base, then))
    played = f"versions {max(base, 0)} to {table.version} played, and those up to the time of version {then}"
    return Recovery(seconds, rows.num_rows, played, fault)


def rebuilt(path: Path, base: int, upto: int) -> pa.Table:
    """The rows of a version: those of `base` (−1: none), and the changes since."""
    import pyarrow as pa

    changes = reader.read_changes(path, base if base >= 0 else None, upto)
    if base < 0:
        return changelog.fold(changes)
    rows = reader.read_rows(path, base)
    meta = {VERSION: base, TIMESTAMP: None, WEIGHT: 1}
    for name, value in meta.items():
        field = changes.schema.field(name)
        rows = rows.append_column(field, pa.repeat(pa.scalar(value, field.type), rows.num_rows))
    return changelog.fold(pa.concat_tables([rows.select(changes.column_names), changes]))


def _difference(path: Path, version: int, rows: pa.Table) -> str:
    said = Digest.parse(reader.record_at(path, version).digest)
    found = digest_of_table(rows.to_batches())
    return "" if found == said else f"the feed folds to the digest {found} at version {version}, its record says {said}"


# Drill: all that is not the log is lost: the stream's checkpoint, Delta's checkpoints, and the replica's folder.


def rehearse_local_state(ground: Ground) -> Recovery:
    """Follow the view with a replica, lose its folder and every checkpoint, and come back.

    Raises: as `refreshed` and `Follower.catch_up`.
    """
    folder = ground.folder / "replica"
    _replicated(ground, folder)
    shutil.rmtree(folder)
    for pipeline in ground.catalog.pipelines():
        discard_folder(ground.lake.checkpoint(pipeline))
    for table in ground.tables():
        _without_checkpoints(table.path)
    began = time.monotonic()
    refreshed(ground.settings, ground.view, ground.catalog)
    found = _replicated(ground, folder)
    seconds = time.monotonic() - began
    said = Digest.parse(ground.table().record.digest)
    fault = "" if found == said else f"the replica has the digest {found}, the table's record says {said}"
    return Recovery(seconds, found.count, "checkpoints and replica lost: replica restored from the table", fault)


def _replicated(ground: Ground, folder: Path) -> Digest:
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


# Drill: the topic is shorter than the event log: retention, or a broker that came back without its tail.
#
# The event log must hold all that the topic held, the view must follow from it alone, and the next run must refuse to
# read other records at offsets that were read already.


def rehearse_short_topic(ground: Ground) -> Recovery:
    """Remove every segment of the view's topics, and prove the view from the event logs.

    Raises:
        DrillNotApplicable: the topics are a broker's, or hold nothing.
        Others: as `recomputed.rehearse_recomputed`.
    """
    if ground.settings.kafka.bootstrap_servers:
        raise DrillNotApplicable("its topics are a broker's, which a drill does not copy")
    fault = _held(ground)
    sources = [each for each in _sources(ground) if any(committed_offsets(each, ground.lake).values())]
    if not sources:
        raise DrillNotApplicable("nothing was read from a topic yet")
    for source in sources:
        for segment in files_in(ground.lake.topic(source.topic), ".log"):
            remove_file(segment)
    began = time.monotonic()
    fault = fault or _noticed(ground, sources)
    proof = rehearse_recomputed(ground)
    topics = ", ".join(sorted({source.topic for source in sources}))
    what = f"all records of {topics} removed: noticed, and the view proved from the event logs"
    return Recovery(time.monotonic() - began, proof.rows, what, fault or proof.fault)


def _sources(ground: Ground) -> list[Source]:
    """The sources whose topics are files of the lake: the table of another is not to be damaged, nor copied."""
    names = {table.subject.owner for table in ground.tables()}
    found = (each for each in ground.catalog.definitions() if isinstance(each, Source) and each.name in names)
    return [each for each in found if not each.foreign]


def _held(ground: Ground) -> str:
    """What is missing in the event logs of the records that were read; empty when nothing is."""
    topics = LocalLog(ground.lake)
    for table in ground.tables():
        definition = table.subject.definition
        if table.subject.role == "event log" and isinstance(definition, Source) and not definition.foreign:
            outcome = check_offsets(table, definition, ground.lake, topics, dense=True)
            if outcome.ok is False:
                return sentence("'{}': {}", Name(table.subject.table), outcome.what)
    return ""


def _noticed(ground: Ground, sources: Sequence[Source]) -> str:
    """Empty when a run would refuse to start."""
    committed = {source.name: committed_offsets(source, ground.lake) for source in sources}
    try:
        start_offsets(sources, committed, LocalLog(ground.lake))
    except OffsetsVanished:
        return ""
    return "a run would go on, though the topic ends before the records that were read"
