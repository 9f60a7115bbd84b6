"""Commits made by the store, whatever their history, read back alike by our reader and by delta-rs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from strandline.state_store import changelog
from strandline.state_store.commits import COLUMNS, CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges, commit, digest_with, make_checkpoint, widen
from strandline.state_store.delta.compaction import CompactionPlan, Merge, compact
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.snapshot import Snapshot, read_snapshot
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.errors import CommitConflict, CorruptState
from strandline.state_store.files import remove_file
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import WEIGHT, schema_json
from tests.support.arrow_table import ArrowTable, Row
from tests.support.examples import examples
from tests.support.keyed_table import SCHEMA, SPEC, having, head_of, made, rows
from tests.support.lakes import below, delta_rs, s3_folder
from tests.support.on_disk import on_disk
from tests.support.s3_server import S3Server


def visible(found: Iterable[Row]) -> Counter[tuple[int, str]]:
    return Counter((row["k"], row["v"]) for row in found)


def check(table: ArrowTable, history: dict[int, Counter[tuple[int, str]]]) -> None:
    """Every version is the model's for both readers, the digest is that of the rows, and the feed folds to them."""
    feed = reader.read_changes(table.path)
    for version, expected in history.items():
        assert visible(table.stored(version)) == expected
        theirs = QueryBuilder().register("t", delta_rs(table.path, version)).execute("SELECT k, v FROM t")
        assert visible(pa.table(theirs.read_all()).to_pylist()) == expected
        upto = feed.filter(pa.compute.field("_commit_version") <= version)
        assert visible(changelog.fold(upto).to_pylist()) == expected
    head = reader.head(table.path)
    assert head is not None
    assert str(digest_of_table(reader.scan(table.path))) == head.record.digest


OPERATIONS = st.lists(
    st.sampled_from(["insert", "update", "delete some", "delete a file", "empty", "advance", "checkpoint", "compact"]),
    min_size=1,
    max_size=9,
)


@given(operations=OPERATIONS, seed=st.randoms(use_true_random=False))
@settings(max_examples=examples(10))
def test_any_history_is_read_alike(
    tmp_path_factory: pytest.TempPathFactory, operations: list[str], seed: Random
) -> None:
    live(made(tmp_path_factory.mktemp("history")), operations, seed)


@given(operations=OPERATIONS, seed=st.randoms(use_true_random=False))
@settings(max_examples=6)
def test_any_history_on_an_object_store_is_read_alike(s3_server: S3Server, operations: list[str], seed: Random) -> None:
    """Few examples: the code is the same but for where bytes come from and go to."""
    live(made(s3_folder(s3_server)), operations, seed)


def live(table: ArrowTable, operations: list[str], seed: Random) -> None:
    head = Head(0, CommitRecord(epoch=0))
    model: dict[int, str] = {}
    history = {0: visible([])}
    for operation in ["insert", *operations]:
        keys = {k for k in model if seed.random() < 0.4}
        match operation:
            case "insert":
                first = max(model, default=0) + 1
                new = rows(range(first, first + seed.randrange(1, 40)))
                model |= {row["k"]: row["v"] for row in new}
                head = table.apply(new)
            case "update":
                new = [{"k": k, "v": str(seed.random()), "__state": None} for k in sorted(keys)]
                model |= {row["k"]: row["v"] for row in new}
                head = table.apply(new, having(keys))
            case "delete some" | "empty" | "delete a file":
                keys = (
                    _of_one_file(table) if operation == "delete a file" else keys if "some" in operation else set(model)
                )
                model = {k: v for k, v in model.items() if k not in keys}
                head = table.apply((), having(keys))
            case "advance":
                head = table.apply()
            case "checkpoint":
                make_checkpoint(table.path, head.version)
            case "compact":
                delta_rs(table.path).optimize.compact()
                now = reader.head(table.path)
                assert now is not None
                assert now.record == head.record
                head = now
        history[head.version] = Counter(model.items())
    check(table, history)


def _of_one_file(table: ArrowTable) -> set[int]:
    head = reader.head(table.path)
    assert head is not None
    files = read_snapshot(table.path, head.version).files
    name = next(iter(files), None)
    return {row["k"] for _, row in table._live(name, files[name])} if name else set()


