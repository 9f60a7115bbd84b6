"""Tables in DuckDB: every epoch is one commit, and every reader sees the rows that the dictionary has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.state_store.arrangements import Arrangements
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb import table as tally_module
from strandline.state_store.duckdb.engine import DuckDBEngine, Kept
from strandline.state_store.duckdb.rows import Keys
from strandline.state_store.duckdb.statements import error_of
from strandline.state_store.duckdb.table import BATCH_ROWS, DuckDBTable, Tally, streamed
from strandline.state_store.errors import CorruptState, NegativeWeight, VectorMismatch, VersionGone
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import TableSpec
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


def test_the_changes_of_an_epoch_that_a_compaction_follows_are_in_memory_too(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever read them next compared the files of all rows, in the epoch that had taken longest anyway."""
    kept = Kept.nothing(tmp_path)
    table = DuckDBTable(model.connection, kept, model.table.path, model.table.spec, "beside")
    monkeypatch.setattr(model, "table", table)
    before = model.head
    while model.head.record.mode != "compact":
        before = model.head
        model.apply({(model.head.version, "z"): (1, None, 1)})
    epoch, compaction = table.commits(before.version, model.head.version)
    assert (epoch.changes_rows, compaction.changes_rows) == (True, False)
    assert epoch.record is not None
    assert kept.recent.find(table.path, epoch.record.nonce) is not None


def test_rows_with_some_keys_are_looked_up_and_deleted_ones_are_not_among_them(model: Model, tmp_path: Path) -> None:
    made = Arrangements(tmp_path / "arrangements", 1 << 30, fewest_rows=1, patience=1, largest_share=1.0)
    model.apply({(1, "a"): (9, {"y": 1}, 2), (1, "b"): None})
    table = DuckDBTable(
        model.connection, Kept.nothing(model.copies, made), model.table.path, model.table.spec, "by_key"
    )
    path = tuple(model.table.spec.key)
    for hidden, key in [(1, "a"), (1, "b"), (7, "a")]:
        values = pa.table({"__k0": pa.array([hidden], pa.int32()), "k": [key]})
        by_name = values.select([name.rpartition(".")[2] for name in path])
        found = table.read(model.head.version, [Keys(path, by_name)])
        condition = f"__state.__k0 = {hidden} AND k = '{key}'"
        looked_up, scanned = (
            model.connection.sql(f"SELECT k, v, __state, __file, __position FROM ({text}) WHERE {condition}").fetchall()
            for text in (found.text, model.table.read(model.head.version).text)
        )
        assert [row[:3] for row in looked_up] == [row[:3] for row in scanned]
        assert (found.found, found.scanned) == (len(scanned), 0)
        places = zip([row[3] for row in looked_up], [row[4] for row in looked_up], strict=True)
        assert [found.files[file] for file, _ in places] == [
            model.table.read(model.head.version).files[row[3]] for row in scanned
        ]
    other_type = Keys(path, pa.table({"__k0": pa.array([1], pa.int64()), "k": ["a"]}).select(by_name.column_names))
    assert table.read(model.head.version, [other_type]).found == 0, "hashes of another type say nothing"


def test_keys_beyond_what_a_file_has_are_not_searched_in_it(duckdb_engine: DuckDBEngine, tmp_path: Path) -> None:
    """Of keys at its ends, NULL and in a file of other columns everything is found as by a scan."""
    made = Arrangements(tmp_path / "arrangements", 1 << 30, fewest_rows=1, patience=1, largest_share=0.5)
    spec = TableSpec("t", (("k", "BIGINT"), ("n", "INT")), "append")
    with duckdb_engine.connection() as connection:
        table = DuckDBTable(connection, Kept.nothing(tmp_path / "copies", made), tmp_path / "t", spec, "t")
        head = table.ensure(CommitRecord(epoch=0))
        for first in (-50, 0, 1000):
            keys = [*range(first, first + 40), None]
            rows = pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(range(len(keys)), pa.int32())})
            head = table.append(rows, replace(head.record, epoch=head.record.epoch + 1))
        for asked, looked_up in (
            # Half of a file's rows at most are looked up: of hundreds of keys each file has few.
            ([-50, 39, 1000, 1039, *range(2000, 2400)], 4),
            ([-51, 40, 999, 1040], 0),
            ([7, None], 4),
        ):
            values = pa.table({"k": pa.array(asked, pa.int64())})
            found = table.read(head.version, [Keys(("k",), values)])
            connection.register("asked", values)
            same = "SEMI JOIN asked ON t.k IS NOT DISTINCT FROM asked.k"
            texts = (found.text, table.read(head.version).text)
            by_key, by_scan = (
                sorted(connection.sql(f"SELECT k, n FROM ({text}) AS t {same}").fetchall(), key=repr) for text in texts
            )
            assert by_key == by_scan
            assert (found.found, found.scanned) == (looked_up, 0), asked[:4]


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
        (file,) = tmp_path.glob("log/epoch-*.parquet")
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


