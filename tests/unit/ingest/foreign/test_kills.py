"""A process that is killed while it takes in a folder or an Iceberg table: the next one loses and doubles no row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.jobs.operate.verify.verify import verify
from tests.support.foreign_folder import FolderWorld, ids
from tests.support.foreign_iceberg import IcebergWorld, end_threads

_DRAIN = """
import sys
from pathlib import Path
from strandline.jobs.ingest.foreign import parquet_folder
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
parquet_folder._TOGETHER = 2
drain(Settings(lake=Path(sys.argv[1])), "p", in_driver=True)
"""
_VIEW = "CREATE MATERIALIZED VIEW c AS SELECT n, COUNT(*) AS c FROM s GROUP BY n"
_COMMITS = ("before-log-commit:1", "after-log-commit:1", "after-staging:2", "after-link:2")


@pytest.fixture(autouse=True, scope="module")
def _without_threads() -> Iterator[None]:
    yield
    end_threads()


def killed_at(point: str, world: FolderWorld, **environment: str) -> None:
    """Drain in another process, which is killed there."""
    killed = subprocess.run(
        [sys.executable, "-c", _DRAIN, str(world.settings.lake)],
        env={**os.environ, "STRANDLINE_FAILPOINT": point, **environment},
        check=False,
        capture_output=True,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-500:]


def check(world: FolderWorld, expected: list[int]) -> None:
    world.drain()
    assert world.ids() == expected
    counts = {each % 10: 0 for each in expected}
    for each in expected:
        counts[each % 10] += 1
    assert dict(world.rows("SELECT n, c FROM c")) == counts
    assert [check for check in verify(world.settings, deep=True) if check.ok is False] == []


@pytest.mark.kill
@pytest.mark.parametrize(
    "point",
    [
        *("before-files-recorded:1", "after-files-recorded:1", "before-files-together:1", "after-files-together:1"),
        *_COMMITS,
    ],
)
def test_a_folder_goes_on_where_record_and_commits_say(tmp_path: Path, point: str) -> None:
    world = FolderWorld(tmp_path)
    world.put("a.parquet", ids(1, 2, 2))
    world.run(f"CREATE STREAM s WITH (PARQUET = '@'); {_VIEW}")
    world.drain()
    world.put("b.parquet", ids(2, 13))
    world.put("c.parquet", ids(2))
    killed_at(point, world)
    world.put("0.parquet", ids(4))  # it comes after those that have their numbers already, or beside them
    check(world, [1, 2, 2, 2, 2, 4, 13])


@pytest.mark.kill
@pytest.mark.parametrize("point", _COMMITS)
def test_an_iceberg_table_goes_on_where_the_commits_say(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = IcebergWorld(tmp_path, monkeypatch)
    world.begin(ids())
    world.table.append(ids(1, 2, 2))
    world.run(f"CREATE TABLE s WITH (ICEBERG = '@'); {_VIEW}")
    world.drain()
    world.table.delete("Id = 1")
    world.table.append(ids(2, 13))
    killed_at(point, world, **world.catalog_environment)
    check(world, [2, 2, 2, 13])


@pytest.mark.kill
@pytest.mark.parametrize("point", ["after-drop-intent:1", "after-drop-record:1", "after-drop-definition:1"])
def test_a_drop_that_is_killed_takes_the_record_along(tmp_path: Path, point: str) -> None:
    world = FolderWorld(tmp_path)
    world.put("a.parquet", ids(1))
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    text = "import sys; from pathlib import Path; from strandline.jobs.model.settings import Settings; "
    text += "from strandline.jobs.session.interpreter import Interpreter; "
    text += "list(Interpreter(Settings(lake=Path(sys.argv[1])), 'p').run('DROP STREAM s'))"
    environment = {**os.environ, "STRANDLINE_FAILPOINT": point}
    killed = subprocess.run([sys.executable, "-c", text, str(world.settings.lake)], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL
    world.run("CREATE STREAM s WITH (PARQUET = '@')")
    world.drain()
    assert world.ids() == [1]
    assert len([*(world.root / "folders").iterdir()]) == 1