def test_rows_of_several_files_go_with_one_file_of_vectors(folder: LakePath) -> None:
    table = made(folder)
    for first in (0, 10, 20):
        table.apply(rows(range(first, first + 10)))
    head = table.apply(gone=lambda row: row["k"] in (3, 13, 14) or row["k"] >= 20)
    files = read_snapshot(table.path, head.version).files
    assert sorted(body["deletionVector"]["cardinality"] for body in files.values()) == [1, 2]
    assert sum(name.startswith("deletion_vector_") for name in below(table.path)) == 1
    assert head.record.deleted == 13
    again = table.apply(gone=lambda row: row["k"] in (4, 13, 15))
    found = read_snapshot(table.path, again.version).files
    assert sorted(body["deletionVector"]["cardinality"] for body in found.values()) == [2, 3]


def test_the_log_says_what_keys_a_file_holds(folder: LakePath) -> None:
    table = made(folder)
    head = table.apply(rows(range(5, 9)))
    (body,) = read_snapshot(table.path, head.version).files.values()
    stats = json.loads(body["stats"])
    assert stats == {"numRecords": 4, "minValues": {"k": 5}, "maxValues": {"k": 8}, "nullCount": {"k": 0}}
    after = table.apply(gone=lambda row: row["k"] == 5)
    (body,) = read_snapshot(table.path, after.version).files.values()
    assert json.loads(body["stats"]) == {**stats, "tightBounds": False}


def test_of_two_commits_after_one_head_the_second_leaves_nothing(folder: LakePath) -> None:
    table = made(folder)
    head = table.apply(rows(range(3)))
    table.apply(rows(range(3, 5)))
    before = below(table.path)
    late = stage_rows(pa.Table.from_pylist(rows(range(9)), SCHEMA), table.path, 2)
    (name,) = read_snapshot(table.path, head.version).files
    with pytest.raises(CommitConflict, match="since version 1"):
        commit(table.path, head, CommitRecord(epoch=2), RowChanges(late, {name: _places(0)}))
    assert below(table.path) == before


@pytest.mark.parametrize(("name", "place"), [("other.parquet", 0), (None, 3), (None, 1)])
def test_a_row_that_is_not_there_cannot_go(folder: LakePath, name: str | None, place: int) -> None:
    table = made(folder)
    table.apply(rows(range(3)))
    head = table.apply(gone=lambda row: row["k"] == 1)
    (file,) = read_snapshot(table.path, head.version).files
    before = below(table.path)
    with pytest.raises(CorruptState, match="are not there"):
        commit(table.path, head, CommitRecord(epoch=3), RowChanges(None, {name or file: _places(place)}))
    assert below(table.path) == before


def test_a_commit_names_its_table_and_itself(folder: LakePath) -> None:
    table = made(folder)
    heads = [table.apply(), table.apply()]
    assert len({head.record.table for head in heads}) == 1
    assert len({head.record.nonce for head in heads}) == 2
    assert reader.version_at(table.path, 1) == heads[0].at
    assert delta_rs(table.path).transaction_version("strandline/t") == 2


def _places(*positions: int) -> BitMap64:
    return BitMap64(positions)


def test_a_log_is_opened_from_a_checkpoint(folder: LakePath) -> None:
    table = made(folder)
    for first in range(3):
        head = table.apply(rows(range(first, first + 1)))
    make_checkpoint(table.path, head.version)
    table.apply(rows(range(5, 7)))
    for version in range(head.version + 1):
        remove_file(log.commit_file(table.path, version))
    assert sorted(row["k"] for row in reader.read_rows(table.path).to_pylist()) == [0, 1, 2, 5, 6]
    assert table.apply(rows(range(8, 9))).version == 5


def test_a_log_is_opened_from_its_newest_checkpoint(tmp_path: Path) -> None:
    """The interval's checkpoint is there; the commits before it are not needed to read on."""
    table = made(tmp_path)
    table.apply(rows(range(50)))
    for k in range(49):
        table.apply(gone=having([k]))
    head = reader.head(table.path)
    assert head is not None
    assert head.version == 50
    for version in range(50):
        remove_file(log.commit_file(table.path, version))
    assert visible(table.stored(50)) == Counter({(49, "x"): 1})
    assert reader.read_rows(table.path).to_pylist() == [{"k": 49, "v": "x"}]
    assert table.apply(rows(range(60, 61))).version == 51


# A table that is given further columns: every reader has NULL for the rows from before, at every version.

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