# Rows that DuckDB computes while they are taken: all of them come, and an error on the way says what it is.

_LATE = 2 * BATCH_ROWS
"""A row that the first batch is taken long before."""


def test_every_row_comes_and_no_batch_is_empty(duckdb_engine: DuckDBEngine) -> None:
    with duckdb_engine.connection() as connection:
        sizes = [batch.num_rows for batch in streamed(connection, f"SELECT * FROM range({_LATE + 7})")]
        none = list(streamed(connection, "SELECT * FROM range(9) AS r(i) WHERE i > 9"))
    assert (sum(sizes), min(sizes) > 0, max(sizes) <= BATCH_ROWS, none) == (_LATE + 7, True, True, [])


def test_a_row_that_fails_after_others_were_taken_is_an_error_of_duckdb(duckdb_engine: DuckDBEngine) -> None:
    text = f"SELECT CAST(CASE WHEN i < {_LATE} THEN '1' ELSE 'one' END AS INT) FROM range({_LATE + 1}) AS r(i)"
    with duckdb_engine.connection() as connection:
        rows = streamed(connection, text)
        assert next(rows).num_rows > 0
        with pytest.raises(duckdb.Error, match=r"Conversion Error: .*'one'"):
            list(rows)


def test_rows_that_are_left_leave_the_connection_free(duckdb_engine: DuckDBEngine) -> None:
    with duckdb_engine.connection() as connection:
        rows = streamed(connection, f"SELECT * FROM range({_LATE})")
        next(rows)
        rows.close()
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_too_little_memory_can_be_told_from_other_errors() -> None:
    """The caller lets Spark do what DuckDB has no memory for."""
    assert isinstance(error_of("Out of Memory Error: failed to pin block"), duckdb.OutOfMemoryException)
    assert not isinstance(error_of("Conversion Error: Out of Memory Error:"), duckdb.OutOfMemoryException)


# What is counted while rows pass by: the digest is that of the rows, whoever hashed them.

MANY = pa.table({"k": pa.array(range(20_000)), "v": pa.array(range(20_000, 40_000))})
FEW = pa.table({"k": [1, 2], "v": [3, 4]})


def test_many_rows_hashed_beside_and_few_hashed_at_once_have_one_digest() -> None:
    tally = Tally()
    for rows in (MANY, FEW, MANY):
        tally.insert(rows, ["k", "v"])
    tally.retract(MANY.to_batches()[0], ["k", "v"], ["a", "b"], pa.array([0, 1] * 10_000))
    expected = digest_of_table(MANY.to_batches()) + digest_of_table(FEW.to_batches())
    assert tally.digest == expected
    assert tally.digest == expected, "to be asked for again"
    assert tally.by_file(2) == [expected, digest_of_table(MANY.to_batches())], "a file of two batches, and one of one"
    assert tally.taken["a"] == digest_of_table(MANY.take(list(range(0, 20_000, 2))).to_batches())
    assert tally.taken["a"] + tally.taken["b"] == digest_of_table(MANY.to_batches())
    assert (tally.inserted, tally.deleted) == (40_002, 20_000)


def test_few_batches_wait_for_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow it is, and however many come."""
    waiting: list[int] = []
    made, lock = Counter[str](), Lock()

    def hashed(batches: list[pa.RecordBatch]) -> Digest:
        digest = digest_of_table(batches)
        with lock:
            made["hashed"] += 1
        return digest

    monkeypatch.setattr(tally_module, "digest_of_table", hashed)
    tally = Tally()
    for number in range(1, 31):
        tally.insert(MANY, ["k", "v"])
        with lock:
            waiting.append(number - made["hashed"])
    assert max(waiting) <= tally_module._AHEAD
    assert tally.digest == sum([digest_of_table(MANY.to_batches())] * 30, Digest())


def test_rows_after_the_digest_was_asked_for_are_counted_too() -> None:
    tally = Tally()
    tally.insert(MANY, ["k"])
    before = tally.digest
    tally.insert(MANY, ["k"])
    assert tally.digest == before + before


def test_a_column_without_a_digest_is_an_error_of_the_digest() -> None:
    tally = Tally()
    tally.insert(pa.table({"k": pa.nulls(20_000, pa.uint8()).fill_null(1)}), ["k"])
    for _ in range(2):
        with pytest.raises(CorruptState, match="has no digest"):
            _ = tally.digest


def test_changes_are_kept_with_their_weights_until_they_are_many() -> None:
    tally = Tally()
    tally.retract(FEW.to_batches()[0], ["k"], ["a"], pa.array([0, 0]))
    tally.insert(FEW, ["k"])
    kept = tally.changes()
    assert kept is not None
    assert kept["__weight"].to_pylist() == [-1, -1, 1, 1]
    for _ in range(11):
        tally.insert(MANY, ["k"])
    assert tally.changes() is None
