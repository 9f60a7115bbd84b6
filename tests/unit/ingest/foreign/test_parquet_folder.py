"""Sources over folders of Parquet files, end to end in one process: statements, runs, errors, what others do there."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from strandline.jobs.catalog.lineage import lineage
from strandline.jobs.ingest.foreign import parquet_folder
from strandline.jobs.ingest.foreign.parquet_folder import FolderRecord, SeenFile
from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ingest.logs.foreign_log import PLACES
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.errors import (
    ForeignChanged,
    ForeignMissing,
    ForeignSchemaChanged,
    ForeignUnsupported,
    InvalidQuery,
    NotSupported,
    OptionRefused,
    SqlError,
    TypeMismatch,
    UnknownName,
)
from strandline.jobs.model.settings import IngestSettings
from strandline.jobs.operate.rebuild import check_kept, rebuild
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.status import status
from strandline.state_store.errors import CorruptState
from strandline.state_store.paths import file_names
from tests.support.foreign_folder import FolderWorld, ids
from tests.support.lakes import s3_folder
from tests.support.on_disk import on_disk
from tests.support.s3_server import S3Server
from tests.unit.session.test_object_store import on_s3


@pytest.fixture
def world(tmp_path: Path) -> FolderWorld:
    made = FolderWorld(tmp_path)
    made.put("a.parquet", ids(1, 2))
    return made


def test_columns_are_those_of_the_first_file_and_each_file_comes_once(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    assert [(each.name, str(each.type)) for each in world.source().columns] == [("id", "BIGINT"), ("n", "INT")]
    world.put("b.parquet", ids(3))
    world.drain()
    assert world.ids() == [1, 2, 3]
    world.put("deep/er/c.parquet", ids(4, 4))
    world.drain()
    world.drain()
    assert world.ids() == [1, 2, 3, 4, 4]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_a_file_without_rows_is_passed(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    world.put("b.parquet", ids())
    world.drain()
    world.put("c.parquet", ids(3))
    world.drain()
    assert world.ids() == [1, 2, 3]


def test_a_statement_that_is_given_again_goes_on_with_its_record(world: FolderWorld) -> None:
    text = "CREATE STREAM s WITH (PARQUET = '@')"
    world.run(text)
    before = world.source()
    world.drain()
    world.put("b.parquet", ids(3).append_column("more", pa.array(["x"])))
    world.run(text)
    assert world.source() == before
    world.drain()
    assert world.ids() == [1, 2, 3]


def test_a_source_that_is_made_again_begins_again(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    record = origin_of(world.source().topic)
    assert record is not None
    folder = world.lake.folder_record(record.record)
    assert folder.exists()
    world.run("DROP STREAM s")
    assert not folder.exists()
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    assert world.ids() == [1, 2]


def test_files_come_in_the_order_in_which_they_were_written(world: FolderWorld) -> None:
    world.put("0.parquet", ids(9))
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    rows = world.rows("SELECT rowoffset, id FROM s")
    assert rows == [(0, 1), (1, 2), (PLACES, 9)], "by their times, then places in the file"


def test_a_file_is_taken_in_whole(world: FolderWorld) -> None:
    world.put("b.parquet", ids(3, 4, 5))
    world.run("CREATE STREAM s WITH (PARQUET = '@'); CREATE TABLE n AS SELECT n, COUNT(*) AS c FROM s GROUP BY n")
    small = world.settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=1)})
    seen: list[list[int]] = []
    drain(small, "p", in_driver=True, watch=lambda _: seen.append(world.ids()))
    assert seen == [[1, 2], [1, 2, 3, 4, 5]]


def test_what_is_hidden_temporary_or_something_else_is_left_alone(world: FolderWorld) -> None:
    for name in (
        "_c.parquet",
        ".d.parquet",
        "_temporary/0/e.parquet",
        ".x/f.parquet",
        "g.parquet.tmp",
        "_SUCCESS",
        "h.csv",
    ):
        world.put(name, ids(7))
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    assert world.ids() == [1, 2]


def test_a_file_without_its_end_is_waited_for_and_then_refused(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    whole = world.put("b.parquet", ids(3)).read_bytes()
    growing = world.theirs / "b.parquet"
    growing.write_bytes(whole[:-20])
    world.drain()
    assert world.ids() == [1, 2]
    growing.write_bytes(whole)
    world.drain()
    assert world.ids() == [1, 2, 3]
    broken = world.theirs / "c.parquet"
    broken.write_bytes(whole[:-20])
    long_ago = time.time() - parquet_folder._PATIENCE_MS / 1000 - 60
    os.utime(broken, (long_ago, long_ago))
    with pytest.raises(ForeignUnsupported, match=r"c\.parquet.*does not read as Parquet"):
        world.drain()


def test_a_file_that_was_changed_stops_the_source(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    world.put("a.parquet", ids(1, 2, 3))
    with pytest.raises(ForeignChanged, match=r"'a\.parquet' of .* is not the one that was seen") as changed:
        world.drain()
    assert "CREATE it again" in str(changed.value)
    assert world.ids() == [1, 2]


def test_a_file_that_was_removed_stops_the_source(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    (world.theirs / "a.parquet").unlink()
    with pytest.raises(ForeignChanged, match="was removed"):
        world.drain()
    with pytest.raises(ForeignChanged):
        check_kept(world.settings, world.lake, world.source())


def test_a_folder_that_is_gone_stops_the_source(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    shutil.rmtree(world.theirs)
    with pytest.raises(ForeignMissing, match="there is no folder"):
        world.drain()


def test_names_of_folders_are_columns(world: FolderWorld) -> None:
    world.put("day=2026-01-02/Shop=a%20b/b.parquet", ids(3))
    world.put("day=__HIVE_DEFAULT_PARTITION__/shop=c/c.parquet", ids(4))
    (world.theirs / "a.parquet").unlink()
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.run("CREATE STREAM d (id BIGINT, day DATE, shop VARCHAR) WITH (PARQUET = '@')")
    world.drain()
    assert world.rows("SELECT id, day, shop FROM s") == [(3, "2026-01-02", "a b"), (4, None, "c")]
    assert [(row[0], str(row[1]), row[2]) for row in world.rows("SELECT id, day, shop FROM d")] == [
        (3, "2026-01-02", "a b"),
        (4, "None", "c"),
    ]
    world.put("day=soon/shop=c/d.parquet", ids(5))
    with pytest.raises(ForeignSchemaChanged, match=r"'day' of 'd' has another type.*'soon' is not DATE"):
        world.drain()


def test_columns_that_a_file_lacks_are_null_and_wider_ones_are_taken(world: FolderWorld) -> None:
    world.run("CREATE STREAM s (id BIGINT, n BIGINT) WITH (PARQUET = '@')")
    world.put("b.parquet", pa.table({"id": pa.array([3], pa.int32())}))
    world.put("c.parquet", pa.table({"ID": [4], "n": [5_000_000_000]}))
    world.drain()
    assert world.rows("SELECT id, n FROM s") == [(1, 1), (2, 2), (3, None), (4, 5_000_000_000)]
    world.put("d.parquet", pa.table({"id": ["x"]}))
    with pytest.raises(ForeignSchemaChanged, match=r"column 'id' of 's' has another type in .* file 'd\.parquet'"):
        world.drain()


def test_a_file_of_something_else_stops_the_source(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.put("b.parquet", pa.table({"other": [1]}))
    with pytest.raises(ForeignSchemaChanged, match="column 'id' of 's' is not in"):
        world.drain()


def test_tables_with_a_key_and_bags(world: FolderWorld) -> None:
    world.run("CREATE TABLE k WITH (PARQUET = '@', KEY = 'id'); CREATE TABLE b WITH (PARQUET = '@')")
    world.put("b.parquet", ids(3, 4))
    world.drain()
    assert world.ids("k") == world.ids("b") == [1, 2, 3, 4]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_columns_may_be_declared_before_there_is_a_file(tmp_path: Path) -> None:
    world = FolderWorld(tmp_path)
    with pytest.raises(ForeignMissing, match="no Parquet file in"):
        world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.run("CREATE STREAM s (id BIGINT) WITH (PARQUET = '@')")
    world.drain()
    world.put("a.parquet", ids(1))
    world.drain()
    assert world.ids() == [1]


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("CREATE STREAM t WITH (PARQUET = '@/none')", ForeignMissing, "there is no folder"),
        ("CREATE STREAM t WITH (PARQUET = 'ftp://x/y')", OptionRefused, "is no kind of storage"),
        ("CREATE TABLE t WITH (PARQUET = '@', KEY = 'nix')", UnknownName, "unknown column 'nix'"),
        ("CREATE STREAM t (nix INT) WITH (PARQUET = '@')", UnknownName, "unknown column 'nix'"),
        ("CREATE STREAM t (id INT) WITH (PARQUET = '@')", TypeMismatch, "column 'id' is BIGINT in"),
        ("CREATE STREAM t WITH (PARQUET = '@', START_VERSION = 1)", OptionRefused, "START_VERSION is not an option"),
        ("CREATE STREAM t WITH (PARQUET = '@', DELTA = '@')", OptionRefused, "a source is over one table"),
    ],
)
def test_what_a_statement_may_not_say(world: FolderWorld, statement: str, error: type[SqlError], said: str) -> None:
    with pytest.raises(error, match=said):
        world.run(statement)


def test_a_type_that_the_language_lacks_is_refused_by_column(tmp_path: Path) -> None:
    world = FolderWorld(tmp_path)
    world.put("a.parquet", ids(1).append_column("much", pa.array([1], pa.uint64())))
    with pytest.raises(NotSupported, match=r"column 'much' of .* is UINT64"):
        world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.run("CREATE STREAM s (id BIGINT) WITH (PARQUET = '@')")
    world.drain()
    assert world.ids() == [1]


def test_status_counts_what_waits_and_writes_nothing_down(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    assert {row[1]: row[6] for row in status(world.settings).rows}["s"] == 2
    origin = origin_of(world.source().topic)
    assert origin is not None
    assert not world.lake.folder_record(origin.record).exists()
    world.drain()
    world.put("b.parquet", ids(3, 4, 5))
    assert {row[1]: (row[6], row[9]) for row in status(world.settings).rows}["s"] == (3, "behind")


def test_the_lineage_begins_with_the_folder_and_nothing_is_written_there(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    graph = lineage([world.source()], lambda _: True)
    assert [node.name for node in graph.nodes if node.role == "topic"] == [str(world.theirs)]
    with pytest.raises(InvalidQuery, match="is a SOURCE"):
        world.run("INSERT INTO s (id, n) VALUES (1, 1)")
    world.drain()
    assert sorted(file_names(world.theirs)) == ["a.parquet"]


def test_a_rebuild_reads_the_same_files_as_the_same_events(world: FolderWorld) -> None:
    world.put("b.parquet", ids(3))
    world.run("CREATE STREAM s WITH (PARQUET = '@'); CREATE TABLE n AS SELECT n, COUNT(*) AS c FROM s GROUP BY n")
    world.drain()
    before = world.rows("SELECT rowoffset, id FROM s")
    rebuild(world.settings, "s")
    world.drain()
    assert world.rows("SELECT rowoffset, id FROM s") == before
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_a_restored_lake_goes_on_where_its_backup_ends(world: FolderWorld, tmp_path: Path) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    execute_backup(world.settings, plan_backup(world.settings, tmp_path / "copy"))
    world.put("b.parquet", ids(3))
    world.drain()
    shutil.rmtree(world.root)
    execute_restore(plan_restore(tmp_path / "copy", world.settings.lake))
    assert world.ids() == [1, 2]
    world.drain()
    assert world.ids() == [1, 2, 3]


def test_a_record_that_does_not_read_back_stops_the_source(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    (entry,) = (world.root / "folders").glob("*/*.json")
    entry.write_bytes(entry.read_bytes().replace(b"a.parquet", b"b.parquet"))
    with pytest.raises(CorruptState, match="does not read back as it was written"):
        world.drain()


def test_a_record_stays_short_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_folder, "_TOGETHER", 3)
    files = [SeenFile(f"{number}.parquet", 1, "m", 2, 3) for number in range(20)]
    record, follower = FolderRecord(tmp_path / "r"), FolderRecord(tmp_path / "r")
    for number, file in enumerate(files):
        assert record.add([file])
        if number % 7 == 0:
            follower.load()
            assert follower.files == files[: number + 1]
    opened = FolderRecord(tmp_path / "r")
    opened.load()
    assert opened.files == files
    assert len(file_names(tmp_path / "r")) <= 9
    follower.load()
    assert not FolderRecord(tmp_path / "r").add(files[:1]) or "0.json" not in file_names(tmp_path / "r")


def test_of_two_that_look_at_once_one_gives_the_numbers(tmp_path: Path) -> None:
    one, other = FolderRecord(tmp_path / "r"), FolderRecord(tmp_path / "r")
    assert one.add([SeenFile("a", 1, "m", 2, 3)])
    assert not other.add([SeenFile("b", 1, "m", 2, 3)])
    other.load()
    assert other.files == one.files


def test_a_folder_on_an_object_store(world: FolderWorld, s3_server: S3Server) -> None:
    there = s3_folder(s3_server)
    world.settings = world.settings.model_copy(update={"storage": on_s3(s3_server).storage})
    (there / "landing" / "a.parquet").replace((world.theirs / "a.parquet").read_bytes())
    (there / "landing" / "_c.parquet").replace(b"none")
    world.run(f"CREATE STREAM s WITH (PARQUET = '{there}/landing')")
    world.drain()
    (there / "landing" / "day=1" / "b.parquet").replace(world.put("b.parquet", ids(3)).read_bytes())
    world.drain()
    assert world.ids() == [1, 2, 3]
    (there / "landing" / "a.parquet").replace(world.put("c.parquet", ids(7, 8)).read_bytes())
    with pytest.raises(ForeignChanged, match="is not the one that was seen"):
        world.drain()


def test_topics_and_folders_wait_together(world: FolderWorld) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    log = open_log(world.settings, world.lake)
    topic = world.source().topic
    began = time.monotonic()
    log.wait({topic: {0: 0}}, 60)
    assert time.monotonic() - began < 60, "a file is there"
    log.wait({topic: {0: PLACES}}, 0.1)


def test_a_footer_is_read_once(world: FolderWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    opened: list[str] = []
    whole = pq.ParquetFile

    def counted(source: object, **options: object) -> object:
        opened.append(str(source))
        return whole(source, **options)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    log = open_log(world.settings, world.lake)
    for _ in range(3):
        log.end_offsets(world.source().topic)
    assert len(opened) == 1


def test_a_record_that_lost_its_newest_entry_gives_its_number_to_no_other_file(world: FolderWorld) -> None:
    """The same file gets the same number, and nothing is lost; another one in its place is an error."""
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    world.put("b.parquet", ids(3))
    world.drain()
    origin = origin_of(world.source().topic)
    assert origin is not None
    entry = on_disk(world.lake.folder_record(origin.record)) / f"{1:020d}.json"
    entry.unlink()
    world.put("c.parquet", ids(4))
    world.drain()
    assert world.ids() == [1, 2, 3, 4]
    entry.unlink()
    (world.theirs / "b.parquet").unlink()
    world.put("d.parquet", ids(5))
    with pytest.raises(ForeignChanged, match=r"version 2 of .* is another one than was read"):
        world.drain()
    assert world.ids() == [1, 2, 3, 4]
