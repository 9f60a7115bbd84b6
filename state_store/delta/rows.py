"""Rows of a version, and changes of a commit, read as Arrow from the files that our own snapshot names.

    snapshot ──> files whose statistics allow a match ──> verified ──> row groups ──> batches without deleted rows

Delta's readers parse the log again and trust what they find, so they are not asked: what is read here has passed our
checks. A file with a deletion vector is read by row groups, since a deleted row is known by its number in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.delta.data_files import data_of, reading, stated_checksum
from strandline.state_store.delta.deletion_vectors import deleted_positions
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.statistics import may_hold
from strandline.state_store.tablespec import TIMESTAMP, VERSION, WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.dataset as ds
    from numpy.typing import NDArray

    from strandline.state_store.delta.log import Commit, DataFile
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Wanted:
    """The columns and rows to read of each file.

    Attributes:
        stored: all stored columns; one that is newer than a file is NULL there.
        names: the columns to return.
        predicate: {column: the values it may have}; all of them hold for a row that is returned.
    """

    stored: pa.Schema
    names: tuple[str, ...]
    predicate: Predicate

    @property
    def target(self) -> pa.Schema:
        """The columns of the answer."""
        return pa.schema([self.stored.field(name) for name in self.names])

    @property
    def condition(self) -> pc.Expression | None:
        """The predicate as Arrow computes it; None when there is none."""
        terms = [
            pc.field(name).isin(pa.array(sorted(values), self.stored.field(name).type))
            for name, values in self.predicate.items()
        ]
        return reduce(lambda one, other: one & other, terms) if terms else None


def rows_of(table: LakePath, snapshot: Snapshot, wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The rows, in the order of the files in the log and of the rows in a file.

    Raises:
        VersionGone: a data file or a deletion vector is gone.
        CorruptState: one of them is broken.
    """
    condition = wanted.condition
    for name, body in snapshot.files.items():
        if not may_hold(body, wanted.predicate):
            continue
        fragment = data_of(table, inside(table, name), stated_checksum(body))
        with reading(table):
            vector = body.get("deletionVector")
            if vector is None:
                found = fragment.to_batches(schema=wanted.stored, columns=list(wanted.names), filter=condition)
            else:
                gone = deleted_positions(table, vector, fragment.metadata.num_rows)
                found = _live(fragment, gone, wanted, condition)
            for batch in found:
                yield batch.cast(wanted.target)


def _live(
    fragment: ds.ParquetFileFragment, gone: NDArray[np.int64], wanted: Wanted, condition: pc.Expression | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a file but for those at the positions `gone`, which are sorted."""
    chosen = fragment if condition is None else fragment.subset(filter=condition, schema=wanted.stored)
    numbers = {group.id for group in chosen.row_groups}
    columns = list(dict.fromkeys([*wanted.names, *wanted.predicate]))
    after = 0
    for group in fragment.row_groups:
        begin, after = after, after + group.num_rows
        if group.id not in numbers:
            continue
        for batch in fragment.subset(row_group_ids=[group.id]).to_batches(schema=wanted.stored, columns=columns):
            live = without(batch, gone, begin)
            begin += batch.num_rows
            yield (live if condition is None else live.filter(condition)).select(list(wanted.names))


def without(batch: pa.RecordBatch, gone: NDArray[np.int64], begin: int) -> pa.RecordBatch:
    """The rows of a batch, of which the first is at position `begin` of its file, but for those at `gone` (sorted)."""
    first, last = np.searchsorted(gone, (begin, begin + batch.num_rows))
    if first == last:
        return batch
    kept = np.ones(batch.num_rows, np.bool_)
    kept[gone[first:last] - begin] = False
    return batch.filter(pa.array(kept))


# Changes of one commit to the visible rows.
#
# Delta's protocol has two cases: a commit that lists its changes in files of their own (MERGE), and one whose changes
# follow from comparing the files that it removes with those that it adds (append, `replaceOn`, overwrite).

CHANGE_TYPE: Final = "_change_type"
"""Delta's column that says of a listed change whether the row came or went."""
INSERTIONS: Final = ("insert", "update_postimage")
"""What it says of rows that came."""


def changelog_schema(visible: pa.Schema) -> pa.Schema:
    """The columns of a changelog over these visible columns."""
    meta = [
        (VERSION, pa.int64()),
        (TIMESTAMP, pa.timestamp("us", "UTC")),
        (WEIGHT, pa.int64()),
    ]
    return pa.schema([*visible, *(pa.field(name, arrow_type) for name, arrow_type in meta)])


def changes_of(table: LakePath, commit: Commit, visible: pa.Schema) -> pa.Table:
    """The changelog of one commit, not consolidated.

    Raises:
        VersionGone: a data file or a deletion vector is gone.
        CorruptState: one of them is broken.
    """
    parts = [visible.append(pa.field(WEIGHT, pa.int64())).empty_table()]
    before = {file.path: file for file in commit.removed}
    after = {file.path: file for file in commit.added}
    with reading(table):
        if commit.change_files:
            parts += [_listed(table, file, visible) for file in commit.change_files]
        else:
            for path in before | after:
                parts += _compared(table, before.get(path), after.get(path), visible)
    changes = pa.concat_tables(parts)
    stamp = pa.scalar(commit.timestamp * 1000, pa.timestamp("us", "UTC"))
    columns = {
        **{name: changes[name] for name in visible.names},
        VERSION: pa.repeat(pa.scalar(commit.version, pa.int64()), changes.num_rows),
        TIMESTAMP: pa.repeat(stamp, changes.num_rows),
        WEIGHT: changes[WEIGHT],
    }
    return pa.table(columns, schema=changelog_schema(visible))


def _listed(table: LakePath, file: DataFile, visible: pa.Schema) -> pa.Table:
    found = data_of(table, file.path, file.checksum)
    rows = found.to_table(schema=visible.append(pa.field(CHANGE_TYPE, pa.string())))
    inserted = pc.is_in(rows[CHANGE_TYPE], value_set=pa.array(INSERTIONS))
    weights = pc.if_else(inserted, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    return rows.drop_columns([CHANGE_TYPE]).append_column(WEIGHT, weights)


def _compared(table: LakePath, before: DataFile | None, after: DataFile | None, visible: pa.Schema) -> list[pa.Table]:
    """The changes of one file: rows present before the commit but not after it, and the reverse."""
    file = after or before
    assert file is not None
    # In the order of the file; a column newer than the file is NULL.
    rows = data_of(table, file.path, file.checksum).to_table(schema=visible)
    was, is_now = (_present(table, file, rows.num_rows) for file in (before, after))
    parts = []
    for mask, weight in ((was & ~is_now, -1), (is_now & ~was, 1)):
        if not mask.any():
            continue
        chosen = rows if mask.all() else rows.take(pa.array(np.flatnonzero(mask)))
        weights = pa.repeat(pa.scalar(weight, pa.int64()), chosen.num_rows)
        parts.append(chosen.append_column(WEIGHT, weights))
    return parts


def _present(table: LakePath, file: DataFile | None, rows: int) -> NDArray[np.bool_]:
    present = np.full(rows, file is not None)
    if file is not None:
        present[deleted_positions(table, file.deletion_vector, rows)] = False
    return present
