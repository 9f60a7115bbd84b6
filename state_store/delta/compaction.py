"""Compaction: the live rows of some files written into new ones, as one commit that changes no row.

    plan ──> for each merge: files ──row groups, without deleted rows──> sorted by key ──> one staged file ──┐
                                                              entry: adds and removes, `dataChange` false <──┘

The commit carries the head's record on, with the mode `compact` and a nonce of its own, in the same epoch: vector,
offsets and digest are what they were. A reader of changes finds nothing in it, a vector that names a version before it
stays true. An epoch that was planned before it, with positions in a file that it replaced, is refused
(`commit.commit`): a file that left a table never comes back under its name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.state_store.columns import STATE
from strandline.state_store.delta import log
from strandline.state_store.delta.commit import Merged, commit_merged
from strandline.state_store.delta.data_files import data_of
from strandline.state_store.delta.deletion_vectors import deleted_positions
from strandline.state_store.delta.rows import without
from strandline.state_store.delta.schema import arrow_schema
from strandline.state_store.delta.staging import stage_files, stated_checksum
from strandline.state_store.delta.statistics import row_count
from strandline.state_store.delta.sums import tagged_digest
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint
from strandline.state_store.hashing.digest import Digest
from strandline.state_store.layout import table_at
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.state_store.commits import Head
    from strandline.state_store.delta.compaction_plan import CompactionPlan, Merge
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.delta.staging import Staged
    from strandline.state_store.paths import LakePath
    from strandline.state_store.tablespec import TableSpec

_BATCH_ROWS: Final = 65_536
"""Rows that are read at a time: some MB of ordinary rows."""
_ROW_GROUP: Final = 262_144
"""Rows of a row group: a reader decodes whole pages of it, and skips it by its bounds."""
_EVENT_ORDER: Final = ("_partition", "_offset")
"""The columns that give an event log its order."""


def compact(path: LakePath, spec: TableSpec, head: Head, snapshot: Snapshot, plan: CompactionPlan) -> Head:
    """Carry out a plan, which must have merges, in one commit.

    Args:
        head, snapshot: of the version that the plan was made for.

    Raises:
        CommitConflict: another writer has committed since. Nothing is left of this compaction.
        VersionGone: a file or a deletion vector is gone.
        CorruptState: a file has not the rows that the log says it has.
        OSError, pyarrow.ArrowException: a file does not read back, or the disk is full.
    """
    schema = arrow_schema(snapshot.metadata["schemaString"])
    staged = stage_files(
        (_rows(path, spec, snapshot, merge, schema) for merge in plan.merges),
        schema,
        path,
        head.record.epoch,
        spec.indexed,
    )
    staged = _tagged(staged, snapshot, plan)
    failpoint("after-compaction-staged")
    record = replace(head.record, mode="compact", reason=plan.reason, inserted=0, deleted=0)
    replaced = [name for merge in plan.merges for name in merge.files]
    return commit_merged(path, head, snapshot, record, Merged(staged, replaced))


def _tagged(staged: Staged, snapshot: Snapshot, plan: CompactionPlan) -> Staged:
    """The new files with what their rows come to, where the log says it of all files that they are made of."""
    digests: list[Digest] = []
    for merge in plan.merges:
        parts = [tagged_digest(snapshot.files[name], snapshot.schema_json) for name in merge.files]
        digests += [sum((part for part in parts if part is not None), Digest())] if None not in parts else []
    return staged.tagged(digests, snapshot.schema_json) if len(digests) == len(plan.merges) else staged


def _rows(path: LakePath, spec: TableSpec, snapshot: Snapshot, merge: Merge, schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of one new file, in row groups.

    One file alone keeps its order, and is never in memory as a whole, however large it is.
    """
    import pyarrow as pa

    found = 0
    order = _order(spec, schema) if len(merge.files) > 1 else []
    parts: list[pa.RecordBatch] = []
    for batch in _live(path, snapshot, merge.files, schema):
        found += batch.num_rows
        parts.append(batch)
        if not order and sum(each.num_rows for each in parts) >= _ROW_GROUP:
            yield pa.Table.from_batches(parts, schema)
            parts = []
    if found != merge.rows:
        raise CorruptState(
            sentence("files of '{}' have {} rows, not {} as its log says", table_at(path), found, merge.rows),
            where=str(path),
        )
    if parts:
        rows = pa.Table.from_batches(parts, schema)
        rows = _sorted(rows, order) if order else rows
        yield from (rows.slice(first, _ROW_GROUP) for first in range(0, rows.num_rows, _ROW_GROUP))


def _live(path: LakePath, snapshot: Snapshot, names: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows that are not deleted, file by file, in the order they have there."""
    for name in names:
        body, first = snapshot.files[name], 0
        # A broken file must not come out whole: with a new checksum nobody would ever know.
        fragment = data_of(path, log.inside(path, name), stated_checksum(body))
        gone = deleted_positions(path, body.get("deletionVector"), row_count(body))
        # A few row groups in memory; a column newer than the file is NULL.
        for batch in fragment.to_batches(schema, batch_size=_BATCH_ROWS, batch_readahead=2, fragment_readahead=1):
            live = without(batch, gone, first)
            first += batch.num_rows
            if live.num_rows:
                yield live


def _order(spec: TableSpec, schema: pa.Schema) -> list[str]:
    """The columns that the rows are sorted by, `__state.<field>` for one of the state; none: as they come."""
    import pyarrow as pa

    if spec.storage == "append":
        return list(_EVENT_ORDER) if set(_EVENT_ORDER) <= set(schema.names) else []
    # Arrow has no order for nested values; a key with one is in order of its other columns.
    return [name for name in spec.key if not pa.types.is_nested(_column(schema.empty_table(), name).type)]


def _sorted(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = pa.table([_column(rows, name) for name in order], names=[str(place) for place in range(len(order))])
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _column(rows: pa.Table, name: str) -> pa.ChunkedArray:
    import pyarrow.compute as pc

    head, _, inner = name.partition(".")
    return pc.struct_field(rows[STATE], inner) if inner and head == STATE else rows[name]
