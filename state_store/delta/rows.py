"""The rows of a version, read from the files that our own snapshot names.

    snapshot ──> files whose statistics allow a match ──> verified ──> row groups ──> batches without deleted rows

Delta's readers parse the log again and trust what they find, so they are not asked: what is read here has passed our
checks. A file with a deletion vector is read by row groups, since a deleted row is known by its number in the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.delta.data_files import data_of, reading
from strandline.state_store.delta.deletion_vectors import deleted_positions
from strandline.state_store.delta.log import inside
from strandline.state_store.delta.staging import stated_checksum
from strandline.state_store.delta.statistics import may_hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow.dataset as ds
    from numpy.typing import NDArray

    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.paths import LakePath


@dataclass(frozen=True)
class Wanted:
    """What to read of each file.

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
