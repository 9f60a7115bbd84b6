"""Commit a version of a table: the one way for all engines, for creating a table, and for adding columns.

    files of new rows ──────────────┐
    {file: positions that go} ──────┼─> flush ─> deletion vectors ─> one log entry, put if absent ─> checkpoint at times
    record (vector, digest, …) ─────┘

The entry is the commit: until its file has its name nothing of the epoch is seen, and afterwards all of it. Data,
vectors, their folders and the versions before are flushed to disk before, the entry and its folder with it: a commit
that was reported survives a power cut, and no version stands on one that does not.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from strandline.state_store.commits import COLUMNS, CommitRecord, Head, Marks, Statement, TableVersion, table_mark
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.checkpoint import as_rows, removed_actions, write_checkpoint
from strandline.state_store.delta.deletion_vectors import deleted_rows, write_vectors
from strandline.state_store.delta.entry import encode, rebuild_hint
from strandline.state_store.delta.log import commit_file, commit_info, now_ms, write_commit
from strandline.state_store.delta.snapshot import moved_on, read_snapshot
from strandline.state_store.delta.statistics import ROWS_TAG, loosened, row_count, rows_tag, tagged_digest
from strandline.state_store.errors import CommitConflict, CorruptState, DiskFailed, StoreError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import Remembered, make_folder, remove_file, sync_folder
from strandline.state_store.layout import table_at
from strandline.state_store.tablespec import CHECKPOINT_INTERVAL, RECOVERY_HORIZON_MS, widened
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyroaring import BitMap64

    from strandline.state_store.delta.data_files import Staged, StagedParts
    from strandline.state_store.delta.entry import Action
    from strandline.state_store.delta.snapshot import Snapshot, Snapshots
    from strandline.state_store.digest import Digest
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class RowChanges:
    """The rows that a commit changes.

    Attributes:
        staged: files of new rows below the table, which no commit names yet.
        retracted: {data file, relative to the table: positions of rows that go}.
        taken: {data file: the digest of these rows}; of a file that is not named it is not known any more.
        instead: all rows before go, and the table has other columns; nothing is `retracted` then.
    """

    staged: Staged | StagedParts | None = None
    retracted: Mapping[str, BitMap64] = field(default_factory=dict)
    taken: Mapping[str, Digest] = field(default_factory=dict)
    instead: Instead | None = None


@dataclass(frozen=True)
class Instead:
    """Replacement of all rows by the staged ones, in columns of their own.

    Attributes:
        schema_json: the new columns, as Delta's `schemaString`.
        changes: files that list the difference to the rows before: it, and nothing else, is the commit's change feed.
            At least one, if only an empty one.
    """

    schema_json: str
    changes: Staged


@dataclass(frozen=True)
class Merged:
    """Files that hold the same rows as others.

    Attributes:
        replaced: the others, as the log calls them.
        deleted: {new file, relative to the table: rows of it that the others no longer have}.
    """

    staged: Staged
    replaced: Sequence[str]
    deleted: Mapping[str, BitMap64] = field(default_factory=dict)


def commit(
    path: LakePath, head: Head, record: CommitRecord, rows: RowChanges, snapshots: Snapshots | None = None
) -> Head:
    """Commit the version after `head`: some rows come, some go, and `record` says what the table reflects now.

    Args:
        snapshots: those that the process keeps; without them the table is opened anew when rows go.

    Returns:
        the new head, its record with the identity of the table and of this commit.

    Raises:
        CommitConflict: another writer made that version. Nothing of this one is left.
        CorruptState: a row that goes is not there, the log is broken, or the rows are not those of `record.digest`.
        DiskFailed: the disk is full or broken. If it failed at the very last flush, the version stands.
    """
    version, after = head.version + 1, None
    with Files(rows.staged, rows.instead.changes if rows.instead else None) as files:
        opened = read_snapshot if snapshots is None else snapshots.at
        needed = rows.retracted or rows.instead is not None or not head.record.table or head.stated is None
        before = opened(path, head.version) if needed else None
        made = record.identified(before.table_id if before else head.record.table)
        actions = [log.commit_info("WRITE", made), transaction(path, made)]
        if rows.staged is not None:
            actions += rows.staged.flushed()
            failpoint("after-data-flush")
        if before is not None and rows.retracted:
            actions += _retracted(path, before, rows, files)
            failpoint("after-vectors")
        if before is not None and rows.instead is not None:
            actions += _replaced(before, rows.instead)
        if rows.staged is not None or files.vectors is not None:
            sync_folder(path)
        if before is not None:
            # By the log it would have the rows that its record states.
            after = moved_on(path, before, [actions])
            stated = after.statement
        else:
            assert head.stated is not None
            stated = head.stated.after(actions)
        actions = log.with_statement(actions, stated)
        flush_log(path, head.at)
        failpoint("before-log-entry")
    data = enter(path, head, actions, made, files)
    if after is not None and snapshots is not None:
        snapshots.note(path, replace(after, record=made, stated=stated), data)
    return Head(version, made, stated)


def commit_merged(path: LakePath, head: Head, before: Snapshot, record: CommitRecord, merged: Merged) -> Head:
    """Commit the same rows in other files: no reader of changes sees it.

    It makes no epoch, so it leaves the transaction of the last one as it is.

    Args:
        before: the snapshot of `head`.

    Raises:
        CommitConflict: another writer made that version. Nothing of this one is left.
        DiskFailed: as of `commit`.
    """
    with Files(merged.staged) as files:
        made = record.identified(before.table_id)
        added = [{"add": {**body, "dataChange": False}} for body in _added(path, merged, files)]
        removed = [{"remove": {**removal(before.files[name]), "dataChange": False}} for name in merged.replaced]
        actions, stated = _stating(path, before, [log.commit_info("OPTIMIZE", made), *added, *removed])
        sync_folder(path)
        flush_log(path, head.at)
        failpoint("before-log-entry")
    enter(path, head, actions, made, files)
    return Head(head.version + 1, made, stated)


def _added(path: LakePath, merged: Merged, files: Files) -> Iterator[Mapping[str, Any]]:
    """What adds the new files, without the rows of them that went; not those that are left without rows."""
    bodies = {unquote(action["add"]["path"]): action["add"] for action in merged.staged.flushed()}
    vectors = {name: gone for name, gone in merged.deleted.items() if len(gone) < row_count(bodies[name])}
    written = write_vectors(path, vectors) if vectors else None
    files.vectors = written.path if written else None
    for name, body in bodies.items():
        if written is not None and name in vectors:
            yield {**body, "deletionVector": written.descriptors[name], "stats": loosened(body["stats"])}
        elif name not in merged.deleted:
            yield body


def commit_without_files(path: LakePath, head: Head, before: Snapshot, actions: Sequence[Action]) -> Head:
    """Commit what needs no new file: columns that come, files that go. `commit_info` is the first of the actions.

    Raises:
        CommitConflict: another writer made that version.
        CorruptState: the rows would not be those of the record.
        DiskFailed: as of `commit`.
    """
    actions, stated = _stating(path, before, actions)
    flush_log(path, head.at)
    failpoint("before-log-entry")
    record = CommitRecord.from_json(actions[0]["commitInfo"]["userMetadata"])
    assert record is not None
    enter(path, head, actions, record, Files())
    return Head(head.version + 1, record, stated)


def _stating(path: LakePath, before: Snapshot, actions: Sequence[Action]) -> tuple[list[Action], Statement]:
    """The actions with what the table is after them."""
    stated = moved_on(path, before, [actions]).statement
    return log.with_statement(actions, stated), stated


def enter(path: LakePath, head: Head, actions: Sequence[Action], record: CommitRecord, files: Files) -> bytes:
    """Write the entry; its bytes. A failure leaves the files alone if it may name them; then clean-up finds out."""
    version, data = head.version + 1, encode(actions)
    try:
        first = log.write_entry(path, version, data)
    except DiskFailed:
        if not log.commit_file(path, version).exists():
            files.discard()
        raise
    if not first:
        files.discard()
        raise conflict(path, head.version)
    failpoint("after-log-entry")
    log.note_entry(path, version, data, actions, record)
    _FLUSHED.note(path, TableVersion(version, record.table, record.nonce))
    if version % CHECKPOINT_INTERVAL == 0:
        make_checkpoint(path, version)
    return data


class Files:
    """Files of a commit that nothing names yet; remove them when the commit fails."""

    def __init__(self, *staged: Staged | StagedParts | None) -> None:
        self._staged = [each for each in staged if each is not None]
        self.vectors: LakePath | None = None

    def __enter__(self) -> Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()

    def discard(self) -> None:
        for each in self._staged:
            each.discard()
        if self.vectors is not None:
            remove_file(self.vectors)


def transaction(path: LakePath, record: CommitRecord) -> Action:
    """Delta's own guard against a commit made twice, for tools that look at it."""
    return {"txn": {"appId": f"strandline/{path.name}", "version": record.epoch, "lastUpdated": log.now_ms()}}


