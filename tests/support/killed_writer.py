"""A writer of the two tables in a process of its own, begun in milliseconds, to be killed."""

from __future__ import annotations

import os
import sys
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from state_store.delta import commit
from state_store.errors import CommitConflict, VectorMismatch
from state_store.paths import LakePath
from tests.support.two_tables import TwoTables, run
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
    assert begun.wait(60)
    return process


def racing(lake: Path, events: int, epochs: int) -> BaseProcess:
    """A process that writes so many epochs without the lock, and plans again when another was faster."""
    process = warm_processes().Process(target=race, args=(lake, events, epochs))
    process.start()
    return process


def race(lake: Path, events: int, epochs: int) -> None:
    """The epochs of one racer; it ends with the number of races that it lost, at most 99, as its exit code."""
    tables, lost = TwoTables(lake / "root"), 0
    for step in (lambda: tables.ingest(events), tables.refresh):
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
    commit.CHECKPOINT_INTERVAL = _CHECKPOINT_INTERVAL
    begun.set()
    run(root, told, events, epochs)
