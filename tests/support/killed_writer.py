"""A writer of the two tables in a process of its own, begun in milliseconds, to be killed."""

from __future__ import annotations

import os
import sys
from functools import partial
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any
from unittest.mock import patch

from strandline.state_store.delta import commit
from strandline.state_store.errors import CommitConflict, VectorMismatch
from strandline.state_store.paths import LakePath
from tests.support.two_tables import TwoTables, run
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.warm_process import warm_processes

# Checkpoints every few commits: a kill must find one soon.
_CHECKPOINT_INTERVAL = 4


def started(lake: Path, events: int, epochs: int, failpoint: str = "", root: LakePath | None = None) -> BaseProcess:
    """A writer of `<lake>/root` that notes in `<lake>/told` what it was told; `failpoint` is where it kills itself.

    Args:
        root: another root, on an object store.

    It has begun to write when this returns, so that a random kill finds it at work.
    """
    context = warm_processes()
    begun = context.Event()
    process = context.Process(
        target=write, args=(root or lake / "root", lake / "told", events, epochs, failpoint, begun)
    )
    process.start()
    assert begun.wait(PATIENCE_SECONDS)
    return process


def lost_races(lake: Path, racers: int, events: int, epochs: int) -> int:
    """The races that were lost by processes that begin together, write so many epochs each without the lock, and plan
    again when one was faster."""
    context = warm_processes()
    together = context.Barrier(racers)
    processes = [context.Process(target=race, args=(lake, events, epochs, together)) for _ in range(racers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(PATIENCE_SECONDS)
    return sum(process.exitcode or 0 for process in processes)


def race(lake: Path, events: int, epochs: int, together: Barrier) -> None:
    """The epochs of one racer; it ends with the number of races that it lost, at most 99, as its exit code.

    At their first commit the racers wait for one another, so that they meet however they are scheduled.
    """
    tables, lost = TwoTables(lake / "root"), 0
    enter, met = commit.enter, list[int]()

    def entered(*given: Any) -> None:
        if not met:
            met.append(together.wait(PATIENCE_SECONDS))
        enter(*given)

    patch.object(commit, "enter", entered).start()
    for step in (partial(tables.ingest, events), tables.refresh):
        done = 0
        while done < epochs:
            try:
                step()
                done += 1
            except (CommitConflict, VectorMismatch):
                lost += 1
    sys.exit(min(lost, 99))


def write(root: LakePath, told: Path, events: int, epochs: int, failpoint: str, begun: Event) -> None:
    """The writer's epochs, in its own process."""
    os.environ["STRANDLINE_FAILPOINT"] = failpoint
    patch.object(commit, "CHECKPOINT_INTERVAL", _CHECKPOINT_INTERVAL).start()
    begun.set()
    run(root, told, events, epochs)
