"""Changes as a file lists them: rows of Delta's change data feed, made of rows with weights."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from strandline.state_store.columns import WEIGHT
from strandline.state_store.delta.feed import CHANGE_TYPE
from strandline.state_store.kernel.settle import conformed


@dataclass
class Counts:
    """The rows that came and went in all batches so far."""

    inserted: int = 0
    deleted: int = 0


def change_schema(stored: pa.Schema) -> pa.Schema:
    """The columns of a file that lists changes: the stored ones, and whether the row came or went."""
    return stored.append(pa.field(CHANGE_TYPE, pa.string()))


def listed_changes(batch: pa.RecordBatch, schema: pa.Schema, counts: Counts) -> pa.Table:
    """The rows of a batch in that schema, counted on the way.

    Args:
        batch: the stored columns and `__weight`.
    """
    came = pc.greater(batch[WEIGHT], 0)
    inserted = pc.sum(came.cast(pa.int64())).as_py() or 0
    counts.inserted += inserted
    counts.deleted += batch.num_rows - inserted
    stored = conformed(batch, pa.schema(list(schema)[:-1]))
    return pa.Table.from_batches([stored]).append_column(
        schema.field(CHANGE_TYPE), pc.if_else(came, "insert", "delete")
    )
