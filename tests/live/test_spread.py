"""First loads that Spark's tasks share, by the command line: workers die inside parts and buckets, the driver before
its commit. Each table has one commit for its first rows in the end, and the rows of one process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.fed_logs import FedLogs
from tests.support.invariants import assert_correct
from tests.support.orders import DEFINITIONS, PIPELINE, VIEWS, assert_complete, define
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from strandline.state_store.commits import Head

_ROOT = Path(__file__).parents[2]
_EVENTS = 1_200
_AGAIN = "".join(f"DROP TABLE {view};\n" for view in reversed(VIEWS))
_AGAIN += DEFINITIONS[DEFINITIONS.index("CREATE MATERIALIZED VIEW totals") :]


@pytest.mark.kill
def test_workers_and_a_driver_that_die_leave_the_rows_of_one_process(tmp_path: Path) -> None:
    shared, alone = LakeLayout(tmp_path / "shared"), LakeLayout(tmp_path / "alone")
    for lake in (shared, alone):
        define(load_settings(lake=lake.root))
        logs = FedLogs(lake)
        for first in range(0, _EVENTS, 200):  # a file each
            logs.feed(range(first, first + 200))
    drain(load_settings(lake=alone.root), PIPELINE)

    # The driver dies with the first files of the first view written, and none named.
    killed = _run(shared, "inside-refresh:1")
    assert killed.returncode == -9, killed.stdout[-4000:]
    assert _head(shared, "totals").record.rows == 0
    # In each worker the second part is its last; when the views are made again, the second bucket.
    for number, failpoint in enumerate(("inside-part:2", "inside-bucket:2")):
        if number:
            list(Interpreter(load_settings(lake=shared.root), PIPELINE).run(_AGAIN))
        done = _run(shared, failpoint)
        assert done.returncode == 0, done.stdout[-4000:]
        assert "Python worker exited unexpectedly" in done.stdout, f"no worker died at {failpoint}"
        for view in VIEWS:
            head = _head(shared, view)
            assert head.record.digest == _head(alone, view).record.digest, view
            assert head.record.epoch == 1, view
            # Of customers there are as many as totals: each part would read them all.
            assert ("in Spark's tasks" in str(head.record.reason)) == (view != "best"), view
        assert_complete(shared, _EVENTS)
        assert_correct(shared, PIPELINE)


def _head(lake: LakeLayout, table: str) -> Head:
    found = reader.head(lake.table(table))
    assert found is not None
    return found


def _run(lake: LakeLayout, failpoint: str) -> subprocess.CompletedProcess[str]:
    """A drain in a process of its own, which shares every first refresh."""
    env = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "STRANDLINE_LAKE": str(lake.root),
        "STRANDLINE_SPARK__MASTER": "local[2,8]",
        "STRANDLINE_SPREAD_ROWS": "1",
        "STRANDLINE_FAILPOINT": failpoint,
    }
    command = [sys.executable, "-m", "strandline.jobs.cli.main", "run", PIPELINE, "--mode", "drain"]
    return subprocess.run(
        command,
        cwd=_ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
