"""Reading without a JVM: heads, pinned rows, changes, and the errors of what is missing or broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from strandline.state_store.commits import CommitRecord, Head, TableVersion
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import create_table, make_checkpoint
from strandline.state_store.delta.entry import Action
from strandline.state_store.errors import CorruptState, ForeignWrite, TableMissing, VersionGone
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable, Row

STATE = pa.struct([("__n", pa.int64())])
SCHEMA = pa.schema([("k", pa.string()), ("tags", pa.map_(pa.string(), pa.int64())), ("__state", STATE)])
SPEC = TableSpec("t", (("k", "STRING"), ("tags", "MAP<STRING, BIGINT>")), "keyed", ("k",), "STRUCT<__n: BIGINT>")


def _rows(*rows: tuple[str, dict[str, int] | None, int]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"k": k, "tags": list(tags.items()) if tags else None, "__state": {"__n": n}} for k, tags, n in rows], SCHEMA
    )


def _record(epoch: int) -> CommitRecord:
    return CommitRecord(epoch=epoch, vector={"log": TableVersion(epoch * 10, "a table", "a commit")}, mode="delta")


def _commit(path: Path, rows: pa.Table, epoch: int, gone: Callable[[Row], bool] | None = None) -> Head:
    return ArrowTable(path, SCHEMA, SPEC).apply(rows.to_pylist(), gone, _record(epoch))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version 0: empty. Version 1: a and b."""
    path = tmp_path / "tables" / "t"
    ArrowTable(path, SCHEMA, SPEC).create(_record(0))
    _commit(path, _rows(("a", {"x": 1}, 1), ("b", None, 2)), 1)
    return path


def _update(path: Path, epoch: int, tags: dict[str, int], n: int) -> None:
    _commit(path, _rows(("a", tags, n)), epoch, lambda row: row["k"] == "a")


def _head(path: Path) -> tuple[int, int, dict[str, int]]:
    """Version, epoch and vector."""
    head = reader.head(path)
    assert head is not None
    return head.version, head.record.epoch, head.record.versions


def test_there_is_no_head_without_a_table(tmp_path: Path) -> None:
    assert reader.head(tmp_path / "nothing") is None
    (tmp_path / "begun" / "_delta_log").mkdir(parents=True)
    assert reader.head(tmp_path / "begun") is None


def test_a_new_table_is_empty_and_its_head_is_the_creating_record(tmp_path: Path) -> None:
    path = tmp_path / "t"
    assert reader.head(path) is None
    made = ArrowTable(path, SCHEMA, SPEC).create(_record(0))
    assert reader.head(path) == made
    assert _head(path) == (0, 0, {"log": 0})
    assert reader.read_rows(path).num_rows == 0
    assert DeltaTable(path).protocol().reader_features == ["deletionVectors"]


def test_creating_a_table_twice_leaves_the_first(tmp_path: Path) -> None:
    path = tmp_path / "t"
    text = Schema.from_arrow(SCHEMA).to_json()
    first, late = (_record(0).identified(identity) for identity in ("first", "late"))
    assert create_table(path, text, SPEC.properties, first)
    assert not create_table(path, text, SPEC.properties, late)
    assert reader.head(path) == Head(0, first)
    assert [p.name for p in (path / "_delta_log").iterdir()] == [f"{0:020d}.json"]


def test_the_head_is_the_newest_version_with_the_newest_record_at_or_below_it(table: Path) -> None:
    for epoch in (2, 3):
        _commit(table, _rows((str(epoch), None, epoch)), epoch)
    before = reader.head(table)
    assert before is not None
    DeltaTable(table).optimize.compact()
    assert reader.head(table) == Head(4, before.record)
    assert reader.version_at(table, 4) == TableVersion(4, before.record.table, before.record.nonce)


@pytest.mark.parametrize("change", ["append", "delete", "restore"])
def test_another_tool_that_changes_rows_is_found_out(table: Path, change: str) -> None:
    _commit(table, _rows(("c", None, 1)), 2)
    theirs = DeltaTable(table)
    if change == "append":
        write_deltalake(theirs, _rows(("d", None, 1)), mode="append")
    elif change == "delete":
        theirs.delete("k = 'a'")
    else:
        theirs.restore(1)
    with pytest.raises(ForeignWrite, match="version 3 of 't' is not ours") as found:
        reader.head(table)
    assert found.value.hint is not None
    assert "restore" not in found.value.hint


def test_the_head_is_found_from_a_checkpoint_on_and_without_its_hint(table: Path) -> None:
    for epoch in range(2, 7):
        _commit(table, _rows((str(epoch), None, epoch)), epoch)
        if epoch == 4:
            make_checkpoint(table, 4)
    hint = table / "_delta_log" / "_last_checkpoint"
    assert json.loads(hint.read_text())["version"] == 4
    assert DeltaTable(table).version() == 6
    assert _head(table) == (6, 6, {"log": 60})
    for content in (hint.read_text().replace("4", "3", 1), '{"vers'):
        hint.write_text(content)
        assert _head(table) == (6, 6, {"log": 60})
    hint.unlink()
    assert _head(table) == (6, 6, {"log": 60})


@pytest.mark.parametrize("content", ["", '{"commitInfo": {"timest'])
def test_a_torn_commit_is_an_error_not_a_version(table: Path, content: str) -> None:
    (table / "_delta_log" / f"{2:020d}.json").write_text(content)
    with pytest.raises(CorruptState):
        reader.head(table)