def _retracted(path: LakePath, before: Snapshot, rows: RowChanges, files: Files) -> list[Action]:
    """The actions that take rows away; a file that is left without rows goes whole."""
    live = {unquote(name): body for name, body in before.files.items()}
    vectors: dict[str, BitMap64] = {}
    actions: list[Action] = []
    for name, positions in rows.retracted.items():
        body = live.get(name)
        if body is None and (path / name).exists():
            # Its rows stand in another file since they were read: compaction, or an epoch that is not in the plan.
            raise conflict(path, before.version)
        if body is None:
            raise _not_there(path, sentence("no file '{}' belongs to it", name))
        gone = _merged(path, body, positions)
        actions.append({"remove": removal(body)})
        if len(gone) < row_count(body):
            vectors[name] = gone
    if not vectors:
        return actions
    written = write_vectors(path, vectors)
    files.vectors = written.path
    for name, descriptor in written.descriptors.items():
        kept = {**live[name], "dataChange": True, "modificationTime": log.now_ms(), "deletionVector": descriptor}
        tags = _tags_without(live[name], rows.taken.get(name), before.schema_json)
        actions.append({"add": {**kept, "stats": loosened(live[name]["stats"]), "tags": tags}})
    return actions


def _tags_without(body: Mapping[str, Any], taken: Digest | None, schema_json: str) -> dict[str, str]:
    """The tags of a file without the rows that go. What is not known of its rows any more is not said."""
    others = {name: text for name, text in (body.get("tags") or {}).items() if name != ROWS_TAG}
    known = tagged_digest(body, schema_json)
    if known is None or taken is None:
        return others
    return {**others, ROWS_TAG: rows_tag(known - taken, schema_json)}


