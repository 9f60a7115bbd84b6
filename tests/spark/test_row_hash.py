"""Spark's expressions and the Python arithmetic are the same digest, for every type a table can hold."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.digest import digest_of_table
from strandline.state_store.layout import LakeLayout
from strandline.state_store.row_lanes import row_lanes
from strandline.state_store.spark.table import SparkTable, lanes, same
from strandline.state_store.tablespec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INNER = pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.float64()))])
COLUMNS: list[tuple[str, str, pa.DataType]] = [
    ("flag", "BOOLEAN", pa.bool_()),
    ("small", "INT", pa.int32()),
    ("big", "BIGINT", pa.int64()),
    ("real", "DOUBLE", pa.float64()),
    ("price", "DECIMAL(10, 2)", pa.decimal128(10, 2)),
    ("limit", "DECIMAL(18, 0)", pa.decimal128(18, 0)),
    ("huge", "DECIMAL(38, 5)", pa.decimal128(38, 5)),
    ("text", "STRING", pa.string()),
    ("raw", "BINARY", pa.binary()),
    ("day", "DATE", pa.date32()),
    ("at", "TIMESTAMP", pa.timestamp("us", "UTC")),
    ("list", "ARRAY<BIGINT>", pa.list_(pa.int64())),
    ("lists", "ARRAY<ARRAY<STRING>>", pa.list_(pa.list_(pa.string()))),
    ("map", "MAP<STRING, BIGINT>", pa.map_(pa.string(), pa.int64())),
    ("maps", "ARRAY<MAP<INT, DATE>>", pa.list_(pa.map_(pa.int32(), pa.date32()))),
    ("pair", "STRUCT<a: BIGINT, b: MAP<STRING, DOUBLE>>", INNER),
    ("pairs", "MAP<STRING, STRUCT<a: BIGINT, b: MAP<STRING, DOUBLE>>>", pa.map_(pa.string(), INNER)),
]
SPEC = TableSpec("types", tuple((name, kind) for name, kind, _ in COLUMNS), "append")

EDGES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int32(): [0, -1, 2**31 - 1, -(2**31)],
    pa.int64(): [0, -1, 2**63 - 1, -(2**63)],
    pa.float64(): [0.0, -0.0, float("nan"), float("-inf"), 5e-324, -1.5],
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99")],
    pa.decimal128(18, 0): [Decimal(10**18 - 1), Decimal(1 - 10**18)],
    pa.decimal128(38, 5): [Decimal(f"{'9' * 33}.99999"), Decimal(f"-{'9' * 33}.99999"), Decimal("0.00128"), Decimal(0)],
    pa.string(): ["", "a", "Ünïcode ✓ 𝄞", "x" * 100, "null"],
    pa.binary(): [b"", b"\x00", b"\xff" * 33, b"abcd"],
    pa.date32(): [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=UTC),
    ],
}


def _value(kind: pa.DataType, draw: random.Random, null: float = 0.2) -> Any:
    if draw.random() < null:
        return None
    if pa.types.is_map(kind):
        keys = {repr(k): k for k in (_value(kind.key_type, draw, 0) for _ in range(draw.randrange(4)))}
        return [(key, _value(kind.item_type, draw)) for key in keys.values()]
    if pa.types.is_list(kind):
        return [_value(kind.value_type, draw) for _ in range(draw.randrange(4))]
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type, draw) for field in kind}
    if pa.types.is_timestamp(kind) and draw.random() < 0.5:
        return datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randrange(10**16))
    if pa.types.is_int64(kind) and draw.random() < 0.5:
        return draw.randrange(-(2**63), 2**63)
    return draw.choice(EDGES[kind])


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    draw = random.Random(20261121)
    schema = pa.schema([(name, kind) for name, _, kind in COLUMNS])
    data = [{name: _value(kind, draw) for name, _, kind in COLUMNS} for _ in range(300)]
    return pa.Table.from_pylist([*data, dict.fromkeys(schema.names)], schema=schema)


def test_each_row_has_the_same_lanes_in_spark_and_in_python(spark: SparkSession, rows: pa.Table) -> None:
    frame = spark.createDataFrame(rows, SPEC.ddl)
    pairs = lanes((frame[field.name], field.dataType) for field in frame.schema.fields)
    mask = (1 << 64) - 1
    in_spark = sorted((a & mask, b & mask) for a, b in frame.select(*pairs).collect())
    first, second = row_lanes(rows.combine_chunks().to_batches()[0])
    assert in_spark == sorted(zip(first.tolist(), second.tolist(), strict=True))


@pytest.mark.parametrize("column", [name for name, _, _ in COLUMNS])
def test_each_type_alone_has_the_same_digest(spark: SparkSession, rows: pa.Table, column: str) -> None:
    """As above, to name the type that differs."""
    one = rows.select([column])
    frame = spark.createDataFrame(one, f"`{column}` {dict(SPEC.columns)[column]}")
    (pair,) = [lanes([(frame[column], frame.schema[0].dataType)])]
    mask = (1 << 64) - 1
    in_spark = sorted(a & mask for a, _ in frame.select(*pair).collect())
    assert in_spark == sorted(row_lanes(one.combine_chunks().to_batches()[0])[0].tolist())


def test_the_digest_of_a_stored_table_is_that_of_the_rows_it_was_given(
    spark: SparkSession, lake: LakeLayout, rows: pa.Table
) -> None:
    table = SparkTable(spark, lake.table("types"), SPEC)
    table.ensure(CommitRecord(epoch=0))
    head = table.append(spark.createDataFrame(rows, SPEC.ddl), CommitRecord(epoch=1))
    assert str(digest_of_table(rows.to_batches())) == head.record.digest
    assert str(digest_of_table(reader.scan(table.path))) == head.record.digest
    assert digest_of_table(reader.read_changes(table.path).select(rows.column_names).to_batches()) == digest_of_table(
        rows.to_batches()
    )


def test_a_value_of_any_type_equals_itself_and_differs_from_null(spark: SparkSession, rows: pa.Table) -> None:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame(rows, SPEC.ddl)
    kinds = {field.name: field.dataType for field in frame.schema.fields}
    itself = [F.bool_and(same(F.col(name), F.col(name), kind)) for name, kind in kinds.items()]
    null = [F.bool_or(same(F.col(n), F.lit(None).cast(k), k) & F.col(n).isNotNull()) for n, k in kinds.items()]
    assert set(frame.agg(*itself).collect()[0]) == {True}
    assert set(frame.agg(*null).collect()[0]) == {False}


def test_nested_maps_are_compared_by_their_entries(spark: SparkSession) -> None:
    kind = "ARRAY<STRUCT<m: MAP<STRING, MAP<STRING, INT>>>>"
    row = "array(named_struct('m', map('a', map('x', 1, 'y', 2), 'b', map('z', {}))))"
    other = "array(named_struct('m', map('b', map('z', {}), 'a', map('y', 2, 'x', 1))))"
    frame = spark.sql(
        f"SELECT CAST({row.format(3)} AS {kind}) AS l, CAST({other.format(3)} AS {kind}) AS r, "
        f"CAST({other.format('NULL')} AS {kind}) AS d"
    )
    kinds = frame.schema["l"].dataType
    assert frame.select(same(frame.l, frame.r, kinds), same(frame.l, frame.d, kinds)).collect() == [(True, False)]
