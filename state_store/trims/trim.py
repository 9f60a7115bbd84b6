"""A trim: retention takes the oldest files out of an event log, as one commit that says what went.

    version 7   a b c d e f       digest A + B
    version 8       c d e f       digest B        mode `trim`, of what went: rows, bytes, offsets, time, digest A

Its removals are marked as no change of data, as those of a compaction are: nobody who reads the log's changes takes
them for deletions, so what was computed from the events keeps what it has counted. Whoever reads the log at a version
from here on finds the events that are left; the versions before are whole for as long as they are kept.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.state_store.commits import TRIM, Head, Trimmed
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import Files, enter, removal
from strandline.state_store.delta.log_upkeep import flush_log
from strandline.state_store.delta.staging import stated_checksum
from strandline.state_store.failpoints import failpoint
from strandline.state_store.hashing.digest import Digest

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.state_store.commits import CommitRecord
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath
    from strandline.state_store.trims.plan import TrimPlan


def trim(path: LakePath, head: Head, snapshot: Snapshot, plan: TrimPlan) -> Head:
    """Carry out a plan, which must have files, in one commit; the new head. The writer's lock must be held.

    Args:
        head, snapshot: of the version that the plan was made for.

    Raises:
        CommitConflict: another writer has committed since. Nothing was changed.
        VersionGone, CorruptState: a file that is to go does not read, so nobody could prove what went.
        DiskFailed: as of `commit`.
    """
    files = {each.name: snapshot.files[each.name] for each in plan.files}
    went = reader.digest_of_rows(path, replace(snapshot, files=files))
    failpoint("after-trim-digest")
    made = _record(head.record, plan, went).identified(snapshot.table_id)
    removed = [{"remove": {**removal(body), "dataChange": False}} for body in files.values()]
    flush_log(path)
    failpoint("before-log-entry")
    enter(path, head, [log.commit_info("TRIM", made), *removed], Files())
    return Head(head.version + 1, made)


def what_went(path: LakePath, version: int, visible: pa.Schema) -> pa.Table:
    """The rows that the trim of a version took, each with weight −1, as a changelog over these columns.

    Raises:
        VersionGone, CorruptState: a file of them is gone or broken.
    """
    from strandline.state_store.delta import feed

    bodies = [action["remove"] for action in log.read_actions(path, version) if "remove" in action]
    files = tuple(log.DataFile(log.inside(path, body["path"]), None, stated_checksum(body)) for body in bodies)
    return feed.changes_of(path, log.Commit(version, 0, "", None, (), files, ()), visible)


def _record(before: CommitRecord, plan: TrimPlan, went: Digest) -> CommitRecord:
    """The record of the trim: the epoch, offsets and stream times of the head, and what has gone so far."""
    so_far = before.trimmed or Trimmed(0, 0, {}, 0, "")
    trimmed = Trimmed(
        rows=so_far.rows + went.count,
        size=so_far.size + plan.size,
        begins={**so_far.begins, **{str(partition): offset for partition, offset in plan.begins.items()}},
        until=max(so_far.until, plan.until),
        digest=str(went),
    )
    return replace(
        before,
        mode=TRIM,
        reason=f"retention: {went.count} events of {len(plan.files)} files",
        inserted=0,
        deleted=0,
        digest=str(Digest.parse(before.digest) - went),
        trimmed=trimmed,
    )
