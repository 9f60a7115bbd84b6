"""A JVM that does not start, or is killed under its driver: the command says which of both, and why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.interpreter import Interpreter
from tests.support.waiting import PATIENCE_SECONDS, wait_until

MADE = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
INSERT INTO sales VALUES ('a', 1);
"""
COMMAND = [sys.executable, "-c", "from strandline.jobs.cli.main import main; main()"]


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    list(Interpreter(load_settings(lake=tmp_path / "lake"), "shop").run(MADE))
    return tmp_path / "lake"


def environment(lake: Path, **more: str) -> dict[str, str]:
    # Spark takes in what comes: the driver's own way needs no JVM.
    plain = {"STRANDLINE_LAKE": str(lake), "STRANDLINE_ENGINE": "spark", "STRANDLINE_KERNEL": "driver"}
    return os.environ | plain | more


def refused(lake: Path, **more: str) -> str:
    done = subprocess.run(
        [*COMMAND, "run", "shop"],
        env=environment(lake, **more),
        cwd=lake.parent,  # where a JVM without memory leaves its report
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.parametrize(
    ("master", "said"),
    [
        ("lokal[2]", "'lokal[2]' is no master of Spark"),
        ("local[two]", "Spark does not start with the master 'local[two]': Could not parse Master URL: 'local[two]'"),
    ],
)
def test_a_wrong_master_is_named(lake: Path, master: str, said: str) -> None:
    text = refused(lake, STRANDLINE_SPARK__MASTER=master)
    assert f"[settings.invalid] {said}" in text
    assert "install" not in text


def test_a_java_that_is_not_there_is_named(lake: Path, tmp_path: Path) -> None:
    text = refused(lake, JAVA_HOME=str(tmp_path / "nowhere"))
    assert "[settings.invalid] Spark needs Java 17 or 21, and there is none that runs" in text
    assert str(tmp_path / "nowhere" / "bin" / "java") in text


def test_memory_that_is_none_is_not_a_missing_java(lake: Path) -> None:
    text = refused(lake, STRANDLINE_SPARK__DRIVER_MEMORY="9000g")
    assert "[settings.invalid] Spark's JVM ended while it started" in text
    assert "STRANDLINE_SPARK__DRIVER_MEMORY" in text


def test_a_jvm_that_is_killed_is_not_a_broken_disk(lake: Path) -> None:
    arguments = [*COMMAND, "run", "shop", "--mode", "continuous"]
    with subprocess.Popen(arguments, env=environment(lake), stderr=subprocess.PIPE, text=True) as run:
        try:
            note = lake / "locks" / "shop.jvm"
            wait_until(lambda: note.exists() or run.poll() is not None, "no JVM was started")
            table = lake / "tables" / "by_shop" / "_delta_log" / f"{1:020}.json"
            wait_until(lambda: table.exists() or run.poll() is not None, "nothing was refreshed")
            os.kill(json.loads(note.read_bytes())["jvm"]["pid"], signal.SIGKILL)
            _, said = run.communicate(timeout=PATIENCE_SECONDS)
        finally:
            run.kill()
    assert run.returncode == 2
    assert "[pipeline.jvm_lost] Spark's JVM was ended by SIGKILL while the run was at work" in said
    assert "store.disk" not in said
    assert said.rstrip().endswith("or the machine more")  # what PySpark's own threads print of it stands above
