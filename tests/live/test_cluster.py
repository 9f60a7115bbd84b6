"""One pipeline on a Spark standalone cluster with its lake on S3, beside the same on one machine with a disk.

The first run refreshes by DuckDB in tasks. Spark runs a second copy of each task that takes longer than a moment,
and an executor is killed while a view is being written. The second run, without the cluster, refreshes by Spark's own
plans. In the end each table has one commit per epoch, and the digests are those of one process over a disk.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.jars import fetch
from strandline.jobs.run.pipeline import drain
from strandline.state_store.delta import log, reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import any_file
from tests.support.examples import AT_LENGTH
from tests.support.fed_logs import FedLogs
from tests.support.invariants import assert_correct
from tests.support.lakes import s3_environment, s3_folder
from tests.support.orders import PIPELINE, VIEWS, assert_complete, define, produce
from tests.support.spark_cluster import SparkCluster
from tests.support.waiting import PATIENCE_SECONDS, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.support.s3_server import S3Server

_ROOT = Path(__file__).parents[2]
_TABLES = ("orders", "customers__log", "customers", *VIEWS)
_FIRST, _ALL = 3_000, 4_000

# A second copy of each task that runs longer than this, where another executor has room.
_SPARK_DEFAULTS = """
spark.executor.cores 2
spark.speculation true
spark.speculation.interval 20ms
spark.speculation.task.duration.threshold 50ms
spark.speculation.minTaskRuntime 50ms
spark.eventLog.enabled true
spark.eventLog.compress false
spark.eventLog.dir file://{folder}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    fetch("s3")
    started = SparkCluster(tmp_path / "cluster", os.environ | {"PYTHONPATH": str(_ROOT)})
    try:
        yield started
    finally:
        started.stop()


@pytest.mark.skipif(not AT_LENGTH, reason="minutes of five JVMs: `make nightly` runs it")
@pytest.mark.kill
def test_a_cluster_with_its_lake_on_s3_gives_what_one_machine_gives(
    cluster: SparkCluster, s3_server: S3Server, tmp_path: Path
) -> None:
    on_disk, on_s3 = LakeLayout(tmp_path / "lake"), LakeLayout(s3_folder(s3_server))
    storage = s3_environment(s3_server, on_s3.root)
    define(load_settings(lake=on_s3.root))
    produce(on_s3, range(_FIRST))

    events = _spark_defaults(tmp_path)
    first = _started({**storage, **_on(cluster), "SPARK_CONF_DIR": str(tmp_path / "conf")})
    _wait_for_rows_of(on_s3, "totals", first)
    cluster.kill_executor()
    _ended(first)
    assert_complete(on_s3, _FIRST)
    tasks = _tasks(events)
    assert any(task["Task Info"]["Speculative"] for task in tasks), "no task was run twice"
    assert any(task["Task End Reason"]["Reason"] == "ExecutorLostFailure" for task in tasks), "no task was lost"

    cluster.stop()
    produce(on_s3, range(_FIRST, _ALL))
    _ended(_started({**storage, "STRANDLINE_SPARK__MASTER": "local[2]", "STRANDLINE_ENGINE": "spark"}))
    assert_complete(on_s3, _ALL)
    assert_correct(on_s3, PIPELINE)
    for table in _TABLES:
        _assert_one_commit_per_epoch(on_s3, table)
    _on_one_machine(on_disk)
    for table in VIEWS:
        assert _digest(on_s3, table) == _digest(on_disk, table), table


def _on_one_machine(lake: LakeLayout) -> None:
    """The same events, taken in and refreshed without Spark."""
    settings = load_settings(lake=lake.root)
    define(settings)
    FedLogs(lake).feed(range(_ALL))
    drain(settings, PIPELINE)


def _on(cluster: SparkCluster) -> dict[str, str]:
    by_spark = {"STRANDLINE_INGEST__DRIVER_ROWS": "0"}
    return {"STRANDLINE_SPARK__MASTER": cluster.master, "SPARK_LOCAL_IP": "127.0.0.1", **by_spark}


def _spark_defaults(folder: Path) -> Path:
    """Where Spark finds its options, and writes what its tasks did."""
    events = folder / "events"
    for made in (events, folder / "conf"):
        made.mkdir()
    (folder / "conf" / "spark-defaults.conf").write_text(_SPARK_DEFAULTS.format(folder=events))
    return events


def _started(env: Mapping[str, str]) -> subprocess.Popen[str]:
    """A drain in a process of its own."""
    command = [sys.executable, "-m", "strandline.jobs.cli.main", "run", PIPELINE, "--mode", "drain"]
    whole = {**os.environ, "PYTHONPATH": str(_ROOT), **env}
    return subprocess.Popen(command, cwd=_ROOT, env=whole, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _ended(process: subprocess.Popen[str]) -> None:
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said[-4000:]


def _wait_for_rows_of(lake: LakeLayout, table: str, process: subprocess.Popen[str]) -> None:
    """Until a task has put rows of that table: in the middle of its refresh."""

    def begun() -> bool:
        assert process.poll() is None, process.communicate()[0][-4000:]
        return any_file(lake.table(table), ".parquet")

    wait_until(begun, f"no rows of {table}", 0.005)


def _tasks(folder: Path) -> list[dict[str, Any]]:
    """The ends of tasks, as Spark's own log of events has them."""
    lines = (line for file in folder.rglob("events*") if file.is_file() for line in file.read_text().splitlines())
    return [found for line in lines if (found := json.loads(line))["Event"] == "SparkListenerTaskEnd"]


def _assert_one_commit_per_epoch(lake: LakeLayout, table: str) -> None:
    path = lake.table(table)
    newest = log.newest_version(path)
    assert newest is not None
    commits = log.read_history(path, -1, newest)
    epochs = [commit.record.epoch for commit in commits if commit.record is not None]
    assert epochs == list(range(newest + 1)), table


def _digest(lake: LakeLayout, table: str) -> str:
    head = reader.head(lake.table(table))
    assert head is not None
    return head.record.digest
