"""The checks of a table: its files and rows, its log, how far back its history is readable, and its changelog.

Files and rows: what the head names is there, as it was written, and adds up to the record.

The log: its commits are all there and whole, and its checkpoint says the same. It reaches back to version 0, or, once
its beginning was cleaned up, to a checkpoint that holds what was removed.

The reach, how far back a table's history is readable in full: its log, and the files that its commits name. The log and
the files of versions within the recovery horizon are kept, so a file that is gone sooner is a fault; one that was
cleaned up later only ends the history.

The changelog: the changes of the versions kept, applied in order, give the rows at the head. Rows are told apart by
their hashes, the lanes of the digest: 32 bytes a change, so that a feed much larger than the memory for its rows can be
folded. `state_store.changelog.fold` does the same for rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.jobs.operate.verify.findings import Outcome, counted, failed, passed, skipped
from strandline.state_store.changelog import META
from strandline.state_store.commits import COLUMNS, REBUILD, TRIM
from strandline.state_store.delta import heads, log, reader
from strandline.state_store.delta.checkpoint import live_actions
from strandline.state_store.delta.data_files import checksum, stated_checksum
from strandline.state_store.delta.deletion_vectors import deleted_rows, vector_file
from strandline.state_store.delta.rows import changes_of
from strandline.state_store.delta.snapshot import unproven_snapshot
from strandline.state_store.delta.statistics import row_count
from strandline.state_store.delta.trims import what_went
from strandline.state_store.digest import Digest
from strandline.state_store.errors import StoreError
from strandline.state_store.paths import any_file, file_size, within
from strandline.state_store.row_lanes import row_lanes
from strandline.state_store.tablespec import CHECKPOINT_INTERVAL, RECOVERY_HORIZON_DAYS, RECOVERY_HORIZON_MS, WEIGHT
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.operate.verify.subjects import Opened
    from strandline.state_store.delta.entry import Action
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


def check_files(table: Opened) -> Outcome:
    """Each data file has the size and the CRC-32 that its `add` action says.

    Raises:
        CorruptState: the log names a file outside the table.
    """
    files = {log.inside(table.path, name): body for name, body in table.snapshot.files.items()}
    faults = {file: fault for file, body in files.items() if (fault := _fault(file, body))}
    if faults:
        file, fault = next(iter(faults.items()))
        what = f"{len(faults)} of {counted(len(files), 'file')} " + ("is" if len(faults) == 1 else "are")
        return failed(sentence("{} not as written: '{}' {}", what, within(file, table.path), fault), file)
    untold = sum(stated_checksum(body) is None for body in files.values())
    if untold:
        return skipped(
            f"{untold} of {counted(len(files), 'file')} have no checksum in the log, as another tool or an earlier "
            "version wrote them; all are there, of the right size"
        )
    size = sum(int(body["size"]) for body in files.values())
    return passed(f"{counted(len(files), 'file')}, {counted(size, 'byte')}")


def check_vectors(table: Opened) -> Outcome:
    """Each deletion vector has its checksum, its size and its cardinality, and names rows that its file has."""
    vectors = [(name, body) for name, body in table.snapshot.files.items() if body.get("deletionVector")]
    for name, body in vectors:
        descriptor = body["deletionVector"]
        try:
            gone = deleted_rows(table.path, descriptor)
        except StoreError as error:
            return failed(sentence("{} (of '{}')", error.message, Name(name)), _place(table.path, descriptor))
        if gone and "stats" in body and gone.max() >= row_count(body):
            return failed(
                sentence("the vector of '{}' names a row that it does not have", Name(name)),
                _place(table.path, descriptor),
            )
    deleted = sum(int(body["deletionVector"]["cardinality"]) for _, body in vectors)
    return passed(f"{counted(len(vectors), 'vector')}, {counted(deleted, 'deleted row')}")


def _fault(file: LakePath, body: Mapping[str, Any]) -> str:
    """What is wrong with a data file; empty when nothing is."""
    try:
        size = file_size(file)
        if size != int(body["size"]):
            return f"has {size} bytes instead of {body['size']}"
        wanted = stated_checksum(body)
        return "fails its checksum" if wanted is not None and checksum(file) != wanted else ""
    except FileNotFoundError:
        return "is not there"
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _place(path: LakePath, descriptor: Mapping[str, Any]) -> LakePath:
    try:
        return vector_file(path, descriptor) or path
    except (ValueError, KeyError, TypeError):
        return path


# The checks of a table's rows: their digest and their number, counted from the files, are what the record says.


def check_digest(table: Opened, rows: Digest) -> Outcome:
    """The rows at the head have the digest of the record."""
    said = Digest.parse(table.record.digest)
    if (said.first, said.second) != (rows.first, rows.second):
        return failed(f"the rows of version {table.version} have the digest {rows}, the record says {said}")
    return passed(str(rows))


def check_row_count(table: Opened, rows: Digest) -> Outcome:
    """There are as many rows at the head as the record says."""
    if rows.count != table.record.rows:
        said = table.record.rows
        return failed(f"version {table.version} has {counted(rows.count, 'row')}, the record says {said}")
    return passed(counted(rows.count, "row"))


_FILE = ("size", "stats", "tags", "deletionVector")
_TABLE = ("id", "schemaString", "configuration", "partitionColumns")


def check_log(lake: LakeLayout, table: str) -> Outcome:
    """Every commit kept reads: its checksum, its record, its table; none is missing, none is another tool's that
    changed rows, unless the table was rebuilt since.

    Raises:
        CorruptState: a commit is broken, or none is ours.
        ForeignWrite: another tool changed rows.
        TableLost: it had commits, and has none any more.
        CommitsLost: another table was computed from a later version than its newest.
    """
    path = lake.table(table)
    kept = log.versions(path)
    newest = log.newest_version(path)
    if newest is None:
        heads.check_not_lost(lake, table)
        return _no_commit(path)
    first, last = (kept[0], max(newest, kept[-1])) if kept else (newest, newest)
    heads.check_whole(lake, table, last)
    missing = sorted(set(range(first, last + 1)) - set(kept))
    if missing:
        what = "1 commit is missing" if len(missing) == 1 else f"{len(missing)} commits are missing, the first"
        return failed(f"{what}: version {missing[0]}", log.commit_file(path, missing[0]))
    if oldest_base(path, last) is None:
        return failed(f"the commits before version {first} are gone, and no checkpoint holds what they said")
    reader.record_at(path, last)
    records = [commit.record for commit in log.read_history(path, first - 1, last)]
    table_id = unproven_snapshot(path, last).table_id
    for version, record in zip(kept, records, strict=True):
        if record is not None and record.table not in ("", table_id):
            what = f"version {version} is a commit of another table: '{record.table}' instead of '{table_id}'"
            return failed(what, log.commit_file(path, version))
    noted = heads.identity(lake, table)
    if noted not in (None, table_id):
        return failed(f"it is another table than the one that was made here: '{table_id}' instead of '{noted}'")
    return passed(f"versions {first} to {last}, {counted(len(kept), 'commit')}")


def check_sums(table: Opened) -> Outcome:
    """The rows that the log says the files have are those of the record: without a look at any file."""
    snapshot = table.snapshot
    if snapshot.record is None:
        return skipped("no record states what rows there are since another tool's last commit")
    if snapshot.difference:
        return failed(snapshot.difference)
    if not snapshot.vouched:
        return failed("the statistics of its files are others by the log than were committed: it is read without them")
    return passed(snapshot.sums.proof(snapshot.schema_json))


def check_checkpoint(table: Opened) -> Outcome:
    """The newest checkpoint reads, and says the same as the commits up to it."""
    path = table.path
    found = log.checkpoints(path, upto=table.version)
    if not found:
        due = table.version >= CHECKPOINT_INTERVAL
        return skipped("there is none, though one is due") if due else passed("none is due yet")
    newest = found[-1]
    file = log.checkpoint_file(path, newest)
    actions = live_actions(file)
    base = oldest_base(path, newest - 1)
    if actions is None:
        hint = "remove the file: what it says stands in the commits too" if base is not None else None
        return failed(f"the checkpoint of version {newest} does not read back", file, hint)
    if base is None:
        return skipped(f"that of version {newest} reads; the commits below it are gone, so nothing tells the same")
    before = [live_actions(log.checkpoint_file(path, base)) or []] if base >= 0 else []
    since = [log.read_actions(path, version) for version in range(base + 1, newest + 1)]
    said, kept = _facts([actions]), _facts([*before, *since])
    differing = sorted(name for name in said.keys() | kept.keys() if said.get(name) != kept.get(name))
    if differing:
        what = f"the checkpoint of version {newest} says otherwise than the commits: {differing[0]}"
        return failed(what, file, "remove the file: what it should say stands in the commits")
    return passed(f"that of version {newest} says what the commits say")


def oldest_base(path: LakePath, upto: int) -> int | None:
    """The oldest version that can be replayed from: −1 (nothing), or that of a checkpoint; None when there is none."""
    first = next(iter(log.versions(path)), 0)
    if first == 0:
        return -1
    bases = (version for version in log.checkpoints(path, upto) if version >= first - 1)
    return next((version for version in bases if live_actions(log.checkpoint_file(path, version)) is not None), None)


def _facts(steps: Iterable[Sequence[Action]]) -> dict[str, Any]:
    """What the log says after these lists of actions, fact by fact, in words that a message can use."""
    facts: dict[str, Any] = {}
    for actions in steps:
        for action in actions:
            if "remove" in action:
                facts.pop(f"file '{action['remove']['path']}'", None)
        for action in actions:
            match action:
                case {"add": body}:
                    known = {key: body[key] for key in _FILE if body.get(key) is not None}
                    facts[f"file '{body['path']}'"] = known
                case {"metaData": body}:
                    facts |= {f"the table's {key}": body.get(key) for key in _TABLE}
                case {"protocol": body}:
                    facts["the protocol"] = {key: value for key, value in body.items() if value}
                case {"txn": body}:
                    facts[f"transaction '{body['appId']}'"] = body.get("version")
    return facts


def _no_commit(path: LakePath) -> Outcome:
    if any_file(path, ".parquet"):
        return failed("there are files of rows, and no commit")
    return skipped("there is no table yet: its pipeline has not run")


@dataclass(frozen=True)
class Reach:
    """The version to begin a fold with, −1: nothing; or the fault that leaves the history too short."""

    version: int = -1
    fault: Outcome | None = None


def reach(table: Opened) -> Reach:
    """The oldest version from which on all is there.

    Raises:
        CorruptState: the log names a file outside the table.
    """
    base = oldest_base(table.path, table.version)
    if base is None:
        return Reach(fault=failed("the log reaches back to no version that is whole"))
    removed: dict[LakePath, int] = {}
    for version in range(table.version, base, -1):
        # A version's changes need the files that it removes, too.
        for file, at in _removals(table.path, version):
            removed.setdefault(file, at)
        commit = log.read_commit(table.path, version)
        # No version but its own needs a file that lists changes: nothing takes it out of the table, time does.
        removed |= {file.path: commit.timestamp for file in commit.change_files}
        gone = next((file for file in _changed(table.path, commit) if not file.exists()), None)
        if gone is not None and removed.get(gone, log.now_ms()) > log.now_ms() - RECOVERY_HORIZON_MS:
            what = f"a file that the changes of version {version} need is gone, within {RECOVERY_HORIZON_DAYS} days"
            return Reach(fault=failed(what, gone))
        if gone is not None:
            return Reach(version)
    return Reach(base)


def _changed(path: LakePath, commit: log.Commit) -> Iterator[LakePath]:
    """The files that the changes of a commit are read from."""
    if commit.change_files:
        yield from (file.path for file in commit.change_files)
        return
    for file in (*commit.added, *commit.removed):
        yield file.path
        yield from _vector(path, file.deletion_vector)


def _removals(path: LakePath, version: int) -> Iterator[tuple[LakePath, int]]:
    """The files that a commit takes out of the table, compaction too, and when (milliseconds since the epoch)."""
    for action in log.read_actions(path, version):
        if "remove" in action:
            body = action["remove"]
            at = int(body.get("deletionTimestamp", 0))
            yield log.inside(path, body["path"]), at
            yield from ((file, at) for file in _vector(path, body.get("deletionVector")))


def _vector(path: LakePath, descriptor: Mapping[str, Any] | None) -> Iterator[LakePath]:
    found = vector_file(path, descriptor) if descriptor is not None else None
    if found is not None:
        yield found


def check_feed(table: Opened, rows: Digest) -> Outcome:
    """The feed folds to the rows, and to the digest of each record that is over their columns; no row goes that never
    came.

    Raises:
        VersionGone, CorruptState: a file of the feed is gone or broken.
    """
    start = reach(table)
    if start.fault is not None:
        return start.fault
    visible = reader.schema_of(table.snapshot)
    fold = _Fold()
    if start.version >= 0:
        fold.take(start.version, changes_of(table.path, _whole(table, start.version), visible))
    comparable = _comparable(table)
    for version in range(start.version + 1, table.version + 1):
        commit = log.read_commit(table.path, version)
        trims = commit.record is not None and commit.record.mode == TRIM
        changes = what_went(table.path, version, visible) if trims else changes_of(table.path, commit, visible)
        fold.take(version, changes)
        record = commit.record if version >= comparable else None
        if record is not None and fold.digest != Digest.parse(record.digest):
            given = f"give the digest {fold.digest}, its record says {record.digest}"
            return failed(f"the changes up to version {version} {given}")
    negative = fold.first_negative()
    if negative is not None:
        return failed(f"version {negative} takes away a row that is not there")
    if fold.digest != rows:
        return failed(f"the feed folds to the digest {fold.digest}, the rows have {rows}")
    since = "version 0" if start.version < 0 else f"version {start.version}, the oldest that is readable in full"
    return passed(f"{counted(fold.changes, 'change')} since {since}")


@dataclass
class _Fold:
    """The changes taken in so far, as columns: both lanes, version and weight of each."""

    digest: Digest = field(default_factory=Digest)
    changes: int = 0
    _parts: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)

    def take(self, version: int, changes: pa.Table) -> None:
        visible = [name for name in changes.column_names if name not in META]
        for batch in changes.to_batches():
            first, second = row_lanes(batch.select(visible))
            weights = batch.column(WEIGHT).to_numpy()
            self._parts.append((first, second, np.full(len(weights), version), weights))
            self.changes += len(weights)
            for sign in (1, -1):
                chosen = weights == sign
                one, two = (sign * int(lane[chosen].sum(dtype=np.uint64)) for lane in (first, second))
                self.digest += Digest(one, two, sign * int(chosen.sum()))

    def first_negative(self) -> int | None:
        """The first version after which some row is there less than no times; None when there is none."""
        if not self._parts:
            return None
        first, second, versions, weights = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.lexsort((versions, second, first))
        first, second, versions, weights = first[order], second[order], versions[order], weights[order]
        new_row = np.concatenate(([True], (first[1:] != first[:-1]) | (second[1:] != second[:-1])))
        total = np.cumsum(weights)
        starts = np.flatnonzero(new_row)
        before = np.repeat((total - weights)[starts], np.diff(np.append(starts, len(total))))
        # Within a version the order does not count: a row may go from one file and come in another.
        ends = np.concatenate((new_row[1:] | (versions[1:] != versions[:-1]), [True]))
        bad = ends & (total - before < 0)
        return int(versions[bad].min()) if bad.any() else None


def _comparable(table: Opened) -> int:
    """The first version whose record is of rows as they are read today; −1: all are.

    Before a rebuild the records may say otherwise than the rows did, and before further columns the rows lacked them.
    """
    history = log.read_history(table.path, log.versions(table.path)[0] - 1, table.version)
    changed = (c.version for c in history if c.record is not None and c.record.mode in (REBUILD, COLUMNS))
    return max(changed, default=-1)


def _whole(table: Opened, version: int) -> log.Commit:
    """All rows of a version, as one commit that adds them."""
    files = unproven_snapshot(table.path, version).files
    added = tuple(log.DataFile(log.inside(table.path, name), b.get("deletionVector")) for name, b in files.items())
    return log.Commit(version, 0, "", None, added, removed=(), change_files=())