def _replaced(before: Snapshot, instead: Instead) -> list[Action]:
    """The actions by which all rows go, and the table, which stays the same one, has other columns."""
    # Without a file that lists changes the feed would be all rows that go and all that come.
    changes = [action["add"] for action in instead.changes.flushed(also_empty=True)]
    listed = ("path", "partitionValues", "size", "tags")
    return [
        {"metaData": {**before.metadata, "schemaString": instead.schema_json}},
        *({"remove": removal(body)} for body in before.files.values()),
        *({"cdc": {**{name: body[name] for name in listed}, "dataChange": False}} for body in changes),
    ]


def _merged(path: LakePath, body: Mapping[str, Any], positions: BitMap64) -> BitMap64:
    """The positions gone from a file after this commit."""
    if not positions or positions.max() >= row_count(body):
        raise _not_there(path, sentence("'{}' has no such rows", body["path"]))
    if body.get("deletionVector") is None:
        return positions
    before = deleted_rows(path, body["deletionVector"])
    if not before.isdisjoint(positions):
        raise _not_there(path, sentence("rows of '{}' were deleted before", body["path"]))
    return before | positions


def removal(body: Mapping[str, Any]) -> dict[str, Any]:
    """The action that takes a file out of the table, by the one that added it."""
    kept = {name: body[name] for name in ("path", "partitionValues", "size", "deletionVector", "tags") if name in body}
    return {**kept, "deletionTimestamp": log.now_ms(), "dataChange": True, "extendedFileMetadata": True}


def _not_there(path: LakePath, why: str) -> CorruptState:
    return CorruptState(
        sentence("rows of '{}' that go are not there: {}", table_at(path), why),
        where=str(path),
        hint=rebuild_hint(path.name),
    )


def conflict(path: LakePath, version: int) -> CommitConflict:
    """The error of a writer that was not the first to commit after a version, or that planned from one before it."""
    return CommitConflict(
        sentence("another writer has committed to '{}' since version {}", table_at(path), version),
        where=str(path),
        hint="run the refresh again; two pipelines must not write one table",
    )


# Commits that state the columns of a table: version 0 creates it, a later one adds columns.
#
#     version 0   a, b             no rows
#     version 7   a, b             files without c
#     version 8   a, b, c          the same files: c is NULL in their rows    mode `columns`, no change for readers
#     version 9   a, b, c          one more file, with c
#
# Delta has a column that a file lacks read as NULL. The digest of the same rows is another one with it, so they are
# read once.


def create_table(path: LakePath, schema_json: str, properties: Mapping[str, str], record: CommitRecord) -> bool:
    """Write version 0: the schema and no rows. Atomic; False when the table exists.

    It is not left to a Delta library: Spark takes seconds for it, and delta-rs requires every reader to know the
    VARIANT type as soon as deletion vectors are on.

    Args:
        schema_json: the schema in Delta's (and Spark's) JSON form.
        record: its `table` is the identity of the table.
    """
    vectors = properties.get("delta.enableDeletionVectors") == "true"
    protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 4}
    if vectors:
        features = ["appendOnly", "changeDataFeed", "deletionVectors", "invariants"]
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": ["deletionVectors"], "writerFeatures": features}
    metadata = {
        "id": record.table,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": schema_json,
        "partitionColumns": [],
        "configuration": dict(properties),
        "createdTime": now_ms(),
    }
    make_folder(commit_file(path, 0).parent)
    failpoint("after-table-folder")
    actions = [commit_info("CREATE TABLE", record), {"protocol": protocol}, {"metaData": metadata}]
    return write_commit(path, 0, log.with_statement(actions, Statement(0, Marks(), table_mark(metadata))))


