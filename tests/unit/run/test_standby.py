"""A standby goes on where a killed run was, on a disk and by the lease of an object store: nothing lost or doubled.

Real processes and kills, whose JVM is never ready: what a run does in its first seconds, and all that takes it over.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest

from benchmarks.standby import PIPELINE, WITHOUT_JVM, takeovers
from strandline.jobs.model.report import RunReport
from strandline.jobs.model.settings import Settings, StorageSettings, load_settings
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import follow
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.s3_server import BUCKET, S3Server
from tests.support.waiting import PATIENCE_SECONDS, wait_until

KILLS = 50 if AT_LENGTH else 3


def held(settings: Settings, environment: dict[str, str], log: Path, kills: int) -> None:
    pair, seconds = takeovers(settings, environment, log, kills, WITHOUT_JVM)
    assert len(seconds) == kills
    rows = reader.read_rows(pair.lake.table("totals")).to_pylist()
    assert sorted(row["id"] for row in rows) == list(range(1, pair.events + 1))
    assert {(row["n"], row["qty"]) for row in rows} == {(1, 1)}
    assert_correct(pair.lake, "shop")


@pytest.mark.kill
def test_a_killed_run_on_a_disk_is_followed_by_its_standby(
    settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    held(settings, {"STRANDLINE_LAKE": str(lake.root)}, tmp_path / "log", KILLS)


@pytest.mark.kill
def test_a_killed_run_on_an_object_store_is_followed_when_its_lease_has_ended(
    s3_server: S3Server, tmp_path: Path
) -> None:
    url = f"s3://{BUCKET}/standby"
    told = {
        "endpoint": s3_server.url,
        "region": "us-east-1",
        "access_key_id": "canary-id",
        "secret_access_key": "canary-secret",
        "allow_http": True,
        "lease_seconds": 8.0,
    }
    settings = load_settings(storage=StorageSettings.model_validate(told), lake=url)
    environment = {f"STRANDLINE_STORAGE__{name.upper()}": str(value) for name, value in told.items()}
    held(settings, {**environment, "STRANDLINE_LAKE": url}, tmp_path / "log", 2)


def test_a_standby_that_is_told_to_stop_ends_without_the_lock(
    settings: Settings, lake: LakeLayout, caplog: pytest.LogCaptureFixture
) -> None:
    list(Interpreter(settings, "shop").run(PIPELINE))
    stop = Event()
    with sole_writer(lake, "shop", "another/1"):
        report: list[RunReport] = []
        thread = Thread(target=lambda: report.append(follow(settings, "shop", stop, standby=True)))
        thread.start()
        wait_until(lambda: "standby: 'shop' is being written by" in caplog.text, "it does not say that it waits")
        stop.set()
        thread.join(PATIENCE_SECONDS)
    [found] = report
    assert found.epochs == 0


def test_a_standby_is_of_runs_that_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "strandline.jobs.cli.main", "run", "shop", "--standby"]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert "--mode continuous" in done.stderr
