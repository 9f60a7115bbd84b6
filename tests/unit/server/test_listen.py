"""The command: it listens, serves, and ends in good order with a subscriber connected."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from jobs.model.settings import load_settings
from tests.support.served_lake import ServedLake
from tests.unit.server.conftest import DEFINITIONS

COMMAND = "from jobs.cli.main import main; main()"


def test_it_listens_and_ends_with_a_subscriber_connected(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    with served.kernel() as kernel:
        served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
        served.refresh(kernel)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    arguments = ["serve", "--listen", address, "--folder", str(tmp_path / "server"), "--log-requests"]
    environment = os.environ | {"STRANDLINE_LAKE": str(served.lake.root)}
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments], env=environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            _until_up(address)
            with httpx.stream("GET", f"http://{address}/v1/views/by_town/changes", timeout=20) as events:
                lines = events.iter_lines()
                assert next(lines) == "event: row"
                begun = time.monotonic()
                process.send_signal(signal.SIGTERM)
                assert any(line == "event: progress" for line in lines)
            assert process.wait(timeout=20) in (0, -signal.SIGTERM)
            assert time.monotonic() - begun < 15
        finally:
            process.kill()
        assert process.stderr is not None
        assert '"route": "/health"' in process.stderr.read()


def _until_up(address: str) -> None:
    until = time.monotonic() + 40
    while True:
        try:
            assert httpx.get(f"http://{address}/health").status_code == 200
            return
        except httpx.TransportError:
            assert time.monotonic() < until
            time.sleep(0.1)
