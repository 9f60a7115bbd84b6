"""How soon a standby goes on in the place of a run that is killed.

    python -m benchmarks.standby [KILLS] [--without-jvm]

Two processes keep one pipeline, one of them as the standby. The one at work is killed with SIGKILL, an event is
inserted, and the time is taken until the view has it; then another standby is started. At the end every event must be
in the view once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median

from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout

PIPELINE = """
CREATE STREAM sales (id BIGINT KEY, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE totals AS SELECT id, COUNT(*) AS n, SUM(qty) AS qty FROM sales GROUP BY id;
"""
COMMAND = (sys.executable, "-m", "strandline.jobs.cli.main")
_WITHOUT_JVM = """
import time
from strandline.jobs.run.spark import Session
Session._start = lambda _: time.sleep(1e6)
from strandline.jobs.cli.main import main
main()
"""
WITHOUT_JVM = (sys.executable, "-c", _WITHOUT_JVM)
"""A command whose JVM never is there: all events are taken in by the driver, as in the first seconds of any run."""
_PATIENCE_SECONDS = 300.0
_POLL_SECONDS = 0.02


class Pair:
    """A run and its standby, over the lake of the settings."""

    def __init__(self, settings: Settings, environment: Mapping[str, str], log: Path, command: Sequence[str]) -> None:
        self.settings = settings
        self._command = command
        self.lake = LakeLayout(settings.lake)
        self._environment = {**os.environ, **environment}
        self._log = log.open("ab")
        self._processes: list[subprocess.Popen[bytes]] = []
        self.events = 0
        self._begun_at = 0

    def start(self) -> None:
        """Start one more process: it runs the pipeline, or waits for whoever does."""
        self._begun_at = Path(self._log.name).stat().st_size
        command = [*self._command, "run", "shop", "--mode", "continuous", "--standby"]
        self._processes.append(subprocess.Popen(command, env=self._environment, stderr=self._log, stdout=self._log))

    def insert(self) -> None:
        """Insert one more event."""
        self.events += 1
        list(Interpreter(self.settings, "shop").run(f"INSERT INTO sales VALUES ({self.events}, 1);"))

    def wait_for_event(self) -> None:
        """Wait until the view has the last event."""
        self._wait(lambda: self._rows() == self.events, f"the view has {self._rows()} of {self.events} events")

    def wait_for_standby(self) -> None:
        """Wait until the newest process has looked at the lock, and was told who has it."""
        log = Path(self._log.name)
        waits = b"this one goes on in its place"
        self._wait(lambda: waits in log.read_bytes()[self._begun_at :], "no standby waits")

    def kill(self) -> None:
        """Kill the process that is at work."""
        beat = read_beat(self.lake, "shop")
        assert beat is not None
        [at_work] = [each for each in self._processes if each.pid == beat.process.pid]
        at_work.send_signal(signal.SIGKILL)
        at_work.wait()
        self._processes.remove(at_work)

    def stop(self) -> None:
        """End both."""
        for each in self._processes:
            each.kill()
            each.wait()
        self._log.close()

    def _rows(self) -> int:
        head = reader.head(self.lake.table("totals"))
        return 0 if head is None else head.record.rows

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(what)
            time.sleep(_POLL_SECONDS)


def takeovers(
    settings: Settings, environment: Mapping[str, str], log: Path, kills: int, command: Sequence[str] = COMMAND
) -> tuple[Pair, list[float]]:
    """Kill the process at work so often; the seconds from each kill to the view with an event of after it."""
    list(Interpreter(settings, "shop").run(PIPELINE))
    pair = Pair(settings, environment, log, command)
    seconds = []
    try:
        pair.start()
        pair.insert()
        pair.wait_for_event()
        for _number in range(kills):
            pair.start()
            pair.wait_for_standby()
            pair.insert()
            pair.wait_for_event()
            began = time.monotonic()
            pair.kill()
            pair.insert()
            pair.wait_for_event()
            seconds.append(time.monotonic() - began)
    finally:
        pair.stop()
    return pair, seconds


def main(kills: int, command: Sequence[str]) -> None:
    """Measure on a lake of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder) / "lake"
        log = Path(folder) / "log"
        environment = {"STRANDLINE_LAKE": str(lake)}
        pair, seconds = takeovers(load_settings(lake=lake), environment, log, kills, command)
        rows = reader.read_rows(pair.lake.table("totals")).to_pylist()
    wrong = [row for row in rows if (row["n"], row["qty"]) != (1, 1)]
    print(f"{kills} kills: {pair.events} events, {pair.events - len(rows)} lost, {len(wrong)} doubled")
    print(f"from the kill to the event in the view: median {median(seconds):.1f} s, longest {max(seconds):.1f} s")


if __name__ == "__main__":
    given = [each for each in sys.argv[1:] if each.isdecimal()]
    main(int(given[0]) if given else 10, WITHOUT_JVM if "--without-jvm" in sys.argv else COMMAND)
