"""What Dagster takes for a lake of 200 views in ten pipelines: its location, its sensors, its storage, for a day.

    python -m benchmarks.dagster_day [--pipelines 10] [--views 20] [--epochs 12] [--keep FOLDER]

A day is compressed. Its sensors tick by a clock that the benchmark sets forward, ten seconds a tick. As often as the
sensor tells of a table that never stands still, there is an epoch that every view takes in: a tick finds what it would
find if each view changed every second, since all commits between two tellings are one event. After so many epochs the
rest of the day is copied within the storage: the events of the last epoch, and an hour's run of the health checks of
all views. A night's proofs and drills are in it once. Then the sensors tick again, over all of that.
`benchmarks.dagster_pages --home FOLDER` opens the pages over what `--keep` has left.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Final

import dagster as dg

from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.health_checks import HEALTH_CHECKS
from strandline.jobs.operate.verify.verify import PROOFS
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.orchestration import sensors
from strandline.orchestration.definitions import build
from strandline.orchestration.told_rows import told_every

_STREAM: Final = "CREATE STREAM s{p} (shop INT, qty INT) WITH (KAFKA_TOPIC = 's{p}', PARTITIONS = 1);"
_VIEW: Final = (
    "CREATE TABLE v{p}_{n} AS SELECT shop, COUNT(*) AS c, MAX(qty) AS m FROM s{p} WHERE qty > {n} GROUP BY shop;"
)
_DAY_SECONDS: Final = 24 * 3600
_TICK_SECONDS: Final = 10
_HOURS: Final = 24
_LOADED: Final = """
import time; began, used = time.monotonic(), time.process_time()
from strandline.orchestration.definitions import build
from strandline.jobs.model.settings import load_settings
imported, spent = time.monotonic(), time.process_time()
build(load_settings()).get_repository_def().asset_graph
print(imported - began, time.monotonic() - imported, spent - used, time.process_time() - spent)
"""


class Daemon:
    """Dagster's daemon, as far as it evaluates the sensors of the location, one after the other."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance) -> None:
        self.repository = build(settings).get_repository_def()
        self._instance = instance
        self._cursors: dict[str, str | None] = {}
        self.storing = 0.0
        """The seconds in which events were stored."""

    def tick(self, name: str) -> tuple[float, int]:
        """One tick of a sensor: its seconds, and the events that it told, which are stored."""
        context = dg.build_sensor_context(
            instance=self._instance,
            cursor=self._cursors.get(name),
            repository_def=self.repository,
            sensor_name=name,
        )
        began = time.monotonic()
        found = self.repository.get_sensor_def(name).evaluate_tick(context)
        seconds = time.monotonic() - began
        self._cursors[name] = found.cursor
        for event in found.asset_events:
            self._instance.report_runless_asset_event(event)
        self.storing += time.monotonic() - began - seconds
        return seconds, len(found.asset_events)


class Day:
    """A day of the lake, by a clock that is set forward.

    Args:
        every: seconds between two tellings of a table that never stands still.
    """

    SENSORS: Final = {"commits": 1, "keep_streams": 1, "alerts": 3}
    """{sensor: its interval, in ticks}."""

    def __init__(self, settings: Settings, instance: dg.DagsterInstance, pipelines: int, every: float) -> None:
        self.daemon = Daemon(settings, instance)
        self._settings, self._instance, self._pipelines, self._every = settings, instance, pipelines, every
        self.now, self.ticks = time.time(), 0
        self.seconds: dict[str, list[float]] = {name: [] for name in self.SENSORS}
        clock = SimpleNamespace(monotonic=time.monotonic, time=lambda: self.now)
        sensors.time = clock  # type: ignore[attr-defined, assignment]

    def epoch(self) -> tuple[int, int]:
        """An epoch of every view, and the ticks until it is told of; those ticks, and their events."""
        epoch(self._settings, self._pipelines)
        self.now += self._every
        ticks, told = 0, 0
        while (found := self.tick()) or not ticks:
            ticks, told = ticks + 1, told + found
        return ticks, told

    def tick(self) -> int:
        """One tick of each sensor that is due; the events that were told."""
        told = 0
        for name, every in self.SENSORS.items():
            if self.ticks % every == 0:
                took, events = self.daemon.tick(name)
                self.seconds[name].append(took)
                told += events
        self.ticks, self.now = self.ticks + 1, self.now + _TICK_SECONDS
        return told

    def said(self, when: str) -> None:
        """Print what the ticks took, and forget it."""
        for name, found in self.seconds.items():
            print(
                f"{when}: sensor {name}: {len(found)} ticks, median {median(found):.2f} s, longest {max(found):.2f} s"
            )
            found.clear()

    def check(self, job: str, names: Sequence[str], views: Sequence[dg.AssetKey]) -> str:
        """Evaluate checks of all views, as a run of a job does; the run. Dagster plans them when it makes the run."""
        made = dg.DagsterEventType.ASSET_CHECK_EVALUATION.value
        run = self._instance.create_run_for_job(self.daemon.repository.get_job(job), status=dg.DagsterRunStatus.SUCCESS)
        for key in views:
            for name in names:
                numbers = {"stale seconds": 0.5}
                found = dg.AssetCheckEvaluation(key, name, True, numbers, description="stale for 0.5 s of 5 s")
                event = dg.DagsterEvent(made, job, event_specific_data=found)
                self._instance.report_dagster_event(event, run.run_id)
        return run.run_id


