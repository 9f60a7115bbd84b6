"""Commits made by the store, whatever their history, read back alike by our reader and by delta-rs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from deltalake import QueryBuilder
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from strandline.state_store import changelog
from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import Rows, commit, make_checkpoint
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import digest_of_table
from strandline.state_store.errors import CommitConflict, CorruptState
from strandline.state_store.files import remove_file
from strandline.state_store.paths import LakePath
from tests.support.arrow_table import ArrowTable, Row
from tests.support.examples import examples
from tests.support.keyed_table import SCHEMA, having, made, rows
from tests.support.lakes import below, delta_rs, s3_folder
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
        commit(table.path, head, CommitRecord(epoch=2), Rows(late, {name: _places(0)}))
    assert below(table.path) == before


@pytest.mark.parametrize(("name", "place"), [("other.parquet", 0), (None, 3), (None, 1)])
def test_a_row_that_is_not_there_cannot_go(folder: LakePath, name: str | None, place: int) -> None:
    table = made(folder)
    table.apply(rows(range(3)))
    head = table.apply(gone=lambda row: row["k"] == 1)
    (file,) = read_snapshot(table.path, head.version).files
    before = below(table.path)
    with pytest.raises(CorruptState, match="are not there"):
        commit(table.path, head, CommitRecord(epoch=3), Rows(None, {name or file: _places(place)}))
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
