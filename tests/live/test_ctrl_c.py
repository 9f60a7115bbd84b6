"""Ctrl-C during a run with a JVM: it ends with code 130, and the next run goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from tests.support.waiting import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
DEFINE = (
    "CREATE STREAM e (id BIGINT KEY, g INT) WITH (KAFKA_TOPIC = 'e');"
    "CREATE MATERIALIZED VIEW eg AS SELECT g, COUNT(*) AS n FROM e GROUP BY g;"
)
EVENTS = 20_000


@pytest.mark.kill
def test_ctrl_c_ends_a_drain_and_the_next_one_goes_on(tmp_path: Path) -> None:
    interpreter = Interpreter(load_settings(lake=tmp_path / "lake"), "big")
    list(interpreter.run(DEFINE))
    source = interpreter.catalog.get("e")
    assert isinstance(source, Source)
    insert_rows(source, [{"id": i, "g": i % 10} for i in range(EVENTS)], interpreter.settings, interpreter.lake)
    # So many small epochs that the signal comes before the last one, also if this process stands still after the first.
    first = _run(tmp_path, {"STRANDLINE_INGEST__MAX_ROWS_PER_EPOCH": "100"})
    said = _until_first_epoch(first)
    first.send_signal(signal.SIGINT)
    _, rest = first.communicate(timeout=PATIENCE_SECONDS)
    assert first.returncode == 130, said + rest
    assert "Traceback" not in said + rest
    held = reader.head(interpreter.lake.table("e"))
    assert held is not None
    assert 0 < held.record.rows < EVENTS
    second = _run(tmp_path, {})
    _, rest = second.communicate(timeout=PATIENCE_SECONDS)
    assert second.returncode == 0, rest
    rows = reader.read_rows(interpreter.lake.table("eg")).to_pylist()
    assert sorted((row["g"], row["n"]) for row in rows) == [(g, EVENTS // 10) for g in range(10)]


def _run(folder: Path, settings: dict[str, str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STRANDLINE_LAKE": str(folder / "lake"), **settings}
    return subprocess.Popen(
        [sys.executable, "-c", "from strandline.jobs.cli.main import main; main()", "run", "big"],
        cwd=folder,
        env=environment | {"STRANDLINE_SPARK__MASTER": "local[2]", "STRANDLINE_INGEST__DRIVER_ROWS": "0"},
        stderr=subprocess.PIPE,
        text=True,
    )


def _until_first_epoch(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if " epoch 1: " in line:
            break
    return said
