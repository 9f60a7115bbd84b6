"""The bounds of a file's columns, as the log has them."""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import RowChanges, commit
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.entry import Action
from strandline.state_store.delta.snapshot import Snapshots, read_snapshot, unproven_snapshot
from strandline.state_store.delta.statistics import (
    ROWS_TAG,
    RowSums,
    loosened,
    rows_tag,
    statistics,
    tagged_digest,
    whole_bounds,
    without_nulls,
)
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import remove_file
from strandline.state_store.paths import LakePath
from tests.support.arrow_table import ArrowTable
from tests.support.forged_checkpoint import forged
from tests.support.keyed_table import head_of, made, rows


def bounds(path: Path, values: list[Any], kind: pa.DataType) -> tuple[Any, Any]:
    pq.write_table(pa.table({"c": pa.array(values, kind)}), path)
    found = json.loads(statistics(pq.read_metadata(path), ["c"]))
    return found["minValues"].get("c"), found["maxValues"].get("c")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        (["2024-01-01T00:00:00.001999"], ("2024-01-01T00:00:00.001Z", "2024-01-01T00:00:00.002Z")),
        (["2024-01-01T00:00:00"], ("2024-01-01T00:00:00.000Z", "2024-01-01T00:00:00.000Z")),
        (["2024-01-01T00:00:00", "9999-12-31T23:59:59.999999"], (None, None)),
    ],
)
def test_instants_are_rounded_outwards_and_the_last_ones_have_no_bound(
    tmp_path: Path, values: list[str], found: tuple[str | None, str | None]
) -> None:
    utc = [dt.datetime.fromisoformat(value).replace(tzinfo=dt.UTC) for value in values]
    assert bounds(tmp_path / "f.parquet", utc, pa.timestamp("us", "UTC")) == found


def test_dates_are_as_they_are(tmp_path: Path) -> None:
    values = [dt.date(1, 1, 1), dt.date(9999, 12, 31)]
    assert bounds(tmp_path / "f.parquet", values, pa.date32()) == ("0001-01-01", "9999-12-31")


def test_columns_without_null_are_those_of_which_the_statistics_say_so(tmp_path: Path) -> None:
    """Also fields of `__state`; nothing is known of a column without bounds, nor of another tool's text."""
    state = pa.array([{"g": 1, "h": None}, {"g": 2, "h": 3}])
    rows = pa.table({"k": [1, 2], "n": [None, "a"], "long": ["x" * 200, "y"], "__state": state})
    pq.write_table(rows, tmp_path / "f.parquet")
    footer = pq.read_metadata(tmp_path / "f.parquet")
    stats = statistics(footer, ["k", "n", "long", "__state.g", "__state.h", "missing"])
    assert without_nulls(stats) == {"k", "__state.g"}
    assert without_nulls(loosened(stats)) == {"k", "__state.g"}, "rows were deleted since"
    for other in ("", "{", "[]", '{"numRecords":1}', '{"nullCount":[1]}', '{"nullCount":{"__state":1}}'):
        assert without_nulls(other) == frozenset()


@pytest.mark.parametrize("columns", [["a", "a.b"], ["a.b", "a"], ["a.b", "a.b.c", "a"]])
def test_a_column_may_have_a_dot_in_its_name(tmp_path: Path, columns: list[str]) -> None:
    """Only below `__state` it leads to a field."""
    rows = {name: [number, number + 10] for number, name in enumerate(columns)}
    pq.write_table(pa.table({**rows, "__state": [{"g.h": 1}, {"g.h": 2}]}), tmp_path / "f.parquet")
    stats = statistics(pq.read_metadata(tmp_path / "f.parquet"), [*columns, "__state.g.h"])
    found = json.loads(stats)
    assert found["minValues"] == {name: low for name, (low, _) in rows.items()} | {"__state": {"g.h": 1}}
    assert found["maxValues"] == {name: high for name, (_, high) in rows.items()} | {"__state": {"g.h": 2}}
    assert without_nulls(stats) == {*columns, "__state.g.h"}


@pytest.mark.parametrize("columns", [["a", "a.b"], ["a.b", "a"]])
def test_a_column_that_is_called_as_a_field_of_another_has_no_bounds(tmp_path: Path, columns: list[str]) -> None:
    both = {"a": [{"b": 1}], "a.b": [7]}
    pq.write_table(pa.table({name: both[name] for name in columns}), tmp_path / "f.parquet")
    found = json.loads(statistics(pq.read_metadata(tmp_path / "f.parquet"), ["a.b"]))
    assert found["minValues"] == found["maxValues"] == found["nullCount"] == {}


# What the log says of a table's rows is compared with its record when the table is opened: no row is read for it.


def with_tags(table: ArrowTable, keys: range) -> None:
    """One more epoch, whose file says what its rows come to."""
    import pyarrow as pa

    head, new = head_of(table), pa.Table.from_pylist(rows(keys), table.schema)
    digest = table._digest(new)
    staged = stage_rows(new, table.path, head.record.epoch + 1, table.spec.indexed)
    schema_json = read_snapshot(table.path, head.version).schema_json
    said = str(Digest.parse(head.record.digest) + digest)
    record = replace(head.record, epoch=head.record.epoch + 1, digest=said)
    commit(table.path, head, record, RowChanges(staged.tagged([digest], schema_json)))


def without_an_add(actions: list[Action]) -> list[Action]:
    lost = next(action for action in actions if "add" in action)
    return [action for action in actions if action is not lost]


