"""Compaction: write the live rows of many files into few, as one commit that changes no row.

    plan ──> for each merge: files ──row groups, without deleted rows──> sorted by key ──> one staged file ──┐
                    rows that went meanwhile: a vector of it; entry: adds and removes, `dataChange` false <──┘

The commit carries the head's record on, with the mode `compact` and a nonce of its own, in the same epoch: vector,
offsets and digest are what they were. A reader of changes finds nothing in it, a vector that names a version before it
stays true. An epoch that was planned before it, with positions in a file that it replaced, is refused
(`commit.commit`): a file that left a table never comes back under its name.

The new files may be written while epochs go on: where each row stood is kept until the commit, so that the rows which
these epochs deleted are deleted in the new files too (`delta.merging`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pyroaring import BitMap64

from strandline.state_store.delta import log
from strandline.state_store.delta.commit import Merged, commit_merged, conflict
from strandline.state_store.delta.data_files import data_of, stage_files, stated_checksum
from strandline.state_store.delta.deletion_vectors import deleted_positions, deleted_rows
from strandline.state_store.delta.rows import without
from strandline.state_store.delta.statistics import row_count, tagged_digest
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint
from strandline.state_store.layout import table_at
from strandline.state_store.paths import within
from strandline.state_store.tablespec import STATE, arrow_schema
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from strandline.state_store.commits import Head
    from strandline.state_store.delta.data_files import Staged
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath
    from strandline.state_store.tablespec import TableSpec


# The plan is data, to be printed: which files become which new one, and why.
#
# Files stand on levels by their live rows, as in a log-structured merge tree of tiers:
#
#     level 0: 1–7 rows    level 1: 8–63    level 2: 64–511    …    a full file: no level, never merged
#
# When a level holds `FANOUT` files, they and all smaller ones become one file, which stands at least one level
# higher. So a row is written again at most once a level, O(log n) times; a level keeps fewer than `FANOUT` files
# between two compactions; and a few small files never make a big one be written again.

FANOUT: Final = 8
"""Ten million rows are eight levels: each row is written up to eight times more, and some thirty files are kept on
average. 16 writes a fifth less and keeps twice as many files, each of which a read of the table must open."""

FULL_BYTES: Final = 64 << 20
"""Parquet bytes from which a file is not merged any more: read in a fraction of a second, and skipped by its bounds
when it has none of the keys that are asked for. Also the most that one merge reads, since it sorts in memory."""

PLAN_BYTES: Final = 4 * FULL_BYTES
"""The most that one compaction reads: the writer waits for it, some seconds at this size. The rest comes next time."""

REWRITE_SHARE: Final = 0.5
"""The part of deleted rows from which a file is written again alone: at a half, a deleted row pays for a live one."""

REWRITE_ROWS: Final = 10_000
"""A smaller file is not written again alone: reading its deleted rows costs less than the flushes of a commit."""


@dataclass(frozen=True)
class Merge:
    """One new file, with the live rows of some others.

    Attributes:
        files: the others, as the log calls them, in the order of the log.
        rows: their live rows.
        size: their bytes of Parquet.
    """

    files: tuple[str, ...]
    rows: int
    size: int
    reason: str

    def __str__(self) -> str:
        return f"{len(self.files)} files, {self.rows:,} rows, {self.size / 1e6:.1f} MB: {self.reason}"


@dataclass(frozen=True)
class CompactionPlan:
    """What a compaction does to one version of a table. Without merges there is nothing to do.

    Attributes:
        files: the live files at that version.
    """

    version: int
    files: int
    merges: tuple[Merge, ...]

    @property
    def reason(self) -> str:
        """The reasons of all merges, for the record of the commit."""
        return "; ".join(dict.fromkeys(merge.reason for merge in self.merges))

    def __str__(self) -> str:
        merged = sum(len(merge.files) for merge in self.merges)
        first = f"version {self.version}, {self.files} files: {merged} of them become {len(self.merges)}"
        return "\n".join([first, *(f"  {merge}" for merge in self.merges)])


@dataclass(frozen=True)
class _File:
    name: str
    live: int
    rows: int
    size: int

    @property
    def level(self) -> int:
        return _level(self.live)

    @property
    def live_size(self) -> int:
        return self.size * self.live // max(self.rows, 1)


def plan_compaction(snapshot: Snapshot) -> CompactionPlan:
    """Plan the compaction of a table at one version.

    Raises:
        CorruptState: the log does not say how many rows a file has.
    """
    files = [_file(name, body) for name, body in snapshot.files.items()]
    chosen, top = _due([file for file in files if file.live_size < FULL_BYTES])
    why = f"{FANOUT} or more files of fewer than {FANOUT ** (top + 1):,} rows"
    merges = [_merge(part, why) for part in _parts(chosen) if len(part) > 1]
    taken = {name for merge in merges for name in merge.files}
    # First, or small files that are always due would keep a large one waiting for ever.
    rewrites = [_merge([file], _deleted(file)) for file in files if file.name not in taken and _worn(file)]
    return CompactionPlan(snapshot.version, len(files), tuple(_within([*rewrites, *merges])))


def _due(files: Sequence[_File]) -> tuple[list[_File], int]:
    """The files of the highest level that is due and of all levels below it, in order; and that level."""
    counts = [sum(file.level == level for file in files) for level in range(1 + max([0, *(f.level for f in files)]))]
    top = max((level for level, count in enumerate(counts) if count >= FANOUT), default=-1)
    while top >= 0:
        # What comes out may be the one that another level waits for.
        reached = _level(sum(file.live for file in files if file.level <= top))
        if reached >= len(counts) or counts[reached] + 1 < FANOUT:
            break
        top = reached
    return [file for file in files if file.level <= top], top


def _parts(files: Iterable[_File]) -> Iterable[list[_File]]:
    """The files in order, cut where a new one would be more than full."""
    part: list[_File] = []
    for file in files:
        if part and sum(each.size for each in [*part, file]) > FULL_BYTES:
            yield part
            part = []
        part.append(file)
    yield part


def _within(merges: Iterable[Merge]) -> Iterable[Merge]:
    """The first merges, of which there is at least one, that read no more than a compaction may."""
    total = 0
    for merge in merges:
        if total and total + merge.size > PLAN_BYTES:
            return
        total += merge.size
        yield merge


def _worn(file: _File) -> bool:
    return file.rows >= REWRITE_ROWS and file.rows - file.live > REWRITE_SHARE * file.rows


def _deleted(file: _File) -> str:
    return f"{file.rows - file.live:,} of {file.rows:,} rows are deleted"


def _merge(files: Sequence[_File], reason: str) -> Merge:
    names = tuple(file.name for file in files)
    return Merge(names, sum(file.live for file in files), sum(file.size for file in files), reason)


def _file(name: str, body: Mapping[str, Any]) -> _File:
    vector = body.get("deletionVector")
    rows = row_count(body)
    return _File(name, rows - (int(vector["cardinality"]) if vector else 0), rows, int(body["size"]))


def _level(rows: int) -> int:
    level = 0
    while rows >= FANOUT:
        rows //= FANOUT
        level += 1
    return level


_BATCH_ROWS: Final = 65_536
"""Rows that are read at a time: some MB of ordinary rows."""
_ROW_GROUP: Final = 262_144
"""Rows of a row group: a reader decodes whole pages of it, and skips it by its bounds."""
_EVENT_ORDER: Final = ("_partition", "_offset")
"""The columns that give an event log its order."""


@dataclass(frozen=True)
class Places:
    """Where the rows of a new file stood, in its order.

    Attributes:
        files: the numbers of their files in the merge.
        positions: in these files.
    """

    files: NDArray[np.uint32]
    positions: NDArray[np.uint32]

    def of(self, number: int, gone: BitMap64) -> NDArray[np.uint64]:
        """The rows of the new file that stood at these positions of a file."""
        rows = np.flatnonzero(self.files == number)
        return rows[np.isin(self.positions[rows], np.array(gone.to_array(), np.uint32))].astype(np.uint64)


@dataclass(frozen=True)
class Rewritten:
    """The new files of a plan, which no commit names yet.

    Attributes:
        snapshot: of the plan's version.
        places: of the rows of each new file.
    """

    snapshot: Snapshot
    plan: CompactionPlan
    staged: Staged
    places: tuple[Places, ...]


def compact(path: LakePath, spec: TableSpec, head: Head, snapshot: Snapshot, plan: CompactionPlan) -> Head:
    """Carry out a plan, which must have merges, in one commit.

    Args:
        head, snapshot: of the version that the plan was made for.

    Raises: as `rewrite` and `commit_rewritten`.
    """
    return commit_rewritten(path, head, snapshot, rewrite(path, spec, snapshot, plan, head.record.epoch))


def rewrite(path: LakePath, spec: TableSpec, snapshot: Snapshot, plan: CompactionPlan, epoch: int) -> Rewritten:
    """Write the new files of a plan, and flush them.

    Args:
        epoch: of the table.

    Raises:
        VersionGone: a file or a deletion vector is gone.
        CorruptState: a file has not the rows that the log says it has.
        OSError, pyarrow.ArrowException: a file does not read back, or the disk is full.
    """
    schema = arrow_schema(snapshot.metadata["schemaString"])
    places: list[Places] = []
    staged = stage_files(
        (_rows(path, spec, snapshot, merge, schema, places) for merge in plan.merges),
        schema,
        path,
        epoch,
        spec.indexed,
    ).flush()
    failpoint("after-compaction-staged")
    return Rewritten(snapshot, plan, staged, tuple(places))


def commit_rewritten(path: LakePath, head: Head, now: Snapshot, made: Rewritten) -> Head:
    """Put the new files in the place of those that they are made of, in one commit.

    Args:
        now: the snapshot of `head`. Rows that it has no more are deleted in the new files.

    Raises:
        CommitConflict: another writer has committed since, or the files were replaced meanwhile. Nothing is left of
            the new ones.
        VersionGone, CorruptState: a deletion vector is gone, or broken.
    """
    try:
        if now.schema_json != made.snapshot.schema_json or now.table_id != made.snapshot.table_id:
            raise conflict(path, made.snapshot.version)
        deleted = {
            within(file, path): gone
            for file, merge, places in zip(made.staged.files, made.plan.merges, made.places, strict=True)
            if (gone := _deleted_since(path, made.snapshot, now, merge, places))
        }
    except BaseException:
        made.staged.discard()
        raise
    record = replace(head.record, mode="compact", reason=made.plan.reason, inserted=0, deleted=0)
    replaced = [name for merge in made.plan.merges for name in merge.files]
    return commit_merged(path, head, now, record, Merged(_tagged(made.staged, now, made.plan), replaced, deleted))


def _deleted_since(path: LakePath, then: Snapshot, now: Snapshot, merge: Merge, places: Places) -> BitMap64:
    """The rows of a new file that were deleted in the files which it is made of, since it was made."""
    found = BitMap64()
    for number, name in enumerate(merge.files):
        if name not in now.files:
            raise conflict(path, then.version)
        before, after = (deleted_rows(path, each.files[name].get("deletionVector")) for each in (then, now))
        if before - after:
            raise conflict(path, then.version)
        if newly := after - before:
            found |= BitMap64(places.of(number, newly))
    return found


def _tagged(staged: Staged, snapshot: Snapshot, plan: CompactionPlan) -> Staged:
    """The new files with what their rows come to, where the log says it of all files that they are made of."""
    digests: list[Digest] = []
    for merge in plan.merges:
        parts = [tagged_digest(snapshot.files[name], snapshot.schema_json) for name in merge.files]
        digests += [sum((part for part in parts if part is not None), Digest())] if None not in parts else []
    return staged.tagged(digests, snapshot.schema_json) if len(digests) == len(plan.merges) else staged


def _rows(
    path: LakePath, spec: TableSpec, snapshot: Snapshot, merge: Merge, schema: pa.Schema, places: list[Places]
) -> Iterator[pa.Table]:
    """The rows of one new file, in row groups; where they stood is added to `places`.

    One file alone keeps its order, and is never in memory as a whole, however large it is.
    """
    import pyarrow as pa

    order = _order(spec, schema) if len(merge.files) > 1 else []
    parts: list[pa.RecordBatch] = []
    stood = [(np.empty(0, np.uint32), np.empty(0, np.uint32))]
    for batch, number, positions in _live(path, snapshot, merge.files, schema):
        parts.append(batch)
        stood.append((np.full(len(positions), number, np.uint32), positions))
        if not order and sum(each.num_rows for each in parts) >= _ROW_GROUP:
            yield pa.Table.from_batches(parts, schema)
            parts = []
    files, places_of = (np.concatenate(each) for each in zip(*stood, strict=True))
    if len(files) != merge.rows:
        raise CorruptState(
            sentence("files of '{}' have {} rows, not {} as its log says", table_at(path), len(files), merge.rows),
            where=str(path),
        )
    rows = pa.Table.from_batches(parts, schema)
    if order and parts:
        sorting = _sorting(rows, order)
        rows, files, places_of = rows.take(sorting), files[sorting], places_of[sorting]
    places.append(Places(files, places_of))
    yield from (rows.slice(first, _ROW_GROUP) for first in range(0, rows.num_rows, _ROW_GROUP))


def _live(
    path: LakePath, snapshot: Snapshot, names: Sequence[str], schema: pa.Schema
) -> Iterator[tuple[pa.RecordBatch, int, NDArray[np.uint32]]]:
    """The rows that are not deleted, file by file, in the order they have there: with the file's number, and their
    positions in it."""
    for number, name in enumerate(names):
        body, first = snapshot.files[name], 0
        # A broken file must not come out whole: with a new checksum nobody would ever know.
        fragment = data_of(path, log.inside(path, name), stated_checksum(body))
        gone = deleted_positions(path, body.get("deletionVector"), row_count(body))
        # A few row groups in memory; a column newer than the file is NULL.
        for batch in fragment.to_batches(schema, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1):
            live = without(batch, gone, first)
            within_batch = gone[slice(*np.searchsorted(gone, (first, first + batch.num_rows)))] - first
            positions = np.delete(np.arange(first, first + batch.num_rows, dtype=np.uint32), within_batch)
            first += batch.num_rows
            if live.num_rows:
                yield live, number, positions


def _order(spec: TableSpec, schema: pa.Schema) -> list[str]:
    """The columns that the rows are sorted by, `__state.<field>` for one of the state; none: as they come."""
    import pyarrow as pa

    if spec.storage == "append":
        return list(_EVENT_ORDER) if set(_EVENT_ORDER) <= set(schema.names) else []
    # Arrow has no order for nested values; a key with one is in order of its other columns.
    return [name for name in spec.key if not pa.types.is_nested(_column(schema.empty_table(), name).type)]


def _sorting(rows: pa.Table, order: Sequence[str]) -> NDArray[np.uint64]:
    """The numbers of the rows in that order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = pa.table([_column(rows, name) for name in order], names=[str(place) for place in range(len(order))])
    sorting: NDArray[np.uint64] = pc.sort_indices(
        keys, sort_keys=[(name, "ascending") for name in keys.column_names]
    ).to_numpy()
    return sorting


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    head, _, inner = name.partition(".")
    return pc.struct_field(rows[STATE], inner) if inner and head == STATE else rows[name]
