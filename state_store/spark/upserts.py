"""The changes that a frame of upserts makes: the rows to store, the places of those that go, what to add to the digest.

It has one row per touched key: the stored columns of the new row, `__exists` (false: the key is deleted, and the other
columns hold only the key) and `__old`, the row stored before as a struct with its place (NULL: the key was absent).

Places are never collected one by one: Spark's tasks make a bitmap of 4 KiB for each run of 32,768 rows of a file.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import numpy as np
from pyroaring import BitMap64
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState
from strandline.state_store.row_lanes import LANES
from strandline.state_store.spark.rows import RUN
from strandline.state_store.tablespec import EXISTS, FILE, OLD, POSITION, STATE, TableSpec, quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, Row
    from pyspark.sql.types import DataType


# The lanes of a row and the equality of values, as Spark expressions. `digest` defines the lanes.


def lanes(columns: Iterable[tuple[Column, DataType]]) -> tuple[Column, Column]:
    """The two lanes of a row, BIGINT each: the same 64 bits as `digest.row_lanes`."""
    parts = [part for column, data_type in columns for part in _parts(column, data_type)]
    first, second = (F.xxhash64(F.lit(lane), *parts) for lane in LANES)
    return first, second


def same(left: Column, right: Column, data_type: DataType) -> Column:
    """True where two values are equal: NULL equals NULL, and the order of a map's entries does not count."""
    return _orderable(left, data_type).eqNullSafe(_orderable(right, data_type))


def _parts(value: Column, data_type: DataType) -> list[Column]:
    absent = F.isnull(value)
    if isinstance(data_type, StructType):
        return [absent, *(p for f in data_type.fields for p in _parts(value.getField(f.name), f.dataType))]
    if isinstance(data_type, ArrayType):
        inner = data_type.elementType
        return [absent, F.array_size(value), F.transform(value, lambda x: F.struct(*_parts(x, inner)))]
    if isinstance(data_type, MapType):
        entries = F.map_entries(value)
        hashes = F.transform(entries, lambda entry: _entry_hash(entry, data_type))
        mixed = F.aggregate(hashes, F.lit(0).cast("bigint"), lambda mixed, entry: mixed.bitwiseXOR(entry))
        return [absent, F.array_size(entries), mixed]
    return [absent, value]


def _entry_hash(entry: Column, data_type: MapType) -> Column:
    parts = [*_parts(entry.getField("key"), data_type.keyType), *_parts(entry.getField("value"), data_type.valueType)]
    return F.xxhash64(F.lit(LANES[0]), *parts)


