"""Sources over foreign Delta tables, end to end in one process: statements, runs, errors, what others say."""

from __future__ import annotations

import shutil
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, write_deltalake

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import lineage
from strandline.jobs.ingest.logs.foreign_log import PLACES
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import (
    DeltaMissing,
    DeltaRowsRemoved,
    DeltaSchemaChanged,
    DeltaVersionGone,
    ForeignChanged,
    InvalidQuery,
    NameTaken,
    NotSupported,
    OptionRefused,
    SqlError,
    TopicReplaced,
    TypeMismatch,
    UnknownName,
    ViewsStopped,
)
from strandline.jobs.model.settings import IngestSettings, Settings
from strandline.jobs.operate.rebuild import check_kept, execute_rebuild, plan_rebuilds
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.layout import LakeLayout
from tests.support.foreign_log import ForeignLog


class World:
    """A lake, and a foreign table beside it."""

    def __init__(self, folder: Path) -> None:
        self.theirs = folder / "theirs"
        self.settings = Settings(lake=folder / "lake")

    def write(self, *ids: int, mode: str = "append", **more: Any) -> None:
        rows = pa.table({"Id": pa.array(ids, pa.int64()), "n": pa.array([each % 10 for each in ids], pa.int32())})
        write_deltalake(self.theirs, rows, mode=mode, **more)  # type: ignore[call-overload]

    def run(self, text: str) -> list[Any]:
        return list(Interpreter(self.settings, "p").run(text.replace("@", str(self.theirs))))

    def drain(self) -> None:
        drain(self.settings, "p", in_driver=True)

    def ids(self, name: str = "t") -> list[int]:
        (found,) = self.run(f"SELECT id FROM {name}")
        assert isinstance(found, Rows)
        return sorted(int(str(row[0])) for row in found.rows)

    def source(self, name: str = "t") -> Source:
        found = Catalog(LakeLayout(self.settings.lake)).get(name)
        assert isinstance(found, Source)
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.write(1, 2)
    return made


def test_columns_and_the_first_version_are_those_of_the_table(world: World) -> None:
    world.write(3)
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'ID')")
    source = world.source()
    assert [(each.name, str(each.type), each.key) for each in source.columns] == [
        ("id", "BIGINT", True),
        ("n", "INT", False),
    ]
    assert source.topic == f"delta:{world.theirs}@1"
    world.drain()
    assert world.ids() == [1, 2, 3]


def test_a_statement_that_is_given_again_means_the_same(world: World) -> None:
    text = "CREATE TABLE t WITH (DELTA = '@', KEY = 'id')"
    world.run(text)
    before = world.source()
    write_deltalake(world.theirs, pa.table({"Id": [9], "more": ["x"]}), mode="append", schema_mode="merge")
    world.run(text)
    assert world.source() == before
    with pytest.raises(NameTaken):
        world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id', START_VERSION = 1)")
    world.drain()
    assert world.ids() == [1, 2, 9]


def test_a_stream_begins_with_the_rows_that_are_there_or_with_a_version(world: World) -> None:
    world.write(3)
    world.write(4)
    world.run("CREATE STREAM a WITH (DELTA = '@'); CREATE STREAM b WITH (DELTA = '@', START_VERSION = 1)")
    world.write(5)
    world.drain()
    assert world.ids("a") == [1, 2, 3, 4, 5]
    assert world.ids("b") == [3, 4, 5]


def test_a_stream_stops_where_rows_are_taken_away(world: World) -> None:
    world.run("CREATE STREAM s WITH (DELTA = '@')")
    world.drain()
    DeltaTable(world.theirs).delete("Id = 1")
    with pytest.raises(DeltaRowsRemoved, match="version 1 takes rows away, and 's' is a stream"):
        world.drain()
    assert world.ids("s") == [1, 2]


def test_equal_rows_are_counted(world: World) -> None:
    world.write(7, 7, 7)
    world.run("CREATE TABLE t WITH (DELTA = '@')")
    world.drain()
    assert world.ids() == [1, 2, 7, 7, 7]
    world.write(7, 8, mode="overwrite")
    world.drain()
    assert world.ids() == [7, 8]
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


