"""A follower in a process of its own, begun in milliseconds, to be killed."""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from pathlib import Path

from strandline.state_store.replicas import follow
from tests.support.replica_backends import Backend
from tests.support.replicated import Replicated
from tests.support.waiting import PATIENCE_SECONDS

PIECE_ROWS = 7
"""So few that a small table is restored in many pieces."""


def started(folder: Path, kind: str, backend: Backend, failpoint: str = "", rounds: int = 1) -> BaseProcess:
    """A follower of the table in the folder, that catches up so many times; `failpoint` is where it kills itself.

    It has begun when this returns, so that a random kill finds it at work.
    """
    # A server that has imported everything and started no thread.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    begun = context.Event()
    process = context.Process(target=follower, args=(folder, kind, backend, failpoint, rounds, begun))
    process.start()
    assert begun.wait(PATIENCE_SECONDS)
    return process


def follower(folder: Path, kind: str, backend: Backend, failpoint: str, rounds: int, begun: Event) -> None:
    """The follower, in its own process. From the second round on it begins anew, and makes a backup."""
    os.environ["STRANDLINE_FAILPOINT"] = failpoint
    follow.PIECE_ROWS = PIECE_ROWS  # type: ignore[misc]
    made = Replicated(folder, kind)
    replica = made.replica(backend)
    begun.set()
    for number in range(rounds):
        if number:
            replica.begin()
        made.follower(replica).catch_up()
        replica.backup(folder / f"backup-{os.getpid()}-{number}")
    replica.close()
