"""What one commit did to the visible rows, read from the files it names.

Two cases, as Delta's protocol has them: a commit that lists its changes in files of their own (MERGE), and one whose
changes are the difference between the files it removes and those it adds (append, `replaceOn`, overwrite).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from state_store.columns import TIMESTAMP, VERSION, WEIGHT
from state_store.deletion_vectors import deleted_rows

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from state_store.deltalog import Commit, DataFile

_KIND = "_change_type"
_GIVEN = ("insert", "update_postimage")


def changelog_schema(visible: pa.Schema) -> pa.Schema:
    """The columns of a changelog over these visible columns."""
    meta = [
        (VERSION, pa.int64()),
        (TIMESTAMP, pa.timestamp("us", "UTC")),
        (WEIGHT, pa.int64()),
    ]
    return pa.schema([*visible, *(pa.field(name, kind) for name, kind in meta)])


def changes_of(table: Path, commit: Commit, visible: pa.Schema) -> pa.Table:
    """The changelog of one commit, not consolidated.

    Raises:
        VersionGone: a deletion vector is gone. Missing data files raise FileNotFoundError.
        CorruptState: a deletion vector does not read back. Data files that do not raise ArrowInvalid or OSError.
    """
    parts = [visible.append(pa.field(WEIGHT, pa.int64())).empty_table()]
    if commit.change_files:
        parts += [_listed(file, visible) for file in commit.change_files]
    else:
        before = {file.path: file for file in commit.removed}
        after = {file.path: file for file in commit.added}
        for path in before | after:
            parts += _difference(table, path, before.get(path), after.get(path), visible)
    changes = pa.concat_tables(parts)
    stamp = pa.scalar(commit.timestamp * 1000, pa.timestamp("us", "UTC"))
    columns = {
        **{name: changes[name] for name in visible.names},
        VERSION: pa.repeat(pa.scalar(commit.version, pa.int64()), changes.num_rows),
        TIMESTAMP: pa.repeat(stamp, changes.num_rows),
        WEIGHT: changes[WEIGHT],
    }
    return pa.table(columns, schema=changelog_schema(visible))


def _listed(file: Path, visible: pa.Schema) -> pa.Table:
    rows = _rows(file, visible.append(pa.field(_KIND, pa.string())))
    given = pc.is_in(rows[_KIND], value_set=pa.array(_GIVEN))
    weights = pc.if_else(given, pa.scalar(1, pa.int64()), pa.scalar(-1, pa.int64()))
    return rows.drop_columns([_KIND]).append_column(WEIGHT, weights)


def _difference(
    table: Path, path: Path, before: DataFile | None, after: DataFile | None, visible: pa.Schema
) -> list[pa.Table]:
    """The rows of one file that are there after the commit and were not before, and the other way round."""
    rows = _rows(path, visible)
    was, is_now = (_present(table, file, rows.num_rows) for file in (before, after))
    parts = []
    for mask, weight in ((was & ~is_now, -1), (is_now & ~was, 1)):
        if not mask.any():
            continue
        chosen = rows if mask.all() else rows.take(pa.array(np.flatnonzero(mask)))
        weights = pa.repeat(pa.scalar(weight, pa.int64()), chosen.num_rows)
        parts.append(chosen.append_column(WEIGHT, weights))
    return parts


def _present(table: Path, file: DataFile | None, rows: int) -> NDArray[np.bool_]:
    present = np.full(rows, file is not None)
    if file is not None and file.deletion_vector is not None:
        present[deleted_rows(table, file.deletion_vector)] = False
    return present


def _rows(file: Path, schema: pa.Schema) -> pa.Table:
    """The rows of one data file in their order; a column the file is too old to have is NULL."""
    # Pages carry checksums that nobody checks unless told to.
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    return ds.dataset(
        file, schema=schema, format=ds.ParquetFileFormat(default_fragment_scan_options=options)
    ).to_table()
