"""The difference of the rows of some files and of those that took their place, row by row, by hash."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from strandline.state_store.row_lanes import row_lanes

if TYPE_CHECKING:
    from numpy.typing import NDArray


def without_shared(gone: pa.Table, came: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What goes and what comes, without the rows that they share: those with the same values, in columns of the same
    types."""
    if gone.schema != came.schema or not gone.num_rows or not came.num_rows:
        return gone, came
    keys = np.concatenate([row_hashes(gone), row_hashes(came)], axis=1)
    order = np.lexsort((keys[1], keys[0]))
    sign = np.concatenate([np.full(gone.num_rows, -1), np.full(came.num_rows, 1)])[order]
    ordered = keys[:, order]
    starts = np.flatnonzero(np.r_[True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)])
    sizes = np.diff(np.r_[starts, len(order)])
    # Of each group of equal rows, those of the side that has fewer are all left out, and as many of the other.
    net = np.repeat(np.add.reduceat(sign, starts), sizes)
    kept = np.zeros(len(order), np.bool_)
    for weight in (-1, 1):
        of_side = sign == weight
        running = np.cumsum(of_side)
        before = np.repeat((running - of_side)[starts], sizes)
        kept |= of_side & (running - before <= weight * net)
    mask = np.zeros(len(order), np.bool_)
    mask[order] = kept
    return gone.filter(pa.array(mask[: gone.num_rows])), came.filter(pa.array(mask[gone.num_rows :]))


def row_hashes(rows: pa.Table) -> NDArray[np.uint64]:
    """The two lanes of each row (`state_store.digest`), of shape (2, rows)."""
    parts = [row_lanes(batch) for batch in rows.to_batches() if batch.num_rows]
    return np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.uint64)
