"""DynamoDB Local for tests and benchmarks: one process from jars, its tables in memory, on a free port.

`jobs.run.jars` fetches the jars. It is ready in three seconds. Unlike the imitations it has DynamoDB's own
limits of items, keys and requests.
"""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from infra.ports import free_port

# Three seconds on two idle cores; a machine that stands still for a while needs many times that.
_PATIENCE = 180.0


class DynamoDBLocal:
    """The running server."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        jars = _fetch_jars()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = folder / "dynamodb.log"
        command = ["java", "-Xmx512m", f"-Dsqlite4java.library.path={jars}", "-cp", f"{jars}/*"]
        command += ["com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory", "-disableTelemetry"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "-port", str(self.port)], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        self._wait()

    def client(self) -> Any:
        """A client of boto3. Any keys will do."""
        return client_of(self.url)

    def stop(self) -> None:
        """End it, with its tables."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(_PATIENCE)

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"DynamoDB Local did not start:\n{self._log.read_text()[-4000:]}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False


def client_of(url: str) -> Any:
    """A client of boto3 for a server on this machine."""
    import boto3

    keys = {"aws_access_key_id": "canary", "aws_secret_access_key": "canary"}
    return boto3.client("dynamodb", endpoint_url=url, region_name="us-east-1", **keys)


def _fetch_jars() -> str:
    """Their folder."""
    command = [sys.executable, "-m", "strandline.jobs.run.jars", "dynamodb"]
    fetched = subprocess.run(command, capture_output=True, text=True, check=False)
    if fetched.returncode != 0:
        raise RuntimeError(f"the jars of DynamoDB Local are missing and could not be fetched:\n{fetched.stderr}")
    return fetched.stdout.strip()
