"""Rows of a version from the files that our snapshot names: predicates, deletion vectors, and what was damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import Schema

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import data_files, log, reader
from strandline.state_store.delta.statistics import Predicate, may_hold
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState, StoreError
from strandline.state_store.tablespec import TableSpec, arrow_schema
from tests.support.arrow_table import ArrowTable
from tests.support.on_disk import on_disk

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("n", pa.int32())])
SPEC = TableSpec("t", (("k", "BIGINT"), ("v", "STRING"), ("n", "INT")), "keyed", ("k",))


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArrowTable:
    """Version 3: keys 0 to 99 in two files of row groups of 7 rows, without the multiples of 5; `v`: the last digit."""
    written = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda *args, **options: written(*args, row_group_size=7, **options))
    made = ArrowTable(tmp_path / "t", SCHEMA, SPEC)
    made.create(CommitRecord(epoch=0))
    for half in (range(50), range(50, 100)):
        made.apply([{"k": k, "v": str(k % 10), "n": k} for k in half])
    made.apply(gone=lambda row: row["k"] % 5 == 0)
    return made


def data_file(table: ArrowTable) -> Path:
    return min(on_disk(table.path).glob("epoch-*.parquet"))


def flip(file: Path, bit: int) -> None:
    """Flips one bit and keeps the file's time, as a disk that rots does; readers begin anew."""
    about, data = file.stat(), bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))
    data_files._found.cache_clear()


@pytest.mark.parametrize(
    ("predicate", "keys"),
    [
        ({}, [k for k in range(100) if k % 5]),
        ({"k": [13, 15, 77, 1000]}, [13, 77]),
        ({"v": ["3"], "k": range(40)}, [3, 13, 23, 33]),
        ({"n": [99]}, [99]),
        ({"k": []}, []),
    ],
)
def test_a_predicate_finds_the_live_rows_that_meet_it(table: ArrowTable, predicate: Predicate, keys: list[int]) -> None:
    rows = reader.read_rows(table.path, columns=["v", "k"], predicate=predicate)
    assert sorted(rows["k"].to_pylist()) == keys
    assert rows.column_names == ["v", "k"]


def test_a_file_that_cannot_hold_a_key_is_not_opened(table: ArrowTable) -> None:
    data_file(table).unlink()
    assert reader.read_rows(table.path, predicate={"k": [77]})["k"].to_pylist() == [77]


@pytest.mark.parametrize("stats", ["", "{", "[]", '{"minValues": {"k": "a"}, "maxValues": {"k": "b"}}'])
def test_statistics_that_do_not_read_exclude_nothing(stats: str) -> None:
    assert may_hold({"stats": stats}, {"k": [1]})


def test_any_flipped_bit_of_a_data_file_is_found_before_it_is_opened(table: ArrowTable) -> None:
    file = data_file(table)
    for bit in range(3, file.stat().st_size * 8, 997):
        flip(file, bit)
        reads: Sequence[Callable[[], pa.Table]] = (
            lambda: reader.read_rows(table.path, columns=["k"]),
            lambda: reader.read_rows(table.path, predicate={"k": [1]}),
            lambda: reader.read_changes(table.path),
        )
        for read in reads:
            with pytest.raises(CorruptState, match="fails its checksum"):
                read()
        flip(file, bit)
    assert reader.read_rows(table.path).num_rows == 80


def test_a_verified_file_is_not_summed_up_again(table: ArrowTable, monkeypatch: pytest.MonkeyPatch) -> None:
    reader.read_rows(table.path)
    monkeypatch.setattr(data_files, "checksum", lambda _: "0")
    assert reader.read_rows(table.path).num_rows == 80


def test_a_broken_file_that_was_restored_reads_again(table: ArrowTable, tmp_path: Path) -> None:
    """From a backup, with the time that it had, into a process that has met it broken."""
    file = data_file(table)
    shutil.copy2(file, tmp_path / "backup")
    flip(file, 999)
    with pytest.raises(CorruptState, match="fails its checksum"):
        reader.read_rows(table.path)
    assert file.stat().st_mtime_ns == (tmp_path / "backup").stat().st_mtime_ns
    (tmp_path / "backup").replace(file)
    assert reader.read_rows(table.path).num_rows == 80


def test_rows_that_are_not_those_committed_are_found_by_their_digest(table: ArrowTable) -> None:
    """A writer that committed another digest than its rows have."""
    head = reader.head(table.path)
    assert head is not None
    other = log.commit_info("WRITE", replace(head.record, digest=str(Digest(1, 2, 80))))
    assert log.write_commit(table.path, 4, [other])
    with pytest.raises(CorruptState, match="not those that were committed"):
        reader.read_rows(table.path, columns=["n", "k", "v"])
    assert reader.read_rows(table.path, columns=["k", "v"]).num_rows == 80


def test_a_vector_that_names_rows_that_are_not_there_is_an_error(table: ArrowTable) -> None:
    file = data_file(table)
    pq.write_table(pq.read_table(file).slice(0, 5), file)
    with pytest.raises(StoreError):
        reader.read_rows(table.path)


def test_the_schema_is_the_one_that_delta_rs_reads() -> None:
    schema = pa.schema(
        [
            pa.field("a", pa.int64(), nullable=False),
            *((f"p{n}", kind) for n, kind in enumerate(PLAIN)),
            ("l", pa.list_(pa.field("element", pa.struct([("x", pa.int32())])))),
            ("m", pa.map_(pa.string(), pa.list_(pa.field("element", pa.decimal128(38, 10))))),
        ]
    )
    text = Schema.from_arrow(schema).to_json()
    assert arrow_schema(text) == pa.schema(Schema.from_json(text))
    assert arrow_schema(text) == schema


PLAIN = [
    pa.bool_(), pa.int32(), pa.float64(), pa.string(), pa.binary(), pa.date32(), pa.timestamp("us", "UTC"),
    pa.timestamp("us"), pa.decimal128(10, 2),
]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"fields": [{"name": "a", "type": "variant", "nullable": true}]}'])
def test_a_schema_that_is_not_known_is_a_typed_error(text: str) -> None:
    with pytest.raises(CorruptState):
        arrow_schema(text)
