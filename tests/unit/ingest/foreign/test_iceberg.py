"""Sources over Iceberg tables, end to end in one process: snapshots, what PyIceberg writes, and what is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table.snapshots import Operation
from pyiceberg.types import LongType, StringType

from strandline.jobs.ingest.foreign import iceberg
from strandline.jobs.ingest.foreign.iceberg import IcebergTable, is_named
from strandline.jobs.ingest.logs.foreign_log import PLACES
from strandline.jobs.model.errors import (
    ForeignChanged,
    ForeignMissing,
    ForeignRowsRemoved,
    ForeignSchemaChanged,
    ForeignUnsupported,
    ForeignVersionGone,
    NameTaken,
    OptionRefused,
    SourceUnavailable,
    SqlError,
    TopicReplaced,
    TypeMismatch,
    UnknownName,
    ViewsStopped,
)
from strandline.jobs.model.settings import IngestSettings
from strandline.jobs.operate.rebuild import check_kept, rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.status import status
from strandline.state_store.storage import StorageOptions
from tests.support.foreign_folder import ids
from tests.support.foreign_iceberg import NAME, IcebergWorld, end_threads


@pytest.fixture(autouse=True, scope="module")
def _without_threads() -> Iterator[None]:
    yield
    end_threads()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergWorld:
    made = IcebergWorld(tmp_path, monkeypatch)
    made.begin(ids())
    made.table.append(ids(1, 2))
    return made


def test_columns_and_the_first_snapshot_are_those_of_the_table(world: IcebergWorld) -> None:
    world.run("CREATE TABLE t WITH (ICEBERG = '@', KEY = 'ID'); CREATE STREAM s WITH (ICEBERG = '@')")
    source = world.source("t")
    assert [(each.name, str(each.type), each.key) for each in source.columns] == [
        ("id", "BIGINT", True),
        ("n", "INT", False),
    ]
    assert source.topic == f"iceberg:{NAME}@1"
    assert source.options["START_VERSION"] == str(world.snapshots()[0])
    world.table.append(ids(3))
    world.drain()
    assert world.ids("t") == world.ids() == [1, 2, 3]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_an_empty_table_is_begun_with_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = IcebergWorld(tmp_path, monkeypatch)
    world.begin(ids())
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.table.append(ids(1))
    world.drain()
    assert world.ids() == [1]


def test_a_statement_that_is_given_again_means_the_same(world: IcebergWorld) -> None:
    text = "CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id')"
    world.run(text)
    before = world.source("t")
    world.table.append(ids(3))
    world.run(text)
    assert world.source("t") == before
    world.run(f"CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id', START_VERSION = {world.snapshots()[0]})")
    assert world.source("t") == before
    with pytest.raises(NameTaken):
        world.run(f"CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id', START_VERSION = {world.snapshots()[1]})")


def test_a_stream_begins_with_the_rows_that_are_there_or_with_a_snapshot(world: IcebergWorld) -> None:
    world.table.append(ids(3))
    world.table.append(ids(4))
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.run(f"CREATE STREAM b WITH (ICEBERG = '@', START_VERSION = {world.snapshots()[1]})")
    world.table.append(ids(5))
    world.drain()
    assert world.ids() == [1, 2, 3, 4, 5]
    assert world.ids("b") == [3, 4, 5]


def test_rows_that_go_by_copy_on_write(world: IcebergWorld) -> None:
    world.run("CREATE TABLE t WITH (ICEBERG = '@'); CREATE TABLE c AS SELECT n, COUNT(*) AS c FROM t GROUP BY n")
    world.table.append(ids(3, 3, 4, 13))
    world.drain()
    world.table.delete("Id = 3")
    world.drain()
    assert world.ids("t") == [1, 2, 4, 13]
    world.table.overwrite(ids(5, 5))
    world.drain()
    assert world.ids("t") == [5, 5]
    assert world.rows("SELECT n, c FROM c") == [(5, 2)]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_a_stream_stops_where_rows_are_taken_away(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.table.delete("Id = 1")
    with pytest.raises(ForeignRowsRemoved, match=r"snapshot \d+ takes rows away, and 's' is a stream") as stopped:
        world.drain()
    assert "CREATE TABLE … WITH (ICEBERG = …)" in str(stopped.value)
    assert world.ids() == [1, 2]


def test_two_rows_of_a_key_stop_the_table(world: IcebergWorld) -> None:
    world.run("CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id')")
    world.table.append(ids(2))
    with pytest.raises(ViewsStopped, match="more than one row in the table that it is read from: id = 2 has 2"):
        world.drain()


def test_compaction_changes_nothing(world: IcebergWorld) -> None:
    """PyIceberg has no rewrite of data files: the snapshot of an overwrite is named so here."""
    world.table.append(ids(3))
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.table.overwrite(world.table.scan().to_arrow())
    table = IcebergTable(NAME, StorageOptions())
    for number in range(3, table.head() + 1):
        found = table._known[number]
        summary = found.summary.model_copy(update={"operation": Operation.REPLACE})
        table._history[number] = found.model_copy(update={"summary": summary})
    assert [changes for number in range(3, table.head() + 1) for changes in table.changes(number)] == []


def test_snapshots_are_taken_in_whole(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@'); CREATE TABLE n AS SELECT n, COUNT(*) AS c FROM s GROUP BY n")
    world.table.append(ids(3, 4, 5))
    small = world.settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=1)})
    seen: list[list[int]] = []
    drain(small, "p", in_driver=True, watch=lambda _: seen.append(world.ids()))
    assert seen == [[1], [1, 2], [1, 2, 3, 4, 5]], "the rows that are there may be cut, a snapshot not"
    assert world.rows("SELECT rowoffset FROM s")[-1] == (2 * PLACES + 2,)


def test_partitions_and_columns_that_came_later(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    with world.table.update_schema() as change:
        change.add_column("more", StringType())
    with world.table.update_spec() as spec:
        spec.add_identity("n")
    rows = ids(3, 14).append_column("more", pa.array(["x", "y"]))
    world.table.append(rows)
    world.drain()
    assert world.ids() == [1, 2, 3, 14]
    world.run("CREATE STREAM later WITH (ICEBERG = '@')")
    world.drain()
    assert world.rows("SELECT id, n, more FROM later") == [(1, 1, None), (14, 4, "y"), (2, 2, None), (3, 3, "x")]


def test_a_column_that_is_widened_renamed_or_dropped_stops_the_source(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    with world.table.update_schema() as change:
        change.update_column("n", LongType())
    world.table.append(pa.table({"Id": [3], "n": [5_000_000_000]}))
    with pytest.raises(ForeignSchemaChanged, match="column 'n' of 's' has another type"):
        world.drain()
    with world.table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("n", "m")
    world.table.append(pa.table({"Id": [4], "m": [1]}))
    world.run("CREATE STREAM again WITH (ICEBERG = '@')")
    world.run("DROP STREAM s")
    world.drain()
    assert world.ids("again") == [1, 2, 3, 4]


def test_a_renamed_column_is_another_one(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    with world.table.update_schema() as change:
        change.rename_column("n", "m")
    world.table.append(pa.table({"Id": pa.array([4]), "m": pa.array([1], pa.int32())}))
    with pytest.raises(ForeignSchemaChanged, match="column 'n' of 's' is not in"):
        world.drain()


def test_what_was_expired_before_it_was_read_stops_the_source(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.table.append(ids(3))
    world.drain()
    for number in (4, 5, 6):
        world.table.append(ids(number))
    world.table.maintenance.expire_snapshots().by_ids(world.snapshots()[:2]).commit()
    world.drain()
    assert world.ids() == [1, 2, 3, 4, 5, 6], "what was read is not missed"
    with pytest.raises(ForeignVersionGone, match="was expired"):
        check_kept(world.settings, world.lake, world.source())
    for number in (7, 8):
        world.table.append(ids(number))
    world.table.maintenance.expire_snapshots().by_ids(world.snapshots()[:-1]).commit()
    with pytest.raises(ForeignVersionGone, match=r"sequence number 6 .* was expired") as gone:
        world.drain()
    assert "CREATE it again" in str(gone.value)


def test_a_table_that_is_rolled_back_stops_the_source(world: IcebergWorld) -> None:
    world.table.append(ids(3))
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.table.manage_snapshots().rollback_to_snapshot(world.snapshots()[0]).commit()
    with pytest.raises(ForeignChanged, match="was rolled back"):
        world.drain()
    world.table.append(ids(4))
    with pytest.raises(ForeignChanged, match="no snapshot with the sequence number 2 any more"):
        world.drain()


def test_a_table_that_was_made_anew_is_another_one(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.catalog.drop_table("shop.orders")
    with pytest.raises(ForeignMissing, match="no such table"):
        world.drain()
    shutil.rmtree(world.theirs / "shop")
    world.begin(ids())
    world.table.append(ids(7))
    world.table.append(ids(8))
    with pytest.raises(TopicReplaced):
        world.drain()


def test_row_level_deletes_are_refused_by_name(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg writes none: a manifest of a snapshot is given out as one of deletes."""
    world.run("CREATE TABLE t WITH (ICEBERG = '@')")
    world.drain()
    world.table.append(ids(3))
    table = IcebergTable(NAME, StorageOptions())
    manifests = type(table._known[2]).manifests

    def of_deletes(snapshot: object, io: object) -> list[Any]:
        found: list[Any] = manifests(snapshot, io)
        found[0]._data[3] = ManifestContent.DELETES
        return found

    monkeypatch.setattr(type(table._known[2]), "manifests", of_deletes)
    with pytest.raises(ForeignUnsupported, match="has row-level deletes") as refused:
        world.drain()
    assert "copy-on-write" in str(refused.value)


