"""The changes that a settled frame makes: the rows to store, their numbers, and what to add to the digest.

A settled frame has one row per touched key: the stored columns of the new row, `__exists` (false: the key is deleted,
and the other columns hold only the key) and `__old`, the row stored before as a struct (NULL: the key was absent).
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from state_store.columns import EXISTS, OLD, STATE
from state_store.digest import Digest
from state_store.row_hash import lanes, same
from state_store.tablespec import TableSpec, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

_HALF = 0xFFFFFFFF


@dataclass(frozen=True)
class Changes:
    """The changes of a settled frame, compared with the stored rows.

    Attributes:
        rows: the keys whose stored row changes: the stored columns and `__exists`. Valid inside `measured`.
        written: rows to store. `fresh`: those of them whose key was absent.
        gone: keys to delete.
        inserted, deleted: visible rows inserted and deleted.
        digest: what to add to the table's digest.
    """

    rows: DataFrame
    written: int
    fresh: int
    gone: int
    inserted: int
    deleted: int
    digest: Digest


@contextmanager
def measured(settled: DataFrame, spec: TableSpec, schema: StructType) -> Iterator[Changes]:
    """Compute `settled` once, keep it for the duration of the block, and count its changes: one Spark job."""
    ours = not settled.is_cached
    kept = settled.persist() if ours else settled
    try:
        yield _measure(kept, spec, schema)
    finally:
        if ours:
            kept.unpersist()


def _measure(kept: DataFrame, spec: TableSpec, schema: StructType) -> Changes:
    types = {field.name: field.dataType for field in schema.fields}
    # In the stored types: 1 as INT and 1 as BIGINT have different hashes.
    old = {name: F.col(OLD).getField(name).cast(data_type) for name, data_type in types.items()}
    new = {name: F.col(quoted(name)).cast(data_type) for name, data_type in types.items()}
    exists, had = F.coalesce(F.col(EXISTS), F.lit(False)), F.col(OLD).isNotNull()
    equal = {name: same(new[name], old[name], data_type) for name, data_type in types.items()}
    visible_equal = reduce(and_, (equal[name] for name in spec.visible), F.lit(True))
    changed = (exists | had) & ~(exists & had & visible_equal & equal.get(STATE, F.lit(True)))
    totals = {
        "written": exists & changed,
        "fresh": exists & ~had,
        "gone": had & ~exists,
        "inserted": exists & ~(had & visible_equal),
        "deleted": had & ~(exists & visible_equal),
    }
    sums = [F.count_if(condition).alias(name) for name, condition in totals.items()]
    sums += _lane_sums(_visible(new, types, spec), exists, "new")
    sums += _lane_sums(_visible(old, types, spec), had, "old")
    row = kept.agg(*sums).collect()[0].asDict()
    counts = {name: int(row[name]) for name in totals}
    deleted = lane_digest(row, "old", counts["deleted"])
    digest = lane_digest(row, "new", counts["inserted"]) + Digest(-deleted.first, -deleted.second, -deleted.count)
    rows = kept.where(changed).select(*_stored(schema), exists.alias(EXISTS))
    return Changes(rows=rows, digest=digest, **counts)


def row_totals(spec: TableSpec, schema: StructType) -> list[Column]:
    """The aggregates over inserted rows: their number, `rows`, and the lane sums for `lane_digest(…, "new", …)`."""
    types = {field.name: field.dataType for field in schema.fields}
    columns = {name: F.col(quoted(name)) for name in types}
    return [F.count(F.lit(1)).alias("rows"), *_lane_sums(_visible(columns, types, spec), F.lit(True), "new")]


def lane_digest(row: Mapping[str, Any], prefix: str, count: int) -> Digest:
    """The digest of `count` rows from the sums of the halves of their lanes; the sums of no rows are NULL."""
    high, low = ([int(row[f"{prefix}_{half}{lane}"] or 0) for lane in (0, 1)] for half in ("high", "low"))
    first, second = ((h << 32) + low_sum for h, low_sum in zip(high, low, strict=True))
    return Digest() + Digest(first, second, count)


def conformed(rows: DataFrame, schema: StructType) -> DataFrame:
    """The rows with the stored columns, in order and of the stored types."""
    return rows.select(*_stored(schema))


def _stored(schema: StructType) -> list[Column]:
    return [F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in schema.fields]


def _visible(columns: Mapping[str, Column], types: Mapping[str, DataType], spec: TableSpec) -> tuple[Column, Column]:
    return lanes((columns[name], types[name]) for name in spec.visible)


def _lane_sums(pair: tuple[Column, Column], present: Column, prefix: str) -> list[Column]:
    """Sums of the 32-bit halves: a sum of whole lanes would overflow, which is an error in Spark."""
    sums = []
    for number, lane in enumerate(pair):
        halves = {"low": lane.bitwiseAND(F.lit(_HALF)), "high": F.shiftrightunsigned(lane, 32)}
        sums += [F.sum(F.when(present, half)).alias(f"{prefix}_{name}{number}") for name, half in halves.items()]
    return sums
