"""The changes of one commit to the visible rows, read from the files that it names.

Delta's protocol has two cases: a commit that lists its changes in files of their own (MERGE), and one whose changes
follow from comparing the files that it removes with those that it adds (append, `replaceOn`, overwrite).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.columns import TIMESTAMP, VERSION, WEIGHT
from strandline.state_store.delta.data_files import data_of, reading
from strandline.state_store.delta.deletion_vectors import deleted_positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from strandline.state_store.delta.log import Commit, DataFile
    from strandline.state_store.paths import LakePath

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
