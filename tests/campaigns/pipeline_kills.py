"""A pipeline's driver killed again and again, and what must hold of its views.

    python -m tests.campaigns.pipeline_kills [--seed 1] [--kills 100] [--s3] [--way refresh|command]

The pipeline has a join, a MAX that loses its maximum, and a window (`tests.support.orders`). Before each kill there are
new events; the driver is killed by SIGKILL at a named place of a refresh or of its commits, or at a random moment, and
the next one goes on where the lake says.

    refresh     the driver without a JVM, as a drain that finds its topics taken in: DuckDB refreshes the views
    command     `strandline run`, which takes the events in by Spark; views by DuckDB in tasks, by DuckDB in
                the driver and by Spark's own plans, in turn. A JVM that is left behind is the next run's to end

Every so many kills a driver runs to its end: then each event must be in its log once, and the views must be what DuckDB
makes of the events that were produced; their change feeds must fold to their rows.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from unittest.mock import patch

from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import drain
from strandline.state_store.delta import commit
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import Location
from tests.support.fed_logs import FedLogs
from tests.support.invariants import assert_correct
from tests.support.lakes import s3_environment, s3_folder
from tests.support.orders import PIPELINE, assert_complete, define, produce
from tests.support.s3_server import S3Server
from tests.support.warm_process import warm_processes

RANDOM = "random"
_COMMITS = ("after-table-folder", "after-staging", "after-data-flush", "after-vectors", "before-log-entry")
_ENTRIES = ("before-link", "after-link", "after-log-entry", "before-checkpoint", "before-hint", "after-checkpoint")
_REFRESHES = ("inside-refresh", "after-refresh-commit")
_INGESTS = ("before-log-commit", "after-log-commit")
REFRESH_POINTS = (*_COMMITS, *_ENTRIES, *_REFRESHES)
COMMAND_POINTS = (*_INGESTS, *_REFRESHES)
# Ways in which the command refreshes its views. In tasks it is a worker that would die at a named place, and Spark
# would run its task again: there the driver is killed at random moments only.
_ENGINES: tuple[Mapping[str, str], ...] = (
    {"STRANDLINE_KERNEL": "driver"},
    {"STRANDLINE_ENGINE": "spark"},
    {"STRANDLINE_KERNEL": "tasks"},
)
KILLS_PER_CHECK = 8
CHECKS_PER_LAKE = 4
EVENTS = 25
# A driver without a JVM is done in a third of a second; the command takes in its events 5 to 20 s after its start.
_REFRESH_SECONDS = (0.005, 0.4)
_COMMAND_SECONDS = (3.0, 15.0)
_PATIENCE = 300.0


@dataclass
class Result:
    """The outcome of a campaign.

    Attributes:
        kills: {place or `random`: drivers killed there}.
        missed: drivers that ended before they came to their place.
        events: of each source, in all lakes.
    """

    kills: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    events: int = 0

    def text(self) -> str:
        named = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        return f"{self.kills.total()} kills ({named}); {2 * self.events} events; lost 0, doubled 0, views equal"


class Driver(ABC):
    """Drivers of one lake, one after the other.

    Args:
        env: the settings of the lake.
    """

    def __init__(self, lake: LakeLayout, env: Mapping[str, str]) -> None:
        self.lake = lake
        self._env = env

    @abstractmethod
    def killed(self, place: str, draw: random.Random) -> bool:
        """Start a driver that is killed at the place; False: it ended before."""

    @abstractmethod
    def finished(self) -> None:
        """Run a driver to its end."""

    @abstractmethod
    def feed(self, numbers: range) -> None:
        """The events of these numbers, where the driver looks for them."""

    def _forget_lease(self) -> None:
        """The lease of a dead writer is waited for; test_lease does that."""
        lock = self.lake.lock(PIPELINE)
        if isinstance(lock, Location):
            lock.delete()


class RefreshDriver(Driver):
    """A drain without a JVM, in a process that begins in milliseconds."""

    def killed(self, place: str, draw: random.Random) -> bool:
        begun = warm_processes().Event()
        hit = "" if place == RANDOM else f"{place}:{draw.randint(1, 4)}"
        process = warm_processes().Process(target=_drained, args=(dict(self._env), hit, begun))
        process.start()
        assert begun.wait(_PATIENCE)
        if place == RANDOM:
            time.sleep(_moment(draw, *_REFRESH_SECONDS))
            process.kill()
        process.join(_PATIENCE)
        assert process.exitcode in (0, -signal.SIGKILL), f"the driver ended with {process.exitcode} ({hit})"
        self._forget_lease()
        return process.exitcode != 0

    def finished(self) -> None:
        process = warm_processes().Process(target=_drained, args=(dict(self._env), "", None))
        process.start()
        process.join(_PATIENCE)
        assert process.exitcode == 0

    def feed(self, numbers: range) -> None:
        FedLogs(self.lake).feed(numbers)


class CommandDriver(Driver):
    """`strandline run`, with its JVM."""

    def killed(self, place: str, draw: random.Random) -> bool:
        engine = draw.choice(_ENGINES if place == RANDOM else _ENGINES[:2])
        hit = {} if place == RANDOM else {"STRANDLINE_FAILPOINT": f"{place}:{draw.randint(1, 3)}"}
        with tempfile.TemporaryFile("w+") as said:
            process = self._started({**engine, **hit}, said.fileno())
            if place == RANDOM:
                time.sleep(_moment(draw, *_COMMAND_SECONDS))
                process.kill()
            code = process.wait(_PATIENCE)
            said.seek(0)
            assert code in (0, -signal.SIGKILL), f"the driver ended with {code} ({hit}): {said.read()[-3000:]}"
        self._forget_lease()
        return code != 0

    def finished(self) -> None:
        with tempfile.TemporaryFile("w+") as said:
            code = self._started({}, said.fileno()).wait(_PATIENCE)
            said.seek(0)
            assert code == 0, said.read()[-3000:]

    def feed(self, numbers: range) -> None:
        produce(self.lake, numbers)

    def _started(self, env: Mapping[str, str], out: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "strandline.jobs.cli.main", "run", PIPELINE, "--mode", "drain"]
        # Several micro-batches, so that a kill falls between two.
        pace = {
            "STRANDLINE_INGEST__MAX_ROWS_PER_EPOCH": str(EVENTS),
            "STRANDLINE_INGEST__DRIVER_ROWS": "0",
            "STRANDLINE_SPARK__MASTER": "local[2]",
        }
        return subprocess.Popen(command, env={**os.environ, **self._env, **pace, **env}, stdout=out, stderr=out)


def campaign(folder: Path, seed: int, places: list[str], way: type[Driver], s3: S3Server | None = None) -> Result:
    """Kill drivers; raises AssertionError, or an error of the store, at the first thing that does not hold.

    Args:
        s3: where the lakes are; default: in `folder`.
        places: the place of each kill, or `random`.
    """
    draw, result = random.Random(seed), Result()
    per_lake = KILLS_PER_CHECK * CHECKS_PER_LAKE
    for begin in range(0, len(places), per_lake):
        root = folder / f"lake-{begin}" if s3 is None else s3_folder(s3)
        env = {"STRANDLINE_LAKE": str(root)} if s3 is None else s3_environment(s3, root)
        driver = way(LakeLayout(root), env)
        define(load_settings(lake=root))
        _kills(driver, places[begin : begin + per_lake], draw, result)
    return result


def _kills(driver: Driver, places: list[str], draw: random.Random, result: Result) -> None:
    produced = 0
    for number, place in enumerate(places, 1):
        driver.feed(range(produced, produced + EVENTS))
        produced += EVENTS
        if driver.killed(place, draw):
            result.kills[place] += 1
        else:
            result.missed += 1
        if number % KILLS_PER_CHECK == 0 or number == len(places):
            driver.finished()
            assert_complete(driver.lake, produced)
            assert_correct(driver.lake, PIPELINE)
    result.events += produced


def _drained(env: Mapping[str, str], failpoint: str, begun: Event | None) -> None:
    """In a process of its own."""
    os.environ.update(env, STRANDLINE_FAILPOINT=failpoint)
    # A kill must find checkpoints soon.
    patch.object(commit, "CHECKPOINT_INTERVAL", 4).start()
    if begun is not None:
        begun.set()
    drain(load_settings(), PIPELINE)


def _moment(draw: random.Random, shortest: float, longest: float) -> float:
    """Seconds, drawn log-uniformly."""
    return shortest * math.pow(longest / shortest, draw.random())


def _planned(points: tuple[str, ...], kills: int) -> list[str]:
    """Each named place in turn, a random moment after each."""
    both = [place for point in points for place in (point, RANDOM)]
    return [both[number % len(both)] for number in range(kills)]


def main() -> None:
    """Run the campaign, print what was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--way", choices=("refresh", "command"), default="refresh")
    asked = parser.parse_args()
    began = time.monotonic()
    refresh = asked.way == "refresh"
    places = _planned(REFRESH_POINTS if refresh else COMMAND_POINTS, asked.kills)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = S3Server() if asked.s3 else None
        if server is not None:
            stack.callback(server.stop)
        result = campaign(Path(folder), asked.seed, places, RefreshDriver if refresh else CommandDriver, server)
    where = "S3" if asked.s3 else "disk"
    print(f"{asked.way} on {where}, seed {asked.seed}: {result.text()}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
