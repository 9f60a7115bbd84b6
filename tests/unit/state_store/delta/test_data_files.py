"""The encodings of data files: which column has which, and that every engine reads them."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.state_store.delta.data_files import encodings, stage_files, stage_rows
from tests.support.on_disk import on_disk

DIFFERENCES = "DELTA_BINARY_PACKED"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("at", pa.timestamp("us", "UTC")),
        ("day", pa.date32()),
        ("name", pa.string()),
        ("share", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("there", pa.bool_()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("pairs", pa.list_(pa.struct([("key", pa.string()), ("n", pa.int32())]))),
        ("__state", pa.struct([("_offset", pa.int64()), ("v", pa.float64())])),
        ("with.dot", pa.int64()),
    ]
)
ROW = {
    "id": -(2**63),
    "small": 2**31 - 1,
    "at": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "day": date(1, 1, 1),
    "name": "",
    "share": float("inf"),
    "price": Decimal("-99999999.99"),
    "there": True,
    "tags": [("a", 2**63 - 1), ("b", None)],
    "pairs": [{"key": None, "n": -1}, None],
    "__state": {"_offset": 2**63 - 1, "v": None},
    "with.dot": 0,
}
EMPTY = dict.fromkeys(SCHEMA.names)


def test_whole_numbers_and_times_are_stored_by_their_differences() -> None:
    found = encodings(SCHEMA)
    assert found["column_encoding"] == dict.fromkeys(
        ["__state._offset", "at", "day", "id", "pairs.list.element.n", "small", "tags.key_value.value", "with.dot"],
        DIFFERENCES,
    )
    assert set(found["use_dictionary"]) == {
        *("name", "share", "price", "there", "tags.key_value.key", "pairs.list.element.key", "__state.v")
    }


def test_a_column_whose_name_is_another_ones_path_is_stored_as_that_one() -> None:
    schema = pa.schema([("a.b", pa.int64()), ("a", pa.struct([("b", pa.string())]))])
    found = encodings(schema)
    assert found["use_dictionary"] == ["a.b"]
    assert found["column_encoding"] == {}


@pytest.mark.parametrize(("rows", "without"), [(20_000, {"id", "share"}), (16_000, set[str]())])
def test_a_column_of_different_values_has_no_dictionary(tmp_path: Path, rows: int, without: set[str]) -> None:
    """By the first rows of a file; where they are few, all columns that may have one do."""
    numbers = range(rows)
    made = {
        "id": [f"visit {n}" if n % 50 else None for n in numbers],
        "share": [n / 7 for n in numbers],
        "product": [f"p{n % 9_000}" for n in numbers],
        "of": [{"text": str(n)} for n in numbers],
        "raw": [b"%d" % (n % 5) for n in numbers],
    }
    table = pa.table(made)
    [file] = on_disk(stage_files([[table, table]], table.schema, tmp_path, 1).folder).glob("*.parquet")
    found = pq.read_metadata(file)
    for number in range(found.num_row_groups):
        group = found.row_group(number)
        columns = [group.column(place) for place in range(group.num_columns)]
        assert {each.path_in_schema for each in columns if not each.has_dictionary_page} == without
    assert pq.read_table(file).equals(pa.concat_tables([table, table]))


def test_only_columns_that_may_hold_nan_have_no_bounds(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([ROW | {"__state": {"_offset": 1, "v": 1.0}}], SCHEMA)
    [file] = on_disk(stage_rows(rows, tmp_path, 1).folder).glob("*.parquet")
    written = pq.read_metadata(file).row_group(0)
    columns = [written.column(number) for number in range(written.num_columns)]
    assert {each.path_in_schema for each in columns if not each.is_stats_set} == {"share", "__state.v"}


def test_extremes_and_nulls_are_read_as_they_were_written(tmp_path: Path) -> None:
    """By Arrow and by DuckDB; what Spark and delta-rs read, the tests of tables say."""
    rows = pa.Table.from_pylist([ROW, EMPTY, ROW | {"id": 2**63 - 1}, EMPTY, ROW], SCHEMA)
    [file] = on_disk(stage_rows(rows, tmp_path, 1).folder).glob("*.parquet")
    assert pq.read_table(file).cast(SCHEMA).equals(rows)
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        read = db.sql(f"SELECT * FROM read_parquet('{file}')").to_arrow_table()
    assert read.select(SCHEMA.names).cast(SCHEMA).equals(rows)
    written = pq.read_metadata(file).row_group(0)
    of = {written.column(n).path_in_schema: written.column(n).encodings for n in range(written.num_columns)}
    assert all(DIFFERENCES in of[name] for name in ("id", "at", "__state._offset", "with.dot"))
    assert DIFFERENCES not in of["name"]


def test_a_single_small_file_has_no_folder_of_its_own(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([ROW], SCHEMA)
    alone, other = stage_rows(rows, tmp_path, 1), stage_files([[rows], [rows]], SCHEMA, tmp_path, 2)
    assert [on_disk(file).parent for file in alone.files] == [tmp_path]
    assert {on_disk(file).parent.parent for file in other.files} == {tmp_path}
    alone.discard()
    assert [*tmp_path.iterdir()] == [other.folder]
    other.discard()
    assert [*tmp_path.iterdir()] == []
