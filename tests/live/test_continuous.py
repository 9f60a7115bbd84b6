"""The continuous mode as a person uses it: a run in one terminal, a push query in another, inserts in a third."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.waiting import PATIENCE_SECONDS

COMMAND = str(Path(sys.executable).with_name("strandline"))
# A stop that takes longer than some seconds would be cut short, with another exit code.
PATIENT = "from strandline.jobs.cli import command, main; command._GRACE_SECONDS = 600; main.main()"
PIPELINE = """
CREATE STREAM checkins (id BIGINT KEY, location VARCHAR) WITH (VALUE_FORMAT = 'AVRO', PARTITIONS = 3);
CREATE TABLE locations AS SELECT id, LATEST_BY_OFFSET(location) AS place FROM checkins GROUP BY id;
INSERT INTO checkins VALUES (1, 'New York');
"""


def _say(env: dict[str, str], text: str) -> None:
    subprocess.run([COMMAND, "sql", "-e", text], env=env, check=True, timeout=PATIENCE_SECONDS, capture_output=True)


@pytest.mark.live
def test_changes_are_seen_live_and_a_signal_ends_the_run(tmp_path: Path) -> None:
    """Each insert is seen by a push query that was there before it; SIGTERM ends the run with exit code 0."""
    env = os.environ | {"STRANDLINE_LAKE": str(tmp_path / "lake"), "STRANDLINE_SPARK__MASTER": "local[2]"}
    file = tmp_path / "packages.sql"
    file.write_text(PIPELINE)
    subprocess.run(
        [COMMAND, "sql", "-f", str(file)], env=env, check=True, timeout=PATIENCE_SECONDS, capture_output=True
    )
    run = subprocess.Popen(
        [sys.executable, "-c", PATIENT, "run", "packages", "--mode", "continuous"],
        env=env,
        stderr=subprocess.PIPE,
        text=True,
    )
    push = subprocess.Popen(
        [COMMAND, "sql", "--json", "-e", "SELECT * FROM locations EMIT CHANGES LIMIT 3;"],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert push.stdout is not None
        seen = [json.loads(push.stdout.readline())]
        _say(env, "INSERT INTO checkins VALUES (1, 'London');")
        seen.append(json.loads(push.stdout.readline()))
        _say(env, "INSERT INTO checkins VALUES (2, 'Paris');")
        seen.append(json.loads(push.stdout.readline()))
        assert seen == [{"id": 1, "place": "New York"}, {"id": 1, "place": "London"}, {"id": 2, "place": "Paris"}]
        assert push.wait(timeout=PATIENCE_SECONDS) == 0
        run.send_signal(signal.SIGTERM)
        _, said = run.communicate(timeout=PATIENCE_SECONDS)
        assert run.returncode == 0, said
    finally:
        for process in (push, run):
            process.kill()
            process.wait()
    head = reader.head(LakeLayout(tmp_path / "lake").table("checkins"))
    assert head is not None
    assert head.record.epoch == 3, "one epoch for each time something was inserted"