def test_format_version_1_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = IcebergWorld(tmp_path, monkeypatch)
    world.begin(ids(), properties={"format-version": "1"})
    with pytest.raises(ForeignUnsupported, match="format version 1"):
        world.run("CREATE STREAM s WITH (ICEBERG = '@')")


def test_a_file_that_is_gone_stops_the_source(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.drain()
    world.table.append(ids(3))
    before = {task.file.file_path for task in world.table.scan(snapshot_id=world.snapshots()[0]).plan_files()}
    (newest,) = {task.file.file_path for task in world.table.scan().plan_files()} - before
    Path(newest.removeprefix("file://")).unlink()
    with pytest.raises(ForeignVersionGone, match="is gone"):
        world.drain()
    with pytest.raises(ForeignVersionGone):
        check_kept(world.settings, world.lake, world.source())


def test_a_rebuild_reads_the_same_snapshots_as_the_same_events(world: IcebergWorld) -> None:
    world.run("CREATE TABLE t WITH (ICEBERG = '@')")
    world.table.append(ids(3))
    world.table.delete("Id = 1")
    world.drain()
    before = world.ids("t")
    rebuild(world.settings, "t")
    world.drain()
    assert world.ids("t") == before == [2, 3]


def test_status_says_how_many_changes_wait(world: IcebergWorld) -> None:
    world.run("CREATE STREAM s WITH (ICEBERG = '@')")
    world.table.append(ids(3))
    assert {row[1]: row[6] for row in status(world.settings).rows}["s"] == 3


def test_a_table_in_a_folder_without_a_catalog(world: IcebergWorld, tmp_path: Path) -> None:
    """As Hadoop's catalog lays it out, which is Spark's for a path."""
    folder = tmp_path / "byhand"

    def commit(number: int) -> None:
        metadata = Path(world.table.refresh().metadata_location.removeprefix("file://"))
        (folder / "metadata").mkdir(parents=True, exist_ok=True)
        shutil.copy(metadata, folder / "metadata" / f"v{number}.metadata.json")

    commit(1)
    with pytest.raises(ForeignMissing, match=r"no metadata/version-hint\.text") as missing:
        world.run(f"CREATE STREAM s WITH (ICEBERG = '{folder}')")
    assert "catalog.namespace.table" in str(missing.value)
    (folder / "metadata" / "version-hint.text").write_text("1")
    world.run(f"CREATE STREAM s WITH (ICEBERG = '{folder}')")
    world.drain()
    world.table.append(ids(3))
    commit(2)  # the hint lags
    world.drain()
    assert world.ids() == [1, 2, 3]


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("CREATE STREAM t WITH (ICEBERG = 'theirs.shop.none')", ForeignMissing, "the catalog has no such table"),
        ("CREATE STREAM t WITH (ICEBERG = 'nobodys.shop.none')", ForeignMissing, "there is no Iceberg table"),
        ("CREATE STREAM t WITH (ICEBERG = 'ftp://x/y')", OptionRefused, "is no kind of storage"),
        ("CREATE TABLE t WITH (ICEBERG = '@', KEY = 'nix')", UnknownName, "unknown column 'nix'"),
        ("CREATE TABLE t (n BIGINT) WITH (ICEBERG = '@')", TypeMismatch, "column 'n' is INT in"),
        ("CREATE TABLE t WITH (ICEBERG = '@', START_VERSION = 7)", ForeignVersionGone, "has no snapshot 7"),
    ],
)
def test_what_a_statement_may_not_say(world: IcebergWorld, statement: str, error: type[SqlError], said: str) -> None:
    with pytest.raises(error, match=said):
        world.run(statement)


