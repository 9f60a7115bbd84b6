"""A row's lanes and its equality with another, as Spark expressions. `digest` says what a lane is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from state_store.digest import LANES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def lanes(columns: Iterable[tuple[Column, DataType]]) -> tuple[Column, Column]:
    """The two lanes of a row, BIGINT each: the same 64 bits as `digest.row_lanes`."""
    parts = [part for column, kind in columns for part in _parts(column, kind)]
    first, second = (F.xxhash64(F.lit(lane), *parts) for lane in LANES)
    return first, second


def same(left: Column, right: Column, kind: DataType) -> Column:
    """Whether two values are equal, NULL being equal to NULL and maps whatever the order of their entries."""
    return _orderable(left, kind).eqNullSafe(_orderable(right, kind))


def _parts(value: Column, kind: DataType) -> list[Column]:
    absent = F.isnull(value)
    if isinstance(kind, StructType):
        return [absent, *(p for f in kind.fields for p in _parts(value.getField(f.name), f.dataType))]
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        return [absent, F.array_size(value), F.transform(value, lambda x: F.struct(*_parts(x, inner)))]
    if isinstance(kind, MapType):
        entries = F.map_entries(value)
        hashes = F.transform(entries, lambda entry: _entry_hash(entry, kind))
        mixed = F.aggregate(hashes, F.lit(0).cast("bigint"), lambda mixed, entry: mixed.bitwiseXOR(entry))
        return [absent, F.array_size(entries), mixed]
    return [absent, value]


def _entry_hash(entry: Column, kind: MapType) -> Column:
    parts = [*_parts(entry.getField("key"), kind.keyType), *_parts(entry.getField("value"), kind.valueType)]
    return F.xxhash64(F.lit(LANES[0]), *parts)


def _orderable(value: Column, kind: DataType) -> Column:
    """The value with its maps, which Spark does not compare, as arrays of entries sorted by key."""
    if not _has_map(kind):
        return value
    if isinstance(kind, MapType):
        entry = F.transform(F.map_entries(value), lambda e: _orderable_entry(e, kind))
        return F.array_sort(entry)
    if isinstance(kind, ArrayType):
        inner = kind.elementType
        return F.transform(value, lambda x: _orderable(x, inner))
    assert isinstance(kind, StructType)
    fields = [_orderable(value.getField(f.name), f.dataType).alias(f.name) for f in kind.fields]
    return F.when(value.isNotNull(), F.struct(*fields))


def _orderable_entry(entry: Column, kind: MapType) -> Column:
    key, value = entry.getField("key"), entry.getField("value")
    return F.struct(key.alias("key"), _orderable(value, kind.valueType).alias("value"))


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, ArrayType):
        return _has_map(kind.elementType)
    if isinstance(kind, StructType):
        return any(_has_map(field.dataType) for field in kind.fields)
    return isinstance(kind, MapType)