def new_table_id() -> str:
    """A new random identity of a table."""
    return str(uuid.uuid4())


def digest_with(path: LakePath, head: Head, schema_json: str) -> Digest:
    """The digest of the rows as they are read with all of these columns.

    Args:
        schema_json: all columns that the table is to have, as Delta's `schemaString`; those that it has are among them.

    Raises:
        CorruptState: the table has a column that it would lose, or have in another type; or its rows do not read.
        VersionGone: a data file is gone.
    """
    before = read_snapshot(path, head.version)
    return reader.digest_of_rows(path, replace(before, metadata=_wider(before, schema_json)))


def widen(path: LakePath, head: Head, schema_json: str, record: CommitRecord) -> Head:
    """Make the version after `head`, in which the table has further columns; its new head.

    Args:
        schema_json: as of `digest_with`.
        record: of the commit, with the digest that the rows have by then; its mode and counts are filled in here.

    Raises:
        CommitConflict: another writer made that version.
        CorruptState: as of `digest_with`, but for the rows.
        DiskFailed: as of `commit`.
    """
    before = read_snapshot(path, head.version)
    wider = _wider(before, schema_json)
    made = replace(record, mode=COLUMNS, inserted=0, deleted=0).identified(before.table_id)
    actions = [commit_info("ADD COLUMNS", made), transaction(path, made), {"metaData": wider}]
    return commit_without_files(path, head, before, actions)


def _wider(before: Snapshot, schema_json: str) -> dict[str, Any]:
    return {**before.metadata, "schemaString": widened(before.metadata["schemaString"], schema_json)}


# Upkeep of the log: flush its names before more is built on them, and write checkpoints, so that opening stays cheap.

_log = logging.getLogger("strandline.store")


_FLUSHED: Final = Remembered[TableVersion]()
"""The last version of a table that this process made, or flushed."""


def flush_log(path: LakePath, at: TableVersion | None = None) -> None:
    """Flush the names in the log of a table: the versions that were seen in it survive a power cut.

    Args:
        at: the one that is built on, where it is known by its nonce: one that this process has made is flushed.

    A writer that was killed, or is not done yet, may have given a version its name without flushing it. So what builds
    on a version flushes it first: the next version of the table, and a commit that names it in its vector.
    """
    if at is None or not at.nonce or _FLUSHED.find(path) != at:
        sync_folder(log.log_folder(path))
        if at is not None:
            _FLUSHED.note(path, at)


def make_checkpoint(path: LakePath, version: int) -> None:
    """Write the checkpoint of `version`. A failure only makes the next start slower: the commits are still there."""
    failpoint("before-checkpoint")
    try:
        live = read_snapshot(path, version).actions
        hint = log.hint_file(path)
        write_checkpoint(log.checkpoint_file(path, version), hint, version, live, _removed(path, version))
    except (OSError, StoreError, pa.ArrowException) as error:
        _log.warning("no checkpoint of '%s' at version %d: %s", path.name, version, error)
    failpoint("after-checkpoint")


def _removed(path: LakePath, version: int) -> pa.Table:
    """The removals within the recovery horizon: those of the checkpoint before, and of the commits since."""
    before = next(log.checkpoints_before(path, version - 1), -1)
    since = [action for actions in log.read_entries(path, before, version) for action in actions]
    kept = removed_actions(log.checkpoint_file(path, before), log.now_ms() - RECOVERY_HORIZON_MS)
    return pa.concat_tables([kept, as_rows(_telling([action for action in since if "remove" in action]))])


def _telling(removals: Sequence[Action]) -> list[Action]:
    """The removals, the newest first, that name a file which no other one names.

    They stand there to keep the files from another tool's vacuum. An epoch removes each file that it takes rows from,
    to add it again with another vector; all of these vectors lie in one file.
    """
    named: set[str] = set()
    kept: list[Action] = []
    for action in reversed(removals):
        body = action["remove"]
        vector = body.get("deletionVector") or {}
        files = {body["path"], f"{vector.get('storageType')} {vector.get('pathOrInlineDv')}"}
        if not files <= named:
            named |= files
            kept.append(action)
    return kept