def test_a_catalog_that_does_not_answer_is_tried_again(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("nobody there")

    monkeypatch.setattr(iceberg, "_loaded", broken)
    with pytest.raises(SourceUnavailable, match="nobody there"):
        IcebergTable(NAME, StorageOptions()).head()


def test_without_pyiceberg_it_is_said_what_to_install(world: IcebergWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "pyiceberg.table", None)
    with pytest.raises(ForeignUnsupported, match=r"pip install 'strandline\[iceberg\]'"):
        world.run("CREATE STREAM s WITH (ICEBERG = '@')")


@pytest.mark.parametrize(("text", "named"), [("a.b.c", True), ("a.b.c.d", True), ("a.b", False), ("./a.b.c", False)])
def test_a_name_of_three_parts_is_one_of_a_catalog(text: str, named: bool) -> None:
    assert is_named(text) is named


@pytest.mark.parametrize("named", [True, False], ids=["by name", "by number"])
def test_times_of_twelve_bytes_reach_as_far_as_those_of_eight(
    named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """INT96, as files have that Spark's `add_files` and `migrate` leave as they are."""
    times = [datetime(9999, 12, 31, 23, 59, 59, 999999, UTC), datetime(3, 1, 1, tzinfo=UTC), None]
    rows = pa.table(
        {"id": [1, 2, 3], "at": pa.array(times, pa.timestamp("us", "UTC")), "day": pa.array([None] * 3, pa.date32())}
    )
    world = IcebergWorld(tmp_path, monkeypatch)
    world.begin(rows)
    world.table.append(rows)
    (file,) = world.theirs.rglob("*.parquet")
    stored = pq.read_table(file)
    if named:
        stored = pa.table(dict(zip(stored.column_names, stored.columns, strict=True)))
        mapping = world.table.schema().name_mapping.model_dump_json()
        with world.table.transaction() as changed:
            changed.set_properties({"schema.name-mapping.default": mapping})
    pq.write_table(stored, file, use_deprecated_int96_timestamps=True)
    world.run("CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id')")
    world.drain()
    assert sorted(world.rows("SELECT id, at FROM t")) == list(zip([1, 2, 3], times, strict=True))


def test_times_of_twelve_bytes_within_a_column_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table(
        {"id": [1], "at": pa.array([[datetime(2024, 1, 1, tzinfo=UTC)]], pa.list_(pa.timestamp("us", "UTC")))}
    )
    world = IcebergWorld(tmp_path, monkeypatch)
    world.begin(rows)
    world.table.append(rows)
    (file,) = world.theirs.rglob("*.parquet")
    pq.write_table(pq.read_table(file), file, use_deprecated_int96_timestamps=True)
    world.run("CREATE TABLE t WITH (ICEBERG = '@', KEY = 'id')")
    with pytest.raises(ForeignUnsupported, match="column 'at' has times of twelve bytes") as found:
        world.drain()
    assert "rewrite_data_files" in str(found.value)
