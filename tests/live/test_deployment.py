"""The entry points of the image, run as it would run them: an empty environment, the commands and health checks of
compose.yaml, SIGTERM at the end. Only what needs a network of containers is another: the lake lies on this disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.house.plan import ROOT
from infra.ports import free_port
from tests.support.postgres_server import certificate_in
from tests.support.waiting import PATIENCE_SECONDS, wait_until

SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "infra" / "deploy" / "compose.yaml").read_text())["services"]
BIN = Path(sys.executable).parent
PIPELINE = """
CREATE STREAM sales (shop VARCHAR KEY, qty INT) WITH (KAFKA_TOPIC = 'sales', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, SUM(qty) AS qty FROM sales GROUP BY shop;
"""


class Image:
    """Commands as containers of the image: nothing of this process's environment, and ports of this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.metrics, self.https = free_port(), free_port()
        self._environment = {
            "PATH": f"{BIN}:/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "HOME": str(folder),
            "STRANDLINE_LAKE": str(folder / "lake"),
            "STRANDLINE_METRICS__HOST": "0.0.0.0",
            "STRANDLINE_METRICS__PORT": str(self.metrics),
            "STRANDLINE_SPARK__MASTER": "local[1]",
        }
        if "JAVA_HOME" in os.environ:
            self._environment["JAVA_HOME"] = os.environ["JAVA_HOME"]

    def _placed(self, argument: str) -> str:
        for place, here in (
            ("/pipelines", str(self._folder)),
            ("/var/lib/strandline", str(self._folder)),
            ("/run/secrets/tokens", str(self._folder / "tokens.json")),
            ("/run/secrets/certificate", str(self._folder / "server.crt")),
            ("/run/secrets/key", str(self._folder / "server.key")),
            ("9108", str(self.metrics)),
            ("8088", str(self.https)),
        ):
            argument = argument.replace(place, here)
        return argument

    def start(self, service: str) -> subprocess.Popen[str]:
        """Start a service's command."""
        command = [str(BIN / "strandline"), *map(self._placed, SERVICES[service]["command"])]
        return subprocess.Popen(
            command,
            env=self._environment,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *command: str) -> str:
        """Run a command to its end; what it printed."""
        done = subprocess.run(
            [str(BIN / "strandline"), *command],
            env=self._environment,
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def is_healthy(self, service: str) -> bool:
        """Make a service's health check, as the file has it."""
        kind, *command = SERVICES[service]["healthcheck"]["test"]
        assert kind == "CMD"
        done = subprocess.run(
            [*map(self._placed, command)], env=self._environment, capture_output=True, timeout=60, check=False
        )
        return done.returncode == 0


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """End a container's process as a stop does; its exit code, and what it said."""
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, said


@pytest.mark.live
def test_the_services_start_answer_their_health_checks_and_stop(tmp_path: Path) -> None:
    image = Image(tmp_path)
    (tmp_path / "shop.sql").write_text(PIPELINE)
    applied = image.start("apply")
    said, _ = applied.communicate(timeout=PATIENCE_SECONDS)
    assert applied.returncode == 0, said
    image.run("token", "prometheus", "--scope", "operate:*", "--file", "tokens.json")
    certificate_in(tmp_path)
    started: list[subprocess.Popen[str]] = []
    try:
        pipeline = image.start("pipeline")
        started.append(pipeline)
        wait_until(lambda: image.is_healthy("pipeline"), "the pipeline is not healthy", poll=0.5)
        server = image.start("server")
        started.append(server)
        wait_until(lambda: image.is_healthy("server"), "the server is not healthy", poll=0.5)
        image.run("sql", "-e", "INSERT INTO sales VALUES ('a', 2);")
        wait_until(lambda: "|2" in image.run("sql", "-e", "SELECT qty FROM by_shop;"), "no row", poll=0.5)
        code, said = ended(server)
        # uvicorn shuts down in order, and then ends by the signal that it was sent.
        assert code in (0, -signal.SIGTERM), said
        assert not image.is_healthy("server")
        code, said = ended(pipeline)
        # A stop within the JVM's start cuts it off: the exit code of the signal.
        assert code in (0, 128 + signal.SIGTERM), said
        assert not image.is_healthy("pipeline")
    finally:
        for each in started:
            each.kill()
            each.wait()