def with_an_add_of_other_rows(actions: list[Action]) -> list[Action]:
    """As many rows of another file: only the digest tells it."""
    first, second = (action["add"] for action in actions if "add" in action)
    tags = {**first["tags"], ROWS_TAG: second["tags"][ROWS_TAG]}
    return [
        {"add": {**first, "tags": tags}} if action.get("add", {}).get("path") == first["path"] else action
        for action in actions
    ]


def log_cleaned(table: ArrowTable) -> None:
    for version in range(head_of(table).version):
        remove_file(log.commit_file(table.path, version))


@pytest.fixture
def table(folder: LakePath) -> ArrowTable:
    made_table = made(folder)
    with_tags(made_table, range(3))
    with_tags(made_table, range(10, 13))
    return made_table


@pytest.mark.parametrize("change", [without_an_add, with_an_add_of_other_rows])
def test_a_checkpoint_that_does_not_add_up_is_passed_over(
    table: ArrowTable, change: Callable[[list[Action]], list[Action]], caplog: pytest.LogCaptureFixture
) -> None:
    before = sorted(map(repr, table.stored(2)))
    forged(table, change)
    assert unproven_snapshot(table.path, 2).difference
    with caplog.at_level(logging.WARNING):
        assert sorted(map(repr, table.stored(2))) == before
    assert "the checkpoint of version 2 of 't' is passed over" in caplog.text
    assert reader.read_rows(table.path).num_rows == 6


@pytest.mark.parametrize("change", [without_an_add, with_an_add_of_other_rows])
def test_without_the_commits_below_it_is_an_error_and_nothing_is_committed(
    table: ArrowTable, change: Callable[[list[Action]], list[Action]]
) -> None:
    forged(table, change)
    log_cleaned(table)
    head = head_of(table)
    with pytest.raises(CorruptState, match="are not those that were committed"):
        read_snapshot(table.path, 2)
    with pytest.raises(CorruptState):
        Snapshots().at(table.path, 2)
    with pytest.raises(CorruptState):
        reader.read_rows(table.path, predicate={"k": [1]})
    name = next(iter(unproven_snapshot(table.path, 2).files))
    with pytest.raises(CorruptState, match="are not those that were committed") as refused:
        commit(table.path, head, replace(head.record, epoch=3), RowChanges(None, {name: BitMap64([0])}))
    assert "strandline rebuild t" in str(refused.value.hint)
    assert head_of(table) == head


def test_a_table_without_tags_is_proven_by_the_number_of_its_rows(folder: LakePath) -> None:
    """As those of earlier versions are."""
    table = made(folder)
    table.apply(rows(range(4)))
    table.apply(rows(range(10, 12)), lambda row: row["k"] == 1)
    found = read_snapshot(table.path, 2)
    assert (found.sums.rows, found.sums.digest(found.schema_json)) == (5, None)
    assert found.sums.proof(found.schema_json) == (
        "5 rows by number only: not every file has a digest of its rows in the log"
    )
    forged(table, without_an_add)
    log_cleaned(table)
    with pytest.raises(CorruptState, match=r"its files have \d rows by the log, and 5 were committed"):
        read_snapshot(table.path, 2)


def test_a_commit_whose_rows_are_not_those_of_its_record_is_not_made(table: ArrowTable) -> None:
    head = head_of(table)
    name = next(iter(read_snapshot(table.path, head.version).files))
    record = replace(head.record, epoch=head.record.epoch + 1)
    with pytest.raises(CorruptState, match="5 rows by the log, and 6 were committed"):
        commit(table.path, head, record, RowChanges(None, {name: BitMap64([0])}))
    assert head_of(table) == head


def test_a_tag_that_was_made_for_other_rows_or_columns_says_nothing() -> None:
    """As after a DELETE of another tool, which copies the tags of a file beside a new deletion vector."""
    text = json.dumps({"fields": [{"name": "k", "type": "long"}, {"name": "__state", "type": "string"}]})
    wider = json.dumps({"fields": [{"name": "k", "type": "long"}, {"name": "l", "type": "long"}]})
    body: dict[str, Any] = {
        "path": "a",
        "stats": '{"numRecords":3}',
        "tags": {ROWS_TAG: rows_tag(Digest(1, 2, 3), text)},
    }
    assert tagged_digest(body, text) == Digest(1, 2, 3)
    assert tagged_digest(body, wider) is None
    deleted = {**body, "deletionVector": {"cardinality": 1}}
    assert tagged_digest(deleted, text) is None
    assert (RowSums().plus(deleted).rows, RowSums().plus(deleted).digest(text)) == (2, None)
    assert RowSums().plus(body).plus(body, -1).digest(text) == Digest()


def test_bounds_of_whole_numbers_are_told_from_others() -> None:
    said = {
        "minValues": {"k": -(2**63), "b": False, "t": "a", "x": 0.5, "a.b": 3, "__state": {"__k0": 4}},
        "maxValues": {"k": 2**63 - 1, "b": True, "t": "b", "x": 7, "a.b": 9, "__state": {"__k0": 4}, "only": 1},
    }
    found = {name: whole_bounds(json.dumps(said), name) for name in ("k", "b", "t", "x", "a.b", "__state.__k0", "only")}
    assert found == {
        "k": (-(2**63), 2**63 - 1),
        "a.b": (3, 9),
        "__state.__k0": (4, 4),
        **dict.fromkeys(("b", "t", "x", "only")),
    }
    assert [whole_bounds(stats, "k") for stats in ("", "{}", "7", "[]", '{"minValues": 3}', "{")] == [None] * 6