def test_two_rows_of_a_key_stop_the_table(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    world.drain()
    world.write(2)
    with pytest.raises(
        ViewsStopped, match="more than one row in the table that it is read from: id = 2 has 2"
    ) as stopped:
        world.drain()
    assert "declare it without a key" in str(stopped.value)
    assert world.ids() == [1, 2]
    DeltaTable(world.theirs).delete("Id = 2")
    world.drain()
    world.write(2)
    world.drain()
    assert world.ids() == [1, 2]  # as the hint says


def test_versions_are_taken_in_whole(world: World) -> None:
    settings = world.settings.model_copy(update={"ingest": IngestSettings(max_rows_per_epoch=1)})
    world.run("CREATE TABLE t WITH (DELTA = '@')")
    world.write(3, 4, 5)
    DeltaTable(world.theirs).optimize.compact()
    world.write(6)
    drain(settings, "p", in_driver=True)
    log = LakeLayout(world.settings.lake).table("t__log")
    versions = [pa.table(DeltaTable(str(log), version=v).to_pyarrow_table())["_offset"].to_pylist() for v in range(5)]
    new = [sorted({*after} - {*before}) for before, after in pairwise(versions)]
    assert new == [[0], [1], [PLACES, PLACES + 1, PLACES + 2], [3 * PLACES]], "a snapshot may be cut, a commit not"


def test_status_says_how_many_changes_wait(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    waiting = {row[1]: row[6] for row in status(world.settings).rows}
    assert waiting["t__log"] == 2
    world.drain()
    world.write(3, 4)
    shown = {row[1]: (row[6], row[9]) for row in status(world.settings).rows}
    assert shown["t__log"] == (2, "behind")


def test_the_lineage_begins_with_the_foreign_table(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@'); CREATE STREAM s WITH (DELTA = '@')")
    graph = lineage(Catalog(LakeLayout(world.settings.lake)).definitions(), lambda _: True)
    assert [node.name for node in graph.nodes if node.role == "topic"] == [str(world.theirs)]
    assert {edge for edge in graph.edges if edge[0].startswith("topic/")} == {
        (f"topic/{world.theirs}", "t__log"),
        (f"topic/{world.theirs}", "s"),
    }


def test_nothing_is_written_there(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    for text in ("INSERT INTO t (id, n) VALUES (1, 1)", "DELETE FROM t WHERE id = 1"):
        with pytest.raises(InvalidQuery, match="is a SOURCE") as refused:
            world.run(text)
        assert str(refused.value).endswith(f"others write '{world.theirs}', and the next run reads what they wrote")
    with pytest.raises(UnknownName, match="column 'x'"):
        world.run("ALTER TABLE t ADD COLUMN x INT")
    world.drain()
    assert DeltaTable(world.theirs).version() == 0


def test_a_version_that_vacuum_took_stops_the_source(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@')")
    world.drain()
    world.write(3)
    DeltaTable(world.theirs).delete("Id = 3")
    DeltaTable(world.theirs).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(DeltaVersionGone, match="VACUUM took the file"):
        world.drain()
    with pytest.raises(DeltaVersionGone):
        check_kept(world.settings, LakeLayout(world.settings.lake), world.source())
    assert world.ids() == [1, 2]


def test_a_table_that_was_made_anew_is_another_one(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@')")
    world.drain()
    shutil.rmtree(world.theirs)
    world.write(8)
    world.write(9)
    with pytest.raises(TopicReplaced):
        world.drain()


def replace_table(path: Path, schema: pa.Schema) -> None:
    DeltaTable.create(path, Schema.from_arrow(schema), mode="overwrite")


def test_a_table_that_is_replaced_in_its_log_goes_on(world: World) -> None:
    world.run(
        "CREATE TABLE t WITH (DELTA = '@', KEY = 'id'); CREATE TABLE bag WITH (DELTA = '@');"
        "CREATE MATERIALIZED VIEW v AS SELECT COUNT(*) AS n, SUM(id) AS total FROM t"
    )
    world.drain()
    first = DeltaTable(world.theirs).metadata().id
    schema = pa.schema([("Id", pa.int64()), ("n", pa.int32())])
    replace_table(world.theirs, schema)
    world.write(2, 3)
    assert DeltaTable(world.theirs).metadata().id != first
    world.drain()
    assert (world.ids(), world.ids("bag")) == ([2, 3], [2, 3])
    # Again, twice between two runs, and with what is written in between.
    replace_table(world.theirs, schema)
    world.write(5)
    replace_table(world.theirs, pa.schema([*schema, ("more", pa.string())]))
    world.write(7, schema_mode="merge")
    world.drain()
    assert (world.ids(), world.ids("bag")) == ([7], [7])
    assert [each for each in verify(world.settings, [], deep=True) if each.ok is False] == []
    # Once the id is noted, a table at the same place that does not know it is another one.
    shutil.rmtree(world.theirs)
    for each in range(9):
        world.write(each)
    with pytest.raises(TopicReplaced, match="which its log does not know") as found:
        world.drain()
    assert "DROP the source with its views, and CREATE it again" in str(found.value)
    world.run("DROP VIEW v; DROP TABLE t; CREATE TABLE t WITH (DELTA = '@', KEY = 'id'); DROP TABLE bag")
    world.drain()
    assert world.ids() == list(range(9))


def test_a_table_that_is_replaced_with_other_columns_stops_the_source(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    world.drain()
    replace_table(world.theirs, pa.schema([("Id", pa.int64()), ("n", pa.string())]))
    write_deltalake(world.theirs, pa.table({"Id": [3], "n": ["x"]}), mode="append")
    with pytest.raises(DeltaSchemaChanged, match="'n'"):
        world.drain()
    world.run("DROP TABLE t; CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    world.drain()
    assert world.ids() == [3]


def test_a_replaced_table_stops_a_stream(world: World) -> None:
    world.run("CREATE STREAM s WITH (DELTA = '@')")
    world.drain()
    replace_table(world.theirs, pa.schema([("Id", pa.int64()), ("n", pa.int32())]))
    with pytest.raises(DeltaRowsRemoved):
        world.drain()


def test_a_column_that_goes_stops_the_source(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@')")
    world.drain()
    rows = pa.table({"Id": pa.array([3], pa.int64())})
    write_deltalake(world.theirs, rows, mode="overwrite", schema_mode="overwrite")
    with pytest.raises(DeltaSchemaChanged, match=r"column 'n' of 't' is not in .* version 1"):
        world.drain()


def test_a_column_of_another_type_stops_the_source(tmp_path: Path) -> None:
    world, log = World(tmp_path), ForeignLog(tmp_path / "theirs")
    log.begin([{"name": "id", "type": "integer"}], features=["typeWidening"])
    world.run("CREATE TABLE t WITH (DELTA = '@')")
    log.commit(log.add("a.parquet", pa.table({"id": pa.array([1], pa.int32())})))
    world.drain()
    log.commit(log.metadata([{"name": "id", "type": "long"}]), log.add("b.parquet", pa.table({"id": [2]})))
    with pytest.raises(DeltaSchemaChanged, match="column 'id' of 't' has another type"):
        world.drain()
    world.run("CREATE TABLE again WITH (DELTA = '@', START_VERSION = 0)")
    assert str(world.source("again").columns[0].type) == "BIGINT"


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("CREATE TABLE t WITH (DELTA = '@/none')", DeltaMissing, "there is no Delta table"),
        ("CREATE TABLE t WITH (DELTA = 'ftp://x/y')", OptionRefused, "is no kind of storage"),
        ("CREATE TABLE t WITH (DELTA = '@', KEY = 'nix')", UnknownName, "unknown column 'nix'"),
        ("CREATE TABLE t (nix INT) WITH (DELTA = '@')", UnknownName, "unknown column 'nix'"),
        ("CREATE TABLE t (n BIGINT) WITH (DELTA = '@')", TypeMismatch, "column 'n' is INT in"),
        ("CREATE TABLE t WITH (DELTA = '@', START_VERSION = 'x')", OptionRefused, "START_VERSION is a version"),
        (
            "CREATE TABLE t WITH (DELTA = '@', START_VERSION = 1)",
            OptionRefused,
            "has no version 1 yet: the newest is 0",
        ),
        ("CREATE STREAM t WITH (DELTA = '@', START_VERSION = 2)", OptionRefused, "has no version 2 yet"),
        ("CREATE TABLE t (id BIGINT) WITH (DELTA = '@', KEY = 'n')", UnknownName, "unknown column 'n'"),
        (
            "CREATE TABLE t (id BIGINT PRIMARY KEY, n INT) WITH (DELTA = '@', KEY = 'n')",
            OptionRefused,
            "the key is id by its columns, and n by KEY",
        ),
        ("CREATE TABLE t WITH (DELTA = '@', PARTITIONS = 3)", OptionRefused, "PARTITIONS is not an option"),
    ],
)
def test_what_a_statement_may_not_say(world: World, statement: str, error: type[SqlError], said: str) -> None:
    with pytest.raises(error, match=said):
        world.run(statement)
    assert Catalog(LakeLayout(world.settings.lake)).names() == ()


def test_key_is_that_of_declared_columns_too(world: World) -> None:
    text = "CREATE TABLE t (id BIGINT, n INT) WITH (DELTA = '@', KEY = 'ID')"
    world.run(text)
    assert world.source().key == ("id",)
    world.run(text)
    world.run("CREATE TABLE same (id BIGINT PRIMARY KEY) WITH (DELTA = '@', KEY = 'id')")
    assert world.source("same").key == ("id",)


def test_a_source_begins_with_a_version_that_can_be_read(world: World) -> None:
    for number in (3, 4):
        world.write(number)
    DeltaTable(world.theirs).create_checkpoint()
    (world.theirs / "_delta_log" / f"{0:020d}.json").unlink()
    for kind in ("TABLE", "STREAM"):
        with pytest.raises(DeltaVersionGone, match=r"version 1 of .* cannot be read any more") as gone:
            world.run(f"CREATE {kind} t WITH (DELTA = '@', START_VERSION = 1)")
        assert "begins with version 2" in str(gone.value.hint)
    world.run("CREATE STREAM next WITH (DELTA = '@', START_VERSION = 3)")
    world.write(5)
    world.drain()
    assert world.ids("next") == [5]


def test_names_of_the_hint_can_be_given_as_they_stand(tmp_path: Path) -> None:
    world, log = World(tmp_path), ForeignLog(tmp_path / "theirs")
    log.begin(
        [{"name": "my id", "type": "long"}, {"name": "select", "type": "long"}, {"name": "_offset", "type": "long"}]
    )
    with pytest.raises(NotSupported, match=r"column '_offset' of .* has a name that is reserved here") as refused:
        world.run("CREATE TABLE t WITH (DELTA = '@')")
    said = str(refused.value.hint).partition("CREATE TABLE t ")[2]
    assert said == "(`my id` BIGINT, `select` BIGINT) WITH (…)"
    world.run("CREATE TABLE t " + said.replace("…", "DELTA = '@'"))
    assert [each.name for each in world.source().columns] == ["my id", "select"]


def test_a_type_that_the_language_lacks_is_refused_by_column(tmp_path: Path) -> None:
    world, log = World(tmp_path), ForeignLog(tmp_path / "theirs")
    log.begin([{"name": "id", "type": "long"}, {"name": "any", "type": "variant"}], features=["variantType"])
    with pytest.raises(NotSupported, match=r"column 'any' of .* is VARIANT") as refused:
        world.run("CREATE TABLE t WITH (DELTA = '@')")
    assert "CREATE TABLE t (id BIGINT) WITH (…)" in str(refused.value)
    world.run("CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (DELTA = '@')")
    assert world.source().key == ("id",)


def test_topics_and_foreign_tables_wait_together(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@'); CREATE STREAM s (v INT)")
    log = open_log(world.settings, LakeLayout(world.settings.lake))
    topic = world.source().topic
    began = time.monotonic()
    log.wait({topic: {0: 0}, "s": {0: 0}}, 60)  # the table has a version
    world.run("INSERT INTO s VALUES (1)")
    log.wait({topic: {0: PLACES}, "s": {0: 0}}, 60)  # the topic has a record
    assert time.monotonic() - began < 60, "one of the two is enough"
    began = time.monotonic()
    log.wait({topic: {0: PLACES}, "s": {0: 1}}, 0.1)
    assert time.monotonic() - began >= 0.1, "neither has anything"


def went_back(world: World, *, optimized: bool = False) -> None:
    """The newest commit is lost, and another one takes its number: a folder that was put back from a backup."""
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    world.drain()
    if optimized:
        world.write(3)
        DeltaTable(world.theirs).optimize.compact()
    else:
        world.write(3)
    world.drain()
    newest = DeltaTable(world.theirs).version()
    (world.theirs / "_delta_log" / f"{newest:020d}.json").unlink()
    world.write(7)
    assert DeltaTable(world.theirs).version() == newest


@pytest.mark.parametrize("optimized", [False, True])
def test_a_version_that_is_another_one_than_was_read_is_not_passed_over(world: World, optimized: bool) -> None:
    """Also one that had changed no row."""
    went_back(world, optimized=optimized)
    for _ in range(2):
        with pytest.raises(ForeignChanged, match=f"version {1 + optimized} of .* is another one than was read"):
            world.drain()
    assert world.ids() == [1, 2, 3]
    (topic,) = (each for each in verify(world.settings) if each.check == "topic" and each.ok is False)
    assert "is another one than was read" in topic.what
    for plan in plan_rebuilds(world.settings, ["t"]):
        execute_rebuild(world.settings, plan)
    world.drain()
    assert world.ids() == ([1, 2, 3, 7] if optimized else [1, 2, 7])


def test_a_commit_that_cleaning_took_tells_nothing(world: World) -> None:
    world.run("CREATE TABLE t WITH (DELTA = '@', KEY = 'id')")
    world.write(3)
    world.drain()
    world.write(4)
    world.drain()
    DeltaTable(world.theirs).create_checkpoint()
    (world.theirs / "_delta_log" / f"{1:020d}.json").unlink()
    world.write(5)
    world.drain()
    assert world.ids() == [1, 2, 3, 4, 5]
