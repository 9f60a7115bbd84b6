"""What Dagster takes for a lake of 200 views in ten pipelines: its location, its sensors, its storage.

    python -m benchmarks.dagster_day [--pipelines 10] [--views 20] [--ticks 30]

Before each fifth tick an event is taken in by every view of every pipeline, which the sensor of commits has to tell of
then. Events are stored in a SQLite of Dagster's own, whose rows and bytes are counted at the end.
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Final

import dagster as dg

from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.orchestration.definitions import build

_STREAM: Final = "CREATE STREAM s{p} (shop INT, qty INT) WITH (KAFKA_TOPIC = 's{p}', PARTITIONS = 1);"
_VIEW: Final = (
    "CREATE TABLE v{p}_{n} AS SELECT shop, COUNT(*) AS c, MAX(qty) AS m FROM s{p} WHERE qty > {n} GROUP BY shop;"
)
_TICKS_A_DAY: Final = 24 * 3600 // 10
_LOADED: Final = """
import time; began = time.monotonic()
from strandline.orchestration.definitions import build
from strandline.jobs.model.settings import load_settings
imported = time.monotonic()
build(load_settings()).get_repository_def().asset_graph
print(imported - began, time.monotonic() - imported)
"""


class Daemon:
    """Dagster's daemon, as far as it evaluates the sensors of the location, one after the other."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self._repository = build(settings).get_repository_def()
        self._instance = instance
        self._cursors: dict[str, str | None] = {}

    def tick(self, name: str) -> tuple[float, int]:
        """One tick of a sensor: its seconds, and the events that it told, which are stored."""
        context = dg.build_sensor_context(
            instance=self._instance,
            cursor=self._cursors.get(name),
            repository_def=self._repository,
            sensor_name=name,
        )
        began = time.monotonic()
        found = self._repository.get_sensor_def(name).evaluate_tick(context)
        seconds = time.monotonic() - began
        self._cursors[name] = found.cursor
        for event in found.asset_events:
            self._instance.report_runless_asset_event(event)
        return seconds, len(found.asset_events)


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--views", type=int, default=20)
    parser.add_argument("--ticks", type=int, default=30)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake, home = Path(folder) / "lake", Path(folder) / "dagster"
        home.mkdir()
        settings = load_settings(lake=lake, engine="duckdb")
        define(settings, asked.pipelines, asked.views)
        epoch(settings, asked.pipelines)
        loads = [loaded(lake) for _ in range(3)]
        print(f"location: imports {median(a for a, _ in loads):.2f} s, built {median(b for _, b in loads):.2f} s")
        with dg.DagsterInstance.local_temp(str(home)) as instance:
            watched(settings, instance, asked.pipelines, asked.ticks)
            stored(home, asked.ticks)


def define(settings: Settings, pipelines: int, views: int) -> None:
    """So many pipelines of a stream each, with so many views on it."""
    for p in range(pipelines):
        statements = _STREAM.format(p=p) + "".join(_VIEW.format(p=p, n=n) for n in range(views))
        list(Interpreter(settings, f"p{p}").run(statements))


def epoch(settings: Settings, pipelines: int) -> None:
    """An event of each pipeline, in every view."""
    for p in range(pipelines):
        list(Interpreter(settings, f"p{p}").run(f"INSERT INTO s{p} VALUES (1, 1000);"))
        drain(settings, f"p{p}", in_driver=True)


def loaded(lake: Path) -> tuple[float, float]:
    """The seconds of a new process for its imports, and to build the location."""
    command = [sys.executable, "-c", _LOADED]
    environment = {**os.environ, "STRANDLINE_LAKE": str(lake)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported, built = done.stdout.split()
    return float(imported), float(built)


def watched(settings: Settings, instance: dg.DagsterInstance, pipelines: int, ticks: int) -> None:
    """So many ticks of each sensor, each after an epoch."""
    daemon = Daemon(settings, instance)
    seconds: dict[str, list[float]] = {"commits": [], "alerts": [], "keep_streams": []}
    idle: dict[str, list[float]] = {name: [] for name in seconds}
    told = 0
    for number in range(ticks):
        if number % 5 == 0:
            epoch(settings, pipelines)
        for name, found in (seconds if number % 5 == 0 else idle).items():
            took, events = daemon.tick(name)
            found.append(took)
            told += events
    for name in seconds:
        print(
            f"sensor {name}: after an epoch median {median(seconds[name]):.2f} s, longest {max(seconds[name]):.2f} s; "
            f"else median {median(idle[name]):.2f} s, longest {max(idle[name]):.2f} s"
        )
    print(f"events told: {told} in {ticks} ticks, so {told / ticks * _TICKS_A_DAY:,.0f} a day at most")


def stored(home: Path, ticks: int) -> None:
    """The rows and bytes of Dagster's storage."""
    rows, size = 0, 0
    for file in home.rglob("*.db"):
        size += file.stat().st_size
        with sqlite3.connect(file) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows += sum(database.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names)
    print(f"storage after {ticks} ticks: {rows:,} rows, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
