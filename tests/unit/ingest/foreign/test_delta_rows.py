"""The rows of foreign tables whose logs are written by hand: what each feature comes to, and what is refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.jobs.ingest.foreign.delta_table import ForeignDelta
from strandline.jobs.ingest.foreign.delta_versions import changes_of, check_files, rows_of
from strandline.jobs.model.errors import DeltaMissing, DeltaUnsupported, DeltaVersionGone, SourceError
from tests.support.foreign_log import ForeignLog
from tests.support.lakes import s3_folder
from tests.support.s3_server import S3Server

ID = {"name": "id", "type": "long"}
CAT = {"name": "Cat", "type": "string"}


def ids(*values: int | None) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def changes(log: ForeignLog, version: int) -> list[tuple[int, dict[str, Any]]]:
    """(weight, row), in order."""
    found = changes_of(ForeignDelta(log.path), version)
    return [(-1 if each.gone else 1, row) for each in found for row in each.rows.to_pylist()]


def rows(log: ForeignLog, version: int, first: int = 0) -> list[dict[str, Any]]:
    return [row for part in rows_of(ForeignDelta(log.path), version, first) for row in part.to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> ForeignLog:
    return ForeignLog(tmp_path / "t")


def test_deletion_vectors_take_away_the_rows_that_the_one_before_left(log: ForeignLog) -> None:
    log.begin([ID], features=["deletionVectors"])
    log.commit(log.add("a.parquet", ids(0, 1, 2, 3)))
    log.commit(*log.without("a.parquet", 1))
    log.commit(*reversed(log.without("a.parquet", 1, 3)))
    log.commit(*log.without("a.parquet", 3), operation="RESTORE")
    log.commit(log.remove("a.parquet"))
    assert changes(log, 2) == [(-1, {"id": 1})]
    assert changes(log, 3) == [(-1, {"id": 3})]
    assert changes(log, 4) == [(1, {"id": 1})]
    assert changes(log, 5) == [(-1, {"id": 0}), (-1, {"id": 1}), (-1, {"id": 2})], "not the row that was gone before"
    assert rows(log, 3) == [{"id": 0}, {"id": 2}]
    assert rows(log, 3, first=1) == [{"id": 2}]
    assert rows(log, 5) == []


def test_a_file_that_was_rewritten_changes_the_rows_that_differ(log: ForeignLog) -> None:
    log.begin([ID])
    log.commit(log.add("a.parquet", ids(1, 1, 2, None)))
    log.commit(log.remove("a.parquet"), log.add("b.parquet", ids(None, 1, 3, 3)))
    assert changes(log, 2) == [(-1, {"id": 1}), (-1, {"id": 2}), (1, {"id": 3}), (1, {"id": 3})]


def test_rearranged_rows_are_no_changes(log: ForeignLog) -> None:
    log.begin([ID])
    log.commit(log.add("a.parquet", ids(1)), log.add("b.parquet", ids(2)))
    log.commit(log.remove("a.parquet", change=False), log.add("c.parquet", ids(1), change=False), operation="OPTIMIZE")
    assert changes(log, 2) == []
    assert sorted(row["id"] for row in rows(log, 2)) == [1, 2]


def test_listed_changes_stand_for_all_files(log: ForeignLog) -> None:
    log.begin([ID], configuration={"delta.enableChangeDataFeed": "true"})
    log.commit(log.add("a.parquet", ids(1, 2)))
    kinds = pa.array(["update_preimage", "update_postimage", "delete", "insert"])
    log.add("_change_data/c.parquet", ids(1, 5, 2, 7).append_column("_change_type", kinds))
    listed = {"cdc": {**log.files["_change_data/c.parquet"], "dataChange": False}}
    log.commit(log.remove("a.parquet"), log.add("b.parquet", ids(5, 7)), listed)
    assert changes(log, 2) == [(-1, {"id": 1}), (-1, {"id": 2}), (1, {"id": 5}), (1, {"id": 7})]


@pytest.mark.parametrize("mode", ["name", "id"])
def test_mapped_columns_are_found_by_physical_name_or_number(log: ForeignLog, mode: str) -> None:
    def mapped(name: str, sql_type: object, number: int) -> dict[str, Any]:
        about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
        return {"name": name, "type": sql_type, "nullable": True, "metadata": about}

    inner = {"type": "struct", "fields": [mapped("X", "long", 3)]}
    fields = [mapped("Id", "long", 1), mapped("Where", inner, 2)]
    log.begin(fields, features=["columnMapping"], configuration={"delta.columnMapping.mode": mode})
    names = ("col-1", "col-2", "col-3") if mode == "name" else ("whatever", "else", "x")

    def numbered(name: str, arrow_type: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, arrow_type, metadata={"PARQUET:field_id": str(number)})

    struct = pa.struct([numbered(names[2], pa.int64(), 3)])
    schema = pa.schema([numbered(names[0], pa.int64(), 1), numbered(names[1], struct, 2)])
    stored = pa.Table.from_arrays([pa.array([7]), pa.array([{names[2]: 8}], struct)], schema=schema)
    log.commit(log.add("a.parquet", stored))
    assert rows(log, 1) == [{"id": 7, "where": {"x": 8}}]
    # The same column under another name: the files stay.
    fields[0] = mapped("Number", "long", 1)
    log.commit(log.metadata(fields, {"delta.columnMapping.mode": mode}))
    assert rows(log, 2) == [{"number": 7, "where": {"x": 8}}]


def test_a_removal_without_the_values_of_its_partition_is_that_of_the_file(log: ForeignLog) -> None:
    """RESTORE writes such removals."""
    log.begin([ID, CAT], partitions=["Cat"])
    log.commit(log.add("a.parquet", ids(1), partitionValues={"Cat": "x"}))
    removed = log.remove("a.parquet")["remove"]
    bare = {name: value for name, value in removed.items() if name != "partitionValues"}
    log.commit({"remove": bare}, operation="RESTORE")
    assert changes(log, 2) == [(-1, {"id": 1, "cat": "x"})]


def test_the_values_of_partitions_are_in_the_log(log: ForeignLog) -> None:
    fields = [ID, CAT, {"name": "day", "type": "date"}, {"name": "at", "type": "timestamp"}]
    fields += [{"name": "ok", "type": "boolean"}, {"name": "price", "type": "decimal(5,2)"}]
    log.begin(fields, partitions=["Cat", "day", "at", "ok", "price"])
    values = {"Cat": "a b", "day": "2026-01-02", "at": "2026-01-02 03:04:05.5", "ok": "true", "price": "1.20"}
    log.commit(log.add("Cat=a%20b/a.parquet".replace("%20", " "), ids(1), partitionValues=values))
    log.commit(log.add("b.parquet", ids(2), partitionValues=dict.fromkeys(values)))
    first, second = rows(log, 2)
    shown = {name: str(value) for name, value in first.items()}
    assert shown == {
        "id": "1",
        "cat": "a b",
        "day": "2026-01-02",
        "at": "2026-01-02 03:04:05.500000+00:00",
        "ok": "True",
        "price": "1.20",
    }
    assert second == {"id": 2, "cat": None, "day": None, "at": None, "ok": None, "price": None}


def test_partitions_of_floats_and_bytes_are_what_they_are_in_files(log: ForeignLog) -> None:
    """A FLOAT of 32 bits, and the UTF-8 of a text, as Spark has them."""
    fields = [{"name": "f", "type": "float"}, {"name": "raw", "type": "binary"}]
    log.begin([ID, *fields], partitions=["f", "raw"])
    log.commit(log.add("a.parquet", ids(1), partitionValues={"f": "0.1", "raw": "\u00e4\u0001"}))
    log.commit(log.add("b.parquet", ids(2), partitionValues={"f": "NaN", "raw": ""}))
    first, second = rows(log, 2)
    stored = pa.array([0.1], pa.float32()).cast(pa.float64())[0].as_py()
    assert first == {"id": 1, "f": stored, "raw": "\u00e4\u0001".encode()}
    assert second["f"] != second["f"]
    assert second["raw"] is None


def test_times_of_twelve_bytes_reach_as_far_as_those_of_eight(log: ForeignLog) -> None:
    """INT96, as Spark and Hive write times unless told otherwise; a year 9999 stands for an end that is open."""
    far, early = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), datetime(3, 1, 1, tzinfo=UTC)
    at, inside = pa.timestamp("us", tz="UTC"), pa.struct({"x": pa.timestamp("us", tz="UTC")})
    schema = pa.schema({"at": at, "all": pa.list_(at), "s": inside})
    values = {"at": [far, early, None], "all": [[far], None, []], "s": [{"x": far}, {"x": None}, None]}
    times = pa.table(values, schema=schema)
    inner = {"type": "struct", "fields": [{"name": "x", "type": "timestamp", "nullable": True, "metadata": {}}]}
    array = {"type": "array", "elementType": "timestamp", "containsNull": True}
    fields: list[dict[str, Any]] = [{"name": "at", "type": "timestamp"}]
    fields += [{"name": "all", "type": array}, {"name": "s", "type": inner}]
    log.begin(fields)
    added = log.add("a.parquet", times)
    pq.write_table(times, log.path / "a.parquet", use_deprecated_int96_timestamps=True)
    log.commit(added)
    assert rows(log, 1) == times.to_pylist()


def test_files_from_before_a_type_was_widened_are_read_in_the_wide_one(log: ForeignLog) -> None:
    log.begin([{"name": "n", "type": "integer"}], features=["typeWidening"])
    log.commit(log.add("a.parquet", pa.table({"n": pa.array([1], pa.int32())})))
    log.commit(log.metadata([{"name": "n", "type": "decimal(20,2)"}]))
    wide = pa.table({"n": pa.array([2], pa.decimal128(20, 0)).cast(pa.decimal128(20, 2))})
    log.commit(log.add("b.parquet", wide))
    assert [str(row["n"]) for row in rows(log, 3)] == ["1.00", "2.00"]


def test_nested_values_keep_their_shape_beside_fields_that_came_later(log: ForeignLog) -> None:
    deep = {"type": "struct", "fields": [{"name": "x", "type": "integer", "nullable": True, "metadata": {}}]}
    later = {**deep, "fields": [*deep["fields"], {"name": "y", "type": "string", "nullable": True, "metadata": {}}]}
    listed = {"type": "array", "elementType": later, "containsNull": True}
    named = {"type": "map", "keyType": "string", "valueType": "short", "valueContainsNull": True}
    log.begin([{"name": "l", "type": listed}, {"name": "m", "type": named}])
    stored = pa.table(
        {
            "l": pa.array([None, [], [{"x": 1}, None]], pa.list_(pa.struct({"x": pa.int32()}))),
            "m": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int16())),
        }
    )
    log.commit(log.add("a.parquet", stored))
    assert rows(log, 1) == [
        {"l": None, "m": [("a", 1)]},
        {"l": [], "m": None},
        {"l": [{"x": 1, "y": None}, None], "m": []},
    ]


def test_a_checkpoint_stands_for_the_commits_before_it(log: ForeignLog) -> None:
    """A v2 checkpoint whose files are in a sidecar; the first commits are gone."""
    log.begin([ID], features=["v2Checkpoint"])
    first, metadata = (
        json.loads(line) for line in (log.path / "_delta_log" / f"{0:020d}.json").read_text().split("\n")[1:3]
    )
    added = log.add("a.parquet", ids(1))
    log.commit(added)
    log.commit(log.add("b.parquet", ids(2)))
    folder = log.path / "_delta_log"
    (folder / "_sidecars").mkdir()
    body = {name: value for name, value in added["add"].items() if name != "partitionValues"}
    pq.write_table(pa.table({"add": pa.array([body])}), folder / "_sidecars" / "s.parquet")
    lines = [first, metadata, {"sidecar": {"path": "s.parquet", "sizeInBytes": 1}}]
    name = f"{1:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (folder / name).write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    for version in (0, 1):
        (folder / f"{version:020d}.json").unlink()
    assert rows(log, 2) == [{"id": 1}, {"id": 2}]
    assert changes(log, 2) == [(1, {"id": 2})]
    with pytest.raises(DeltaVersionGone, match=r"version 1 .* was removed before it was read"):
        changes(log, 1)


def test_what_vacuum_took_is_said_with_what_to_do(log: ForeignLog) -> None:
    log.begin([ID])
    log.commit(log.add("a.parquet", ids(1)))
    log.commit(log.remove("a.parquet"), log.add("b.parquet", ids(2)))
    (log.path / "a.parquet").unlink()
    with pytest.raises(DeltaVersionGone, match=r"VACUUM took the file 'a\.parquet'") as gone:
        changes(log, 2)
    assert "CREATE it again" in str(gone.value)
    with pytest.raises(DeltaVersionGone):
        check_files(ForeignDelta(log.path), 1, snapshot=True)
    check_files(ForeignDelta(log.path), 2, snapshot=True)


@pytest.mark.parametrize(
    ("feature", "said"),
    [("catalogManaged", "known to its catalog alone"), ("aNewFeature", "DROP FEATURE aNewFeature")],
)
def test_unknown_features_are_refused_by_name(log: ForeignLog, feature: str, said: str) -> None:
    log.begin([ID], features=["deletionVectors", feature])
    with pytest.raises(DeltaUnsupported, match=f"'{feature}'") as refused:
        rows(log, 0)
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["coordinatedCommits.commitCoordinator-preview", "managedCommits.commitOwner-preview"])
def test_commits_that_another_service_coordinates_are_refused(log: ForeignLog, name: str) -> None:
    """They are known to readers by a property alone: the feature is one of writers."""
    log.begin([ID], configuration={f"delta.{name}": "dynamodb"})
    log.commit(log.add("a.parquet", ids(1)))
    with pytest.raises(DeltaUnsupported, match=name):
        rows(log, 1)


def test_files_elsewhere_are_refused_as_a_shallow_clone(log: ForeignLog) -> None:
    log.begin([ID])
    log.commit({"add": {"path": "file:/elsewhere/a.parquet", "partitionValues": {}, "size": 1, "dataChange": True}})
    with pytest.raises(DeltaUnsupported, match="outside the table") as refused:
        changes(log, 1)
    assert "shallow clone" in str(refused.value)


def test_columns_without_a_type_are_left_out(log: ForeignLog) -> None:
    log.begin([ID, {"name": "any", "type": "variant"}], features=["variantType"])
    variant = pa.array([{"metadata": b"", "value": b""}])
    log.commit(log.add("a.parquet", ids(1).append_column("any", variant)))
    assert rows(log, 1) == [{"id": 1}]


def test_a_commit_says_its_own_time(log: ForeignLog) -> None:
    log.begin([ID], configuration={"delta.enableInCommitTimestamps": "true"})
    log.commit(inCommitTimestamp=77)
    assert ForeignDelta(log.path).timestamp(1) == 77


def test_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(DeltaMissing, match="there is no Delta table"):
        ForeignDelta(tmp_path).head()


def test_a_table_that_was_made_anew_is_read_anew(log: ForeignLog) -> None:
    log.begin([ID])
    log.commit(log.add("a.parquet", ids(1)))
    table = ForeignDelta(log.path)
    assert (table.head(), table.schema(1).id) == (1, "one")
    for file in (log.path / "_delta_log").iterdir():
        file.unlink()
    log.next = 0
    log.begin([CAT], table="other")
    assert (table.head(), table.schema(0).id) == (0, "other")


def test_a_table_on_an_object_store_is_read_as_one_on_a_disk(log: ForeignLog, s3_server: S3Server) -> None:
    log.begin([ID], features=["deletionVectors"])
    log.commit(log.add("a.parquet", ids(0, 1, 2)))
    log.commit(*log.without("a.parquet", 1))
    there = s3_folder(s3_server) / "theirs"
    for file in (each for each in log.path.rglob("*") if each.is_file()):
        place = there
        for part in file.relative_to(log.path).parts:
            place = place / part
        place.replace(file.read_bytes())
    table = ForeignDelta(there)
    assert table.head() == 2
    assert [row for part in rows_of(table, 2) for row in part.to_pylist()] == [{"id": 0}, {"id": 2}]
    assert [(each.gone, each.rows.to_pylist()) for each in changes_of(table, 2)] == [(True, [{"id": 1}])]


def test_errors_are_of_sources() -> None:
    assert all(issubclass(each, SourceError) for each in (DeltaMissing, DeltaUnsupported, DeltaVersionGone))