class Events:
    """The events in Dagster's SQLite, of which an interval can be stored again."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "history" / "runs"

    def last(self, shard: str = "index") -> int:
        """The number of the last event in one of its files."""
        with sqlite3.connect(self._folder / f"{shard}.db") as database:
            (found,) = database.execute("SELECT MAX(id) FROM event_logs").fetchone()
        return int(found or 0)

    def again(self, after: int, times: int, shard: str = "index") -> None:
        """Store the events after one again, so many times, with their tags."""
        with sqlite3.connect(self._folder / f"{shard}.db") as database:
            named = ", ".join(name for _, name, *_ in database.execute("PRAGMA table_info(event_logs)") if name != "id")
            last = self.last(shard)
            for number in range(1, times + 1):
                by = number * (last - after)
                database.execute(
                    f"INSERT INTO event_logs (id, {named}) SELECT id + {by}, {named} FROM event_logs"
                    f" WHERE id > {after} AND id <= {last}"
                )
                database.execute(
                    "INSERT INTO asset_event_tags (asset_key, event_id, key, value, event_timestamp)"
                    f" SELECT asset_key, event_id + {by}, key, value, event_timestamp FROM asset_event_tags"
                    f" WHERE event_id > {after} AND event_id <= {last}"
                )

    def run_again(self, run: str, after: int, times: int) -> None:
        """Store a run of checks again, so many times: its own file, its events after one in the index, its results."""
        self.again(after, times)
        for number in range(times):
            shutil.copy(self._folder / f"{run}.db", self._folder / f"{run}-{number}.db")
        with sqlite3.connect(self._folder / "index.db") as database:
            table = "asset_check_executions"
            named = ", ".join(name for _, name, *_ in database.execute(f"PRAGMA table_info({table})") if name != "id")
            chosen = named.replace("run_id", "run_id || ?")
            for number in range(times):
                database.execute(
                    f"INSERT INTO {table} ({named}) SELECT {chosen} FROM {table} WHERE run_id = ?", (f"-{number}", run)
                )


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--views", type=int, default=20)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--keep", type=Path, help="a folder for the lake and Dagster's storage")
    asked = parser.parse_args()
    with ExitStack() as stack:
        folder = asked.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lake, home = folder / "lake", folder / "dagster"
        home.mkdir(parents=True)
        (home / "dagster.yaml").write_text("nux: {enabled: false}")
        settings = load_settings(lake=lake, engine="duckdb")
        define(settings, asked.pipelines, asked.views)
        epoch(settings, asked.pipelines)
        loads = [loaded(lake) for _ in range(3)]
        clock, built, used, spent = (median(each) for each in zip(*loads, strict=True))
        print(f"location: imports {clock:.2f} s, built {built:.2f} s; of the processor {used:.2f} s, {spent:.2f} s")
        instance = stack.enter_context(dg.DagsterInstance.local_temp(str(home)))
        simulated(settings, instance, home, asked.pipelines, asked.epochs)


def simulated(settings: Settings, instance: dg.DagsterInstance, home: Path, pipelines: int, epochs: int) -> None:
    """A day, and what it leaves."""
    graph = build(settings).get_repository_def().asset_graph
    every = told_every(len(graph.get_all_asset_keys()))
    day = Day(settings, instance, pipelines, every)
    ticks, told = day.epoch()
    print(f"first look: {told} events in {ticks} ticks")
    day.said("first look")
    day.daemon.storing = 0.0
    found = [day.epoch() for _ in range(epochs)]
    told = sum(events for _, events in found)
    a_day = told / epochs * _DAY_SECONDS / every
    print(f"an epoch: {told / epochs:.0f} events, told within {median(t for t, _ in found) * _TICK_SECONDS} s")
    print(f"a table that never stands still is told of every {every:.0f} s, so {a_day:,.0f} events a day")
    an_event = day.daemon.storing / told
    print(f"an event is stored in {an_event * 1000:.1f} ms, so a day's in {a_day * an_event:,.0f} s")
    day.said("while all change")
    before = stored(home)
    events, views = Events(home), [key for key in graph.materializable_asset_keys if key.path[0] == "projections"]
    last, of_none = events.last(), events.last("")
    day.epoch()
    rest = round(_DAY_SECONDS / every) - epochs - 2
    events.again(last, rest)
    events.again(of_none, rest, "")
    last = events.last()
    events.run_again(day.check("health_checks", list(HEALTH_CHECKS), views), last, _HOURS - 1)
    day.check("proofs", list(PROOFS), views)
    day.check("drills", sorted({key.name for key in graph.asset_check_keys if key.name.startswith("drill_")}), views)
    rows, size = stored(home)
    print(f"storage after {epochs + 1} epochs: {before[0]:,} rows, {before[1] / 1e6:.1f} MB")
    print(f"storage after a day: {rows:,} rows, {size / 1e6:.1f} MB; {events.last():,} events")
    day.seconds = {name: [] for name in day.SENSORS}
    print("then one more epoch: {1} events in {0} ticks".format(*day.epoch()))
    day.said("after a day")


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


def loaded(lake: Path) -> tuple[float, float, float, float]:
    """The seconds of a new process for its imports, and to build the location; the same of the processor."""
    command = [sys.executable, "-c", _LOADED]
    environment = {**os.environ, "STRANDLINE_LAKE": str(lake)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    imported, built, used, spent = map(float, done.stdout.split())
    return imported, built, used, spent


def stored(home: Path) -> tuple[int, int]:
    """The rows and bytes of Dagster's storage."""
    rows, size = 0, 0
    for file in home.rglob("*.db"):
        size += file.stat().st_size
        with sqlite3.connect(file) as database:
            names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows += sum(database.execute(f'SELECT COUNT(*) FROM "{name}"').fetchone()[0] for name in names)
    return rows, size


if __name__ == "__main__":
    main()
