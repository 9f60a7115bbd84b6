"""The lanes of a row and the equality of values, as Spark expressions. `digest` defines the lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from strandline.state_store.hashing.row_lanes import LANES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column
    from pyspark.sql.types import DataType


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
