"""ALTER … ADD COLUMN of a source over a Delta table: a column that the table got is the source's, where it is exact."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.jobs.model.errors import InvalidQuery, SqlError, TypeMismatch, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Message, Rows
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import WriterBusy
from strandline.state_store.layout import LakeLayout
from tests.support.foreign_log import ForeignLog

KINDS = {
    "keyed": "CREATE TABLE t WITH (DELTA = '{}', KEY = 'id');",
    "bag": "CREATE TABLE t WITH (DELTA = '{}');",
    "stream": "CREATE STREAM t WITH (DELTA = '{}');",
}
VIEWS = "CREATE MATERIALIZED VIEW v AS SELECT v, COUNT(*) AS n FROM t GROUP BY v;"
_ALTER = """
import sys
from pathlib import Path
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
list(Interpreter(Settings(lake=Path(sys.argv[1])), "p").run(sys.argv[2]))
"""


class World:
    """A lake with a source over a table of others, which has two rows of two columns."""

    def __init__(self, folder: Path, kind: str = "keyed") -> None:
        self.theirs = folder / "theirs"
        self.settings = Settings(lake=folder / "lake")
        self.write(id=[1, 2], v=["a", "b"])
        self.statement = KINDS[kind].format(self.theirs)
        self.run(self.statement + VIEWS)
        self.drain()

    def write(self, **columns: list[object]) -> None:
        write_deltalake(self.theirs, pa.table(columns), mode="append", schema_mode="merge")

    def run(self, text: str) -> list[str]:
        return [each.text for each in Interpreter(self.settings, "p").run(text) if isinstance(each, Message)]

    def drain(self) -> None:
        drain(self.settings, "p", in_driver=True)

    def rows(self, text: str) -> list[tuple[object, ...]]:
        (found,) = Interpreter(self.settings, "p").run(text)
        assert isinstance(found, Rows)
        return sorted(map(tuple, found.rows), key=str)

    def wrong(self) -> list[str]:
        return [str(check) for check in verify(self.settings, deep=True) if check.ok is False]


@pytest.mark.parametrize("kind", ["keyed", "stream"])
def test_a_column_that_the_table_got_after_all_that_was_read(kind: str, tmp_path: Path) -> None:
    world = World(tmp_path, kind)
    world.write(id=[3, 4], v=["c", "c"], w=[7, None])
    what = "stream" if kind == "stream" else "table"
    assert world.run(f"ALTER {what.upper()} t ADD COLUMN w BIGINT") == [f"{what} 't' altered (pipeline 'p')"]
    world.run("CREATE MATERIALIZED VIEW sums AS SELECT SUM(w) AS w, COUNT(*) AS n FROM t")
    world.drain()
    assert world.rows("SELECT id, w FROM t") == [(1, None), (2, None), (3, 7), (4, None)]
    assert world.rows("SELECT * FROM v") == [("a", 1), ("b", 1), ("c", 2)]
    assert world.rows("SELECT * FROM sums") == [(7, 4)]
    if kind != "stream":
        DeltaTable(world.theirs).update({"w": "5"}, predicate="id IN (1, 3)")
        DeltaTable(world.theirs).delete("id = 2")
        world.drain()
        assert world.rows("SELECT id, w FROM t") == [(1, 5), (3, 5), (4, None)]
        assert world.rows("SELECT * FROM sums") == [(10, 3)]
    assert world.wrong() == []


def test_the_file_with_the_column_says_the_same(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(id=[3], v=["c"], w=[7])
    file = tmp_path / "p.sql"
    columns = "CREATE TABLE t (id BIGINT PRIMARY KEY, v VARCHAR, w BIGINT) WITH (DELTA"
    file.write_text(world.statement.replace("CREATE TABLE t WITH (DELTA", columns).replace(", KEY = 'id'", "") + VIEWS)
    assert [change.outcome for change in apply(file, world.settings).changes] == ["altered", "unchanged"]
    assert [change.outcome for change in apply(file, world.settings).changes] == ["unchanged", "unchanged"]
    world.drain()
    assert world.rows("SELECT id, w FROM t") == [(1, None), (2, None), (3, 7)]
    assert world.wrong() == []


def test_a_column_that_was_there_when_rows_were_read_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(id=[3], v=["c"], w=[7])
    world.drain()
    with pytest.raises(InvalidQuery, match="has had it since version 1 or before, and the rows up to there") as caught:
        world.run("ALTER TABLE t ADD COLUMN w BIGINT")
    assert "DROP the source" in str(caught.value.hint)
    world.write(id=[4], v=["d"], w=[7])
    world.drain()
    assert world.rows("SELECT id FROM t") == [(1,), (2,), (3,), (4,)]
    assert world.wrong() == []


@pytest.mark.parametrize(
    ("column", "error", "why"),
    [
        ("nope BIGINT", UnknownName, "unknown column 'nope'"),
        ("w VARCHAR", TypeMismatch, "column 'w' is BIGINT"),
        ("v VARCHAR", SqlError, "'v'"),
    ],
)
def test_what_the_table_does_not_have(column: str, error: type[SqlError], why: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(id=[3], v=["c"], w=[7])
    with pytest.raises(error, match=why):
        world.run(f"ALTER TABLE t ADD COLUMN {column}")
    world.run("ALTER TABLE t ADD COLUMN w BIGINT")


def test_a_renamed_column_has_its_values_under_another_name_and_is_refused(tmp_path: Path) -> None:
    log, settings = ForeignLog(tmp_path / "theirs"), Settings(lake=tmp_path / "lake")

    def fields(*names: str) -> list[dict[str, object]]:
        found: list[dict[str, object]] = []
        for number, name in enumerate(names, 1):
            about = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
            found.append({"name": name, "type": "long", "metadata": about})
        return found

    mode = {"delta.columnMapping.mode": "name"}
    log.begin(fields("id", "v"), features=["columnMapping"], configuration=mode)
    text = f"CREATE TABLE t (id BIGINT PRIMARY KEY) WITH (DELTA = '{log.path}')"
    list(Interpreter(settings, "p").run(text))
    drain(settings, "p", in_driver=True)
    log.commit(log.metadata(fields("id", "renamed", "added"), mode))
    with pytest.raises(InvalidQuery, match="cannot get column 'renamed'"):
        list(Interpreter(settings, "p").run("ALTER TABLE t ADD COLUMN renamed BIGINT"))
    list(Interpreter(settings, "p").run("ALTER TABLE t ADD COLUMN added BIGINT"))


def test_a_bag_tells_its_rows_apart_by_all_values_and_gets_no_column(tmp_path: Path) -> None:
    world = World(tmp_path, "bag")
    world.write(id=[3], v=["c"], w=[7])
    with pytest.raises(InvalidQuery, match="'t' has no KEY"):
        world.run("ALTER TABLE t ADD COLUMN w BIGINT")
    world.drain()
    assert world.rows("SELECT id FROM t") == [(1,), (2,), (3,)]


def test_a_run_that_goes_on_would_read_further_rows_without_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(id=[3], v=["c"], w=[7])
    with sole_writer(LakeLayout(world.settings.lake), "p", "p/1"), pytest.raises(WriterBusy):
        world.run("ALTER TABLE t ADD COLUMN w BIGINT")
    world.run("ALTER TABLE t ADD COLUMN w BIGINT")


@pytest.mark.kill
@pytest.mark.parametrize("point", ["before-replacement-intent", "after-replacement-intent", "after-log-entry"])
def test_a_kill_leaves_the_source_without_the_column_or_with_it(point: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write(id=[3], v=["c"], w=[7])
    text = "ALTER TABLE t ADD COLUMN w BIGINT"
    killed = subprocess.run(
        [sys.executable, "-c", _ALTER, str(world.settings.lake), text],
        env={**os.environ, "STRANDLINE_FAILPOINT": point},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-500:]
    if point != "before-replacement-intent":
        world.drain()  # ends what was begun, before it reads on
    else:
        world.run(text)
        world.drain()
    assert world.rows("SELECT id, w FROM t") == [(1, None), (2, None), (3, 7)]
    assert world.wrong() == []
