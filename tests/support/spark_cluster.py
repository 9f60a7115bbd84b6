"""A Spark standalone cluster for tests: a master and two workers from pyspark's own scripts, on loopback addresses.

The workers have addresses of their own (127.0.0.1, 127.0.0.2), since Spark starts no second copy of a task on a host
that has one already. All ends together, with the executors and their Python workers.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from infra.ports import free_port
from strandline.orchestration.launch import ProcessGroup
from tests.support.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_HOSTS = ("127.0.0.1", "127.0.0.2")
_EXECUTOR = b"CoarseGrainedExecutorBackend"


class SparkCluster:
    """The running cluster.

    Args:
        folder: for the workers' files and all logs.
        env: the environment of the workers, which their executors inherit.
    """

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self._groups = [self._start("master.Master", _HOSTS[0], ["--port", str(port)], env)]
        self._wait(port)
        for host in _HOSTS:
            ports = ["--cores", "2", "--memory", "1g", "--work-dir", str(folder / "work"), self.master]
            self._groups.append(self._start("worker.Worker", host, ports, env))

    def executors(self) -> list[int]:
        """The process ids of the executors that live."""
        members = [pid for group in self._groups[1:] for pid in group.members()]
        return [pid for pid in members if _EXECUTOR in _command(pid)]

    def kill_executor(self) -> None:
        """SIGKILL for one executor; its worker starts another. Raises IndexError: there is none."""
        os.kill(self.executors()[0], signal.SIGKILL)

    def stop(self) -> None:
        """End all processes."""
        for group in reversed(self._groups):
            group.stop(grace_seconds=0)

    def _start(self, name: str, host: str, more: list[str], env: Mapping[str, str]) -> ProcessGroup:
        command = [str(_SPARK_CLASS), f"org.apache.spark.deploy.{name}", "--host", host, "--webui-port", "0", *more]
        here = {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m"}
        with (self._folder / "cluster.log").open("a") as log:
            return ProcessGroup(command, env={**env, **here}, stdout=log, stderr=subprocess.STDOUT)

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self._groups[0].poll() is None:
            try:
                with socket.create_connection((_HOSTS[0], port), timeout=1):
                    return
            except OSError:
                time.sleep(0.1)
        self.stop()
        raise RuntimeError(f"Spark's master did not start:\n{(self._folder / 'cluster.log').read_text()[-4000:]}")


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
