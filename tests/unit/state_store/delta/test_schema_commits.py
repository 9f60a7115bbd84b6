"""A table that is given further columns: every reader has NULL for the rows from before, at every version."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.state_store.commits import COLUMNS
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import digest_with, make_checkpoint, widen
from strandline.state_store.delta.compaction import CompactionPlan, Merge, compact
from strandline.state_store.delta.snapshot import Snapshot, read_snapshot
from strandline.state_store.digest import Digest
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.errors import CommitConflict, CorruptState
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import WEIGHT, schema_json
from tests.support.arrow_table import ArrowTable
from tests.support.examples import examples
from tests.support.keyed_table import SCHEMA, SPEC, having, head_of, made, rows
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk

WIDE = replace(SPEC, columns=(*SPEC.columns, ("c", "STRING")))
WIDE_SCHEMA = pa.schema([*list(SCHEMA)[:2], ("c", pa.string()), SCHEMA.field("__state")])
ASKED = ["k", "v", "c"]


@pytest.fixture(scope="module")
def duckdb_engine() -> Iterator[DuckDBEngine]:
    with DuckDBEngine("500MB", 1) as duckdb_engine:
        yield duckdb_engine


def widened(table: ArrowTable) -> ArrowTable:
    """The table with one column more."""
    head = head_of(table)
    schema = schema_json(WIDE.stored)
    digest = str(digest_with(table.path, head, schema))
    after = widen(table.path, head, schema, replace(head.record, epoch=head.record.epoch + 1, digest=digest))
    assert (after.version, after.record.mode, after.record.inserted) == (head.version + 1, COLUMNS, 0)
    return ArrowTable(table.path, WIDE_SCHEMA, WIDE)


def in_duckdb(duckdb_engine: DuckDBEngine, path: LakePath, version: int) -> list[tuple[object, ...]]:
    """The rows as DuckDB reads them, whatever it has kept of earlier versions."""
    with duckdb_engine.connection() as connection:
        table = DuckDBTable(connection, duckdb_engine.kept, path, WIDE, "t")
        found = connection.sql(f"SELECT k, v, c, __state.__n FROM ({table.read(version).text})").fetchall()
        assert all(row[0] == row[3] for row in found)
        return sorted(row[:3] for row in found)


def in_arrow(path: LakePath, version: int) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in reader.read_rows(path, version, ASKED).to_pylist())


def _merging(snapshot: Snapshot) -> CompactionPlan:
    files = tuple(snapshot.files)
    return CompactionPlan(snapshot.version, len(files), (Merge(files, 5, 1, "one file"),))


def test_rows_from_before_are_null_in_the_column_at_every_version(
    duckdb_engine: DuckDBEngine, folder: LakePath
) -> None:
    narrow = made(folder)
    narrow.apply(rows(range(4)))
    narrow.apply(gone=lambda row: row["k"] == 0)
    version = head_of(narrow).version
    before = [(k, "x", None) for k in (1, 2, 3)]
    assert in_duckdb(duckdb_engine, narrow.path, version) == before
    table = widened(narrow)
    for each in (version, version + 1):
        assert in_arrow(table.path, each) == before
        assert in_duckdb(duckdb_engine, table.path, each) == before
    table.apply([{**row, "c": "new"} for row in rows(range(5, 7))], lambda row: row["k"] == 2)
    after = [(1, "x", None), (3, "x", None), (5, "x", "new"), (6, "x", "new")]
    assert in_duckdb(duckdb_engine, table.path, version + 2) == in_arrow(table.path, version + 2) == after
    assert in_duckdb(duckdb_engine, table.path, version) == before
    # Who does not know the column reads what it knows.
    assert reader.read_rows(table.path, columns=["k"]).num_rows == 4


def test_a_predicate_on_the_column_finds_new_rows_only(tmp_path: Path) -> None:
    """Files from before have no statistics of it, with and without deleted rows."""
    narrow = made(tmp_path)
    narrow.apply(rows(range(4)))
    narrow.apply(rows(range(10, 14)))
    narrow.apply(gone=lambda row: row["k"] == 0)
    table = widened(narrow)
    table.apply([{**row, "c": f"c{row['k']}"} for row in rows(range(5, 8))])
    found = reader.read_rows(table.path, columns=["k"], predicate={"c": ["c6", "x"]})
    assert found["k"].to_pylist() == [6]
    before = reader.read_rows(table.path, head_of(narrow).version - 2, columns=["k"], predicate={"c": ["c6"]})
    assert before.num_rows == 0


def test_the_commit_is_no_change_and_its_digest_is_that_of_the_rows(folder: LakePath) -> None:
    narrow = made(folder)
    narrow.apply(rows(range(4)))
    version = head_of(narrow).version
    table = widened(narrow)
    commit = log.read_commit(table.path, version + 1)
    assert not commit.changes_rows
    assert (commit.operation, commit.record and commit.record.vector) == ("ADD COLUMNS", head_of(narrow).record.vector)
    assert reader.read_changes(table.path, after=version).num_rows == 0
    assert reader.read_rows(table.path).num_rows == 4  # compared with the record's digest on the way
    changes = reader.read_changes(table.path, after=-1)
    assert (changes.num_rows, changes["c"].null_count) == (4, 4)
    found = reader.digest_of_rows(table.path, read_snapshot(table.path, version + 1))
    assert found == Digest.parse(head_of(table).record.digest)


def test_another_reader_of_delta_sees_the_column(folder: LakePath) -> None:
    narrow = made(folder)
    narrow.apply(rows(range(2)))
    table = widened(narrow)
    found = delta_rs(table.path)
    assert [field.name for field in found.schema().fields] == ["k", "v", "c", "__state"]
    assert str(found.metadata().id) == head_of(table).record.table


def test_checkpoints_and_merged_files_keep_it(duckdb_engine: DuckDBEngine, tmp_path: Path) -> None:
    narrow = made(tmp_path)
    narrow.apply(rows(range(4)))
    narrow.apply(gone=lambda row: row["k"] == 0)
    table = widened(narrow)
    table.apply([{**row, "c": "new"} for row in rows(range(5, 7))])
    head = head_of(table)
    make_checkpoint(table.path, head.version)
    for version in range(head.version):
        on_disk(log.commit_file(table.path, version)).unlink()
    expected = [(1, "x", None), (2, "x", None), (3, "x", None), (5, "x", "new"), (6, "x", "new")]
    assert in_duckdb(duckdb_engine, table.path, head.version) == in_arrow(table.path, head.version) == expected
    snapshot = read_snapshot(table.path, head.version)
    merged = compact(table.path, WIDE, head, snapshot, _merging(snapshot))
    assert len(read_snapshot(table.path, merged.version).files) == 1
    assert in_duckdb(duckdb_engine, table.path, merged.version) == in_arrow(table.path, merged.version) == expected


def test_a_column_that_would_go_or_change_is_refused(tmp_path: Path) -> None:
    table = made(tmp_path)
    head = head_of(table)
    for columns in ((("k", "BIGINT"), ("c", "STRING")), (("k", "STRING"), ("v", "STRING"), ("c", "STRING"))):
        spec = replace(SPEC, columns=columns)
        with pytest.raises(CorruptState, match="would go, or have another type"):
            digest_with(table.path, head, schema_json(spec.stored))
        with pytest.raises(CorruptState, match="would go, or have another type"):
            widen(table.path, head, schema_json(spec.stored), replace(head.record, epoch=1))
    assert head_of(table) == head


def test_the_second_of_two_writers_loses(tmp_path: Path) -> None:
    narrow = made(tmp_path)
    head = head_of(narrow)
    narrow.apply(rows(range(2)))
    with pytest.raises(CommitConflict):
        widen(narrow.path, head, schema_json(WIDE.stored), replace(head.record, epoch=1))
    assert head_of(narrow).version == 1


@given(
    steps=st.lists(st.tuples(st.integers(0, 6), st.booleans(), st.text(max_size=2)), max_size=8), at=st.integers(0, 8)
)
@settings(max_examples=examples(20))
def test_duckdb_reads_what_arrow_reads(
    duckdb_engine: DuckDBEngine, steps: list[tuple[int, bool, str]], at: int
) -> None:
    """Rows that come, go and change before and after the column came; the feed folds to them as well."""
    with TemporaryDirectory() as folder:
        table = made(Path(folder))
        there: dict[int, str | None] = {}
        for number, (key, comes, text) in enumerate(steps):
            if number == at:
                table = widened(table)
            wide = number >= at
            new = [{**row, **({"c": text} if wide else {})} for row in rows(range(key, key + 1))] if comes else []
            if not comes and key not in there:
                continue
            table.apply(new, having([key]))
            there.pop(key, None)
            if comes:
                there[key] = text if wide else None
        if at >= len(steps):
            table = widened(table)
        head = head_of(table)
        expected = sorted((key, "x", text) for key, text in there.items())
        assert in_duckdb(duckdb_engine, table.path, head.version) == in_arrow(table.path, head.version) == expected
        changes = reader.read_changes(table.path, after=-1)
        assert changes.column_names[:3] == ASKED
        assert sum(changes[WEIGHT].to_pylist()) == len(there)
        with duckdb_engine.connection() as connection:
            source = DuckDBTable(connection, duckdb_engine.kept, table.path, WIDE, "t")
            text = source.changes(0, head.version)
            folded = connection.sql(f"SELECT k, c, sum({WEIGHT}) FROM ({text}) GROUP BY ALL HAVING sum({WEIGHT}) <> 0")
            assert sorted(folded.fetchall()) == sorted((key, text, 1) for key, text in there.items())
