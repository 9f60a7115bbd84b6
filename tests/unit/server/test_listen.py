"""The command: it listens, serves, and ends in good order with a subscriber connected."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx

from infra.ports import free_port
from jobs.model.settings import load_settings
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.unit.server.conftest import DEFINITIONS

COMMAND = "from jobs.cli.main import main; main()"


def test_it_listens_and_ends_with_a_subscriber_connected(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    with served.kernel() as kernel:
        served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
        served.refresh(kernel)
    address = f"127.0.0.1:{free_port()}"
    arguments = ["serve", "--listen", address, "--folder", str(tmp_path / "server"), "--log-requests"]
    environment = os.environ | {"STRANDLINE_LAKE": str(served.lake.root)}
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            wait_until(lambda: process.poll() is not None or _is_up(address), "it does not listen")
            with httpx.stream("GET", f"http://{address}/v1/views/by_town/changes", timeout=PATIENCE_SECONDS) as events:
                lines = events.iter_lines()
                assert next(lines) == "event: row"
                process.send_signal(signal.SIGTERM)
                assert any(line == "event: progress" for line in lines)
            assert process.wait(timeout=PATIENCE_SECONDS) in (0, -signal.SIGTERM)
        finally:
            process.kill()
        assert process.stderr is not None
        assert '"route": "/health"' in process.stderr.read()


def _is_up(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/health", timeout=PATIENCE_SECONDS).status_code == 200
    except httpx.TransportError:
        return False
