"""A process that is killed while it takes in a foreign table: the next one neither loses nor doubles a row."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter

_DRAIN = """
import sys
from pathlib import Path
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
drain(Settings(lake=Path(sys.argv[1])), "p", in_driver=True)
"""


@pytest.mark.kill
@pytest.mark.parametrize("point", ["before-log-commit:1", "after-log-commit:1", "after-staging:2", "after-link:2"])
def test_the_next_run_goes_on_where_the_commits_say(tmp_path: Path, point: str) -> None:
    theirs, settings = tmp_path / "theirs", Settings(lake=tmp_path / "lake")
    write_deltalake(theirs, pa.table({"id": pa.array([1, 2, 2, 3], pa.int64())}))
    text = f"CREATE TABLE bag WITH (DELTA = '{theirs}');"
    text += "CREATE MATERIALIZED VIEW n AS SELECT id, COUNT(*) AS n FROM bag GROUP BY id"
    for _ in Interpreter(settings, "p").run(text):
        pass
    drain(settings, "p", in_driver=True)
    DeltaTable(theirs).delete("id = 2")
    write_deltalake(theirs, pa.table({"id": pa.array([3, 4], pa.int64())}), mode="append")
    environment = {**os.environ, "STRANDLINE_FAILPOINT": point}
    killed = subprocess.run(
        [sys.executable, "-c", _DRAIN, str(settings.lake)], env=environment, check=False, capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-500:]
    drain(settings, "p", in_driver=True)
    (found,) = Interpreter(settings, "p").run("SELECT id, n FROM n")
    assert isinstance(found, Rows)
    assert sorted(map(repr, found.rows)) == ["(1, 1)", "(3, 2)", "(4, 1)"]
    assert [check for check in verify(settings, deep=True) if check.ok is False] == []