def test_a_table_of_another_tool_has_no_head(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "t", pa.table({"k": ["a"]}))
    with pytest.raises(ForeignWrite):
        reader.head(tmp_path / "t")


def test_rows_are_pinned_to_a_version_and_state_is_not_shown(table: Path) -> None:
    _commit(table, _rows(("c", None, 3)), 2)
    assert reader.read_rows(table, 1).column_names == ["k", "tags"]
    assert sorted(reader.read_rows(table, 1)["k"].to_pylist()) == ["a", "b"]
    assert sorted(reader.read_rows(table)["k"].to_pylist()) == ["a", "b", "c"]
    assert reader.read_rows(table, 0).num_rows == 0


def test_columns_and_rows_can_be_chosen_and_state_asked_for(table: Path) -> None:
    rows = reader.read_rows(table, columns=["__state", "k"], predicate={"k": ["a"]})
    assert rows.to_pylist() == [{"__state": {"__n": 1}, "k": "a"}]
    assert rows.schema == pa.schema([SCHEMA.field("__state"), SCHEMA.field("k")])


def test_rows_come_in_plain_arrow_types(table: Path) -> None:
    assert reader.schema(table) == reader.read_rows(table).schema
    assert reader.read_rows(table).schema.field("k").type == pa.string()
    assert pa.types.is_map(reader.schema(table).field("tags").type)


def test_scanning_gives_the_rows_in_batches(table: Path) -> None:
    assert sum(batch.num_rows for batch in reader.scan(table)) == 2


def test_a_missing_table_and_a_missing_version_are_named(table: Path, tmp_path: Path) -> None:
    with pytest.raises(TableMissing, match="no table 'nothing'"):
        reader.read_rows(tmp_path / "nothing")
    with pytest.raises(TableMissing):
        reader.read_changes(tmp_path / "nothing")
    with pytest.raises(VersionGone, match="version 9"):
        reader.read_rows(table, 9)
    with pytest.raises(VersionGone, match="version 9"):
        reader.read_changes(table, 1, 9)


def test_a_data_file_that_is_gone_or_broken_is_a_typed_error(table: Path) -> None:
    (file,) = (f for f in table.rglob("*.parquet") if "_delta_log" not in f.parts)
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(VersionGone):
        reader.read_rows(table)
    file.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptState):
        reader.read_rows(table)


def test_changes_are_the_visible_rows_with_weights_old_before_new(table: Path) -> None:
    _update(table, 2, {"y": 7}, 1)
    changes = reader.read_changes(table)
    listed = [(r["_commit_version"], r["__weight"], r["k"], r["tags"]) for r in changes.to_pylist()]
    assert listed == [(1, 1, "a", [("x", 1)]), (1, 1, "b", None), (2, -1, "a", [("x", 1)]), (2, 1, "a", [("y", 7)])]
    assert changes.column_names == ["k", "tags", "_commit_version", "_commit_timestamp", "__weight"]


def test_a_commit_that_changes_only_state_brings_no_change(table: Path) -> None:
    _update(table, 2, {"x": 1}, 99)
    assert reader.read_rows(table, columns=["__state"], predicate={"k": ["a"]}).to_pylist() == [
        {"__state": {"__n": 99}}
    ]
    assert reader.read_changes(table, 1).num_rows == 0


def test_changes_between_two_versions(table: Path) -> None:
    _commit(table, _rows(("c", None, 3)), 2)
    _commit(table, _rows(("d", None, 4)), 3)
    assert reader.read_changes(table, 1, 2)["k"].to_pylist() == ["c"]
    assert reader.read_changes(table, 2)["k"].to_pylist() == ["d"]
    assert reader.read_changes(table, 3).num_rows == 0
    assert reader.read_changes(table, -1)["k"].to_pylist() == reader.read_changes(table)["k"].to_pylist()
    assert reader.read_changes(table, 3).schema == reader.read_changes(table).schema


def test_a_gap_in_the_log_is_an_error_not_a_shorter_changelog(table: Path) -> None:
    for epoch in (2, 3):
        _commit(table, _rows((str(epoch), None, epoch)), epoch)
    make_checkpoint(table, 3)
    (table / "_delta_log" / f"{2:020d}.json").unlink()
    with pytest.raises(VersionGone, match="version 2"):
        reader.read_changes(table, 1)
    assert reader.read_rows(table).num_rows == 4


def test_the_log_may_not_name_files_outside_the_table(table: Path) -> None:
    for name in ("../other/x.parquet", "/etc/passwd", "file:///etc/passwd", "a/%2E%2E/%2E%2E/x"):
        action: Action = {
            "add": {"path": name, "dataChange": True, "size": 1, "partitionValues": {}, "modificationTime": 0}
        }
        (table / "_delta_log" / f"{2:020d}.json").write_text(json.dumps(action))
        with pytest.raises(CorruptState, match="outside the table"):
            log.read_commit(table, 2)


def test_the_size_of_a_version_is_that_of_its_files(table: Path) -> None:
    size = reader.size_bytes(table, 1)
    assert size == sum(f.stat().st_size for f in table.glob("epoch-*.parquet"))
    assert reader.size_bytes(table, 0) == 0
