"""Tables in DuckDB: every epoch is one commit, and every reader sees the rows that the dictionary has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine, Kept
from strandline.state_store.duckdb.table import BATCH_ROWS, DuckDBTable
from strandline.state_store.errors import NegativeWeight, VectorMismatch, VersionGone
from strandline.state_store.paths import LakePath
from tests.support.examples import examples
from tests.support.table_model import FOUR_ROWS, LOG, Key, Row, TableContract
from tests.unit.state_store.duckdb.table_model import Model


@pytest.fixture
def model(duckdb_engine: DuckDBEngine, folder: LakePath, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with duckdb_engine.connection() as connection:
        model = Model(connection, folder / "t", tmp_path_factory.mktemp("copies"))
        model.apply(FOUR_ROWS)
        yield model


class TestTable(TableContract):
    """Of DuckDB's tables."""


def test_more_rows_cannot_go_than_there_are(model: Model) -> None:
    """A record that speaks of fewer rows than there are: its digest would fall below nothing."""
    lying = replace(model.head, record=replace(model.head.record, digest="0" * 32 + ":0"))
    before = model.table.read(model.head.version)
    text = model.settled({(1, "a"): None}, before.text)
    with pytest.raises(NegativeWeight):
        model.table.apply(text, before, CommitRecord(epoch=2), after=lying)
    assert model.table.head() == model.head


def test_an_epoch_that_does_not_follow_the_head_is_refused(model: Model) -> None:
    before = model.table.read(model.head.version)
    with pytest.raises(VectorMismatch):
        model.table.apply("SELECT 1", before, CommitRecord(epoch=7))


def test_changes_are_the_same_from_memory_and_from_the_files(model: Model) -> None:
    before = model.head.version
    model.apply({(1, "a"): (9, {"y": 1}, 2), (1, "b"): None})
    model.apply({(1, "a"): (10, None, 3), (6, "c"): (1, None, 1)})
    afresh = DuckDBTable(model.connection, Kept.nothing(model.copies), model.table.path, model.table.spec, "again")
    listed = "k, v, tags, __state, __weight, _commit_version"
    for after in (None, before, before + 1):
        kept, read = (
            model.connection.sql(f"SELECT {listed} FROM ({table.changes(after, model.head.version)})").fetchall()
            for table in (model.table, afresh)
        )
        assert sorted(map(repr, kept)) == sorted(map(repr, read))
    with pytest.raises(VersionGone, match="made anew"):
        afresh.changes(model.head.version + 1, model.head.version)


def test_a_log_grows_and_gives_each_commit_back(duckdb_engine: DuckDBEngine, folder: LakePath, tmp_path: Path) -> None:
    with duckdb_engine.connection() as connection:
        table = DuckDBTable(connection, Kept.nothing(tmp_path), folder / "log", LOG, "log")
        table.ensure(CommitRecord(epoch=0))
        rows = "SELECT i::BIGINT AS id, 'n' || i AS note, to_timestamp(i) AS at FROM range({}, {}) t(i)"
        for epoch, (first, last) in enumerate([(0, 3), (3, 500_000), (500_000, 500_000), (500_000, 500_002)]):
            head = table.append_if_any(rows.format(first, last), CommitRecord(epoch=table.head().record.epoch + 1))
            assert (head is None) == (epoch == 2)
        assert table.head().version == 3
        [(count, last)] = connection.sql(f"SELECT count(*), max(id) FROM ({table.read(3).text})").fetchall()
        assert (count, last) == (500_002, 500_001)
        changed = connection.sql(f"SELECT count(*), min(id), sum(__weight) FROM ({table.changes(2, 3)})").fetchall()
        assert changed == [(2, 500_000, 2)]
        assert reader.read_rows(table.path).num_rows == 500_002


def test_rows_that_come_in_pieces_are_one_row_group(duckdb_engine: DuckDBEngine, tmp_path: Path) -> None:
    """As the records of many partitions come: each row group costs a reader as much as its first thousand rows."""
    with duckdb_engine.connection() as connection:
        table = DuckDBTable(connection, Kept.nothing(tmp_path / "copies"), tmp_path / "log", LOG, "log")
        table.ensure(CommitRecord(epoch=0))
        piece = pa.table({"id": [1], "note": ["n"], "at": pa.array([0], pa.timestamp("us", "UTC"))})
        table.append(pa.concat_tables([piece] * 20), CommitRecord(epoch=1))
        (file,) = tmp_path.glob("log/epoch-*/*.parquet")
        written = pq.read_metadata(file)
        assert (written.num_rows, written.num_row_groups) == (20, 1)


_KEYS = st.tuples(st.sampled_from([None, 1, 2]), st.sampled_from([None, "a", "b", "ü", ""]))
_ROWS = st.one_of(
    st.none(),
    st.tuples(
        st.sampled_from([None, 0, -1, 2**63 - 1]),
        st.one_of(st.none(), st.dictionaries(st.sampled_from("xy"), st.integers(0, 2))),
        st.integers(0, 1),
    ),
)


@settings(max_examples=examples(12))
@given(st.lists(st.dictionaries(_KEYS, _ROWS, min_size=1, max_size=8), min_size=1, max_size=20))
def test_random_epochs_equal_the_dictionary(duckdb_engine: DuckDBEngine, epochs: list[dict[Key, Row | None]]) -> None:
    """Twenty epochs: compaction, which comes by itself, is among them."""
    with duckdb_engine.connection() as connection, TemporaryDirectory() as folder:
        model = Model(connection, Path(folder) / "t", Path(folder))
        for changes in epochs:
            model.apply(changes)
            # After a compaction the head is its commit.
            model.head = model.table.head()
        model.check()


def test_a_row_that_fails_after_others_were_written_is_no_fault_of_the_disk(
    duckdb_engine: DuckDBEngine, tmp_path: Path
) -> None:
    with duckdb_engine.connection() as connection:
        table = DuckDBTable(connection, Kept.nothing(tmp_path / "copies"), tmp_path / "log", LOG, "log")
        head = table.ensure(CommitRecord(epoch=0))
        late = f"CASE WHEN n < {2 * BATCH_ROWS} THEN 1 ELSE CAST('one' AS BIGINT) END"
        rows = f"SELECT {late} AS id, '' AS note, now() AS at FROM range({2 * BATCH_ROWS + 1}) AS r(n)"
        with pytest.raises(duckdb.Error, match="Conversion Error"):
            table.append_if_any(rows, CommitRecord(epoch=1))
        assert table.head() == head
        assert list((tmp_path / "log").glob("**/*.parquet")) == []