def _orderable(value: Column, data_type: DataType) -> Column:
    """The value with its maps, which Spark does not compare, as arrays of entries sorted by key."""
    if not _has_map(data_type):
        return value
    if isinstance(data_type, MapType):
        entry = F.transform(F.map_entries(value), lambda e: _orderable_entry(e, data_type))
        return F.array_sort(entry)
    if isinstance(data_type, ArrayType):
        inner = data_type.elementType
        return F.transform(value, lambda x: _orderable(x, inner))
    assert isinstance(data_type, StructType)
    fields = [_orderable(value.getField(f.name), f.dataType).alias(f.name) for f in data_type.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def _orderable_entry(entry: Column, data_type: MapType) -> Column:
    key, value = entry.getField("key"), entry.getField("value")
    return F.struct(key.alias("key"), _orderable(value, data_type.valueType).alias("value"))


def _has_map(data_type: DataType) -> bool:
    if isinstance(data_type, ArrayType):
        return _has_map(data_type.elementType)
    if isinstance(data_type, StructType):
        return any(_has_map(field.dataType) for field in data_type.fields)
    return isinstance(data_type, MapType)


_HALF = 0xFFFFFFFF


@dataclass(frozen=True)
class FrameChanges:
    """The changes of a frame of upserts, compared with the stored rows.

    Attributes:
        rows: the rows to store. Valid inside `measured`.
        written: their number.
        retracted: {data file as a URL: positions of the stored rows that go}.
        taken: {data file as a URL: the digest of these rows}.
        came: the digest of the rows to store.
        inserted, deleted: visible rows inserted and deleted.
        digest: what to add to the table's digest.
    """

    rows: DataFrame
    written: int
    retracted: Mapping[str, BitMap64]
    taken: Mapping[str, Digest]
    came: Digest
    inserted: int
    deleted: int
    digest: Digest


@contextmanager
def measured(upserts: DataFrame, spec: TableSpec, schema: StructType) -> Iterator[FrameChanges]:
    """Compute `upserts` once, keep it for the duration of the block, and count its changes: one Spark job.

    Raises:
        CorruptState: a stored row is replaced twice, or its place is not known; the rule is wrong.
    """
    ours = not upserts.is_cached
    kept = upserts.persist() if ours else upserts
    try:
        yield _measure(kept, spec, schema)
    finally:
        if ours:
            kept.unpersist()


def _measure(kept: DataFrame, spec: TableSpec, schema: StructType) -> FrameChanges:
    types = {field.name: field.dataType for field in schema.fields}
    # In the stored types: 1 as INT and 1 as BIGINT have different hashes.
    old = {name: F.col(OLD).getField(name).cast(data_type) for name, data_type in types.items()}
    new = {name: F.col(quoted(name)).cast(data_type) for name, data_type in types.items()}
    exists, had = F.coalesce(F.col(EXISTS), F.lit(False)), F.col(OLD).isNotNull()
    equal = {name: same(new[name], old[name], data_type) for name, data_type in types.items()}
    visible_equal = reduce(and_, (equal[name] for name in spec.visible), F.lit(True))
    changed = (exists | had) & ~(exists & had & visible_equal & equal.get(STATE, F.lit(True)))
    replaced = had & changed
    totals = {
        "replaced": replaced,
        "written": exists & changed,
        "inserted": exists & ~(had & visible_equal),
        "deleted": had & ~(exists & visible_equal),
    }
    sums = [F.count_if(condition).alias(name) for name, condition in totals.items()]
    sums += _lane_sums(_visible(new, types, spec), exists, "new")
    sums += _lane_sums(_visible(old, types, spec), had, "old")
    sums += _lane_sums(_visible(new, types, spec), exists & changed, "came")
    # Spark's functions count the places of a bitmap from 1.
    place = F.when(replaced, F.col(OLD).getField(POSITION) + 1)
    file = F.when(replaced, F.col(OLD).getField(FILE)).alias("file")
    grouped = kept.groupBy(file, F.bitmap_bucket_number(place).alias("run"))
    parts = grouped.agg(F.bitmap_construct_agg(F.bitmap_bit_position(place)).alias("places"), *sums).collect()
    names = [*totals, *(name for prefix in ("new", "old", "came") for name in _lane_names(prefix))]
    row = {name: sum(part[name] or 0 for part in parts) for name in names}
    retracted = _positions(parts)
    if sum(map(len, retracted.values())) != row["replaced"]:
        raise CorruptState(
            f"rows of '{spec.name}' cannot be told apart: a key has two upserts, or a stored row has no place"
        )
    deleted = lane_digest(row, "old", row["deleted"])
    return FrameChanges(
        rows=kept.where(changed & exists).select(*_stored(schema)),
        written=row["written"],
        retracted=retracted,
        taken=_taken(parts),
        came=lane_digest(row, "came", row["written"]),
        inserted=row["inserted"],
        deleted=row["deleted"],
        digest=lane_digest(row, "new", row["inserted"]) - deleted,
    )


def _positions(parts: Sequence[Row]) -> dict[str, BitMap64]:
    """{file: positions}, from the bitmaps of runs of its rows."""
    found: dict[str, BitMap64] = {}
    for part in parts:
        if part["file"] is not None:
            bits = np.unpackbits(np.frombuffer(part["places"], np.uint8), bitorder="little")
            first = (part["run"] - 1) * RUN
            found.setdefault(part["file"], BitMap64()).update(
                BitMap64((np.flatnonzero(bits) + first).astype(np.uint64))
            )
    return found


def _taken(parts: Sequence[Row]) -> dict[str, Digest]:
    """{file: the digest of its rows that go}."""
    found: dict[str, Digest] = {}
    for part in parts:
        if part["file"] is not None:
            digest = lane_digest(part.asDict(), "old", part["replaced"])
            found[part["file"]] = found.get(part["file"], Digest()) + digest
    return found


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
    halves = [half for lane in pair for half in (lane.bitwiseAND(F.lit(_HALF)), F.shiftrightunsigned(lane, 32))]
    named = zip(halves, _lane_names(prefix), strict=True)
    return [F.sum(F.when(present, half)).alias(name) for half, name in named]


def _lane_names(prefix: str) -> list[str]:
    return [f"{prefix}_{half}{number}" for number in (0, 1) for half in ("low", "high")]
