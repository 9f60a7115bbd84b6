"""Orphans: processes that outlive those who started them. A child ends itself; a killed driver's JVM is ended.

A child process: the parent keeps the writing end of a pipe, the *lifeline*, and never writes. Whatever ends the parent,
also SIGKILL, closes that end; the child then reads end-of-file. A drain without a parent would hold the writer's lock
unseen.

A JVM does not notice at once that its driver was killed, and until then it may still commit. So a run notes its JVM
beside the writer's lock, with the lock's token, and the next holder of the lock ends that JVM before it reads any head.
Only a JVM whose lock was really taken over is ended. One with another token is of a run that may still be at work, when
the file of its lock was taken from under it. One of another host or boot is not known by its pid here.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from contextlib import contextmanager, suppress
from threading import Thread
from typing import TYPE_CHECKING

from strandline.state_store.errors import WriterBusy
from strandline.state_store.files import replace
from strandline.state_store.lock import LEASE_SECONDS, WriterLease, WriterLock, lease, writer_lock
from strandline.state_store.paths import Location
from strandline.state_store.processes import Process, process

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from strandline.state_store.layout import LakeLayout


LIFELINE_FD = "STRANDLINE_LIFELINE_FD"
"""Environment variable that holds the number of the inherited reading end."""


def hold_lifeline(on_lost: Callable[[], None] | None = None) -> bool:
    """Watch the parent from a background thread, if it gave us a lifeline.

    Args:
        on_lost: what to do when the parent is gone; by default this process's whole group is killed, the JVM with
            it. That is safe at any point: an epoch is one atomic commit, and the next run resumes from it.

    Returns:
        False when this process was not started with a lifeline (by hand, from a script).
    """
    number = os.environ.pop(LIFELINE_FD, None)
    if number is None:
        return False
    descriptor = int(number)
    os.set_inheritable(descriptor, False)
    Thread(target=_watch, args=(descriptor, on_lost or _kill_group), name="lifeline", daemon=True).start()
    return True


def _watch(descriptor: int, on_lost: Callable[[], None]) -> None:
    while os.read(descriptor, 1):
        pass
    on_lost()


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


log = logging.getLogger("strandline")

HeldLock = WriterLock | WriterLease
"""A writer's lock on either kind of storage: a file lock on a disk, a lease on an object store. Both can be checked."""

# A killed JVM is gone within milliseconds; a machine that swaps may take seconds.
_GONE_WITHIN_SECONDS = 20.0


@contextmanager
def sole_writer(
    lake: LakeLayout, pipeline: str, owner: str, lease_seconds: float = LEASE_SECONDS
) -> Iterator[HeldLock]:
    """Hold the pipeline's writer's lock, with no JVM of a dead run left.

    Args:
        lease_seconds: on an object store, how long a dead holder's lock is still good.

    Raises:
        WriterBusy: another process writes the pipeline.
    """
    path = lake.lock(pipeline)
    if isinstance(path, Location):
        # A JVM commits nothing, the store does; and a lease ends with the driver that renews it.
        with lease(path, owner, lease_seconds) as held:
            yield held
        return
    with writer_lock(path, owner) as lock:
        end_orphan(_note_of(lock), lock)
        yield lock


def end_orphan(note: Path, lock: WriterLock) -> bool:
    """End the JVM that `note` names, if it is still alive and the lock was taken over from its run.

    Returns:
        True when there was one.

    Raises:
        WriterBusy: it is alive and the lock was not taken over from its run, or it does not die.
    """
    found = _read(note)
    if found is None:
        return False
    jvm, token = found
    if not jvm.is_local:
        log.warning(
            "the JVM %d noted in %s ran on host '%s' or in another boot: from here it is neither seen nor ended",
            *(jvm.pid, note, jvm.host),
        )
        return False
    if not jvm.is_alive:
        return False
    if token != lock.taken_over:
        raise WriterBusy(
            f"the JVM {jvm.pid} of a run that did not hand over its lock is still alive",
            where=str(note),
            hint=f"wait for that run to end, and run again; if it is dead: kill {jvm.pid}",
        )
    _kill(jvm, note)
    return True


@contextmanager
def noted_jvm(spark: SparkSession, lock: HeldLock) -> Iterator[None]:
    """Keep a note of the session's JVM while the body runs; beside a lease there is none."""
    if not isinstance(lock, WriterLock):
        yield
        return
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - the only way to the JVM's pid
    assert jvm is not None
    with noted(int(jvm.java.lang.ProcessHandle.current().pid()), lock):
        yield


@contextmanager
def noted(pid: int, lock: WriterLock) -> Iterator[None]:
    """Keep a note of that process, as the JVM of the lock's holder, while the body runs."""
    note, found = _note_of(lock), process(pid)
    assert found is not None
    replace(note, json.dumps({"jvm": found.as_json(), "token": lock.token}).encode())
    try:
        yield
    finally:
        kept = _read(note)
        # After the loss of the lock the note may be the next holder's.
        if kept is not None and kept[1] == lock.token:
            note.unlink(missing_ok=True)


def _note_of(lock: WriterLock) -> Path:
    return lock.path.with_suffix(".jvm")


def _read(note: Path) -> tuple[Process, str] | None:
    try:
        content = json.loads(note.read_bytes())
        found = Process.from_json(content["jvm"])
        return (found, str(content["token"])) if found else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _kill(jvm: Process, note: Path) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone meanwhile, or of another user: then it is waited for
        os.kill(jvm.pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_WITHIN_SECONDS
    while jvm.is_alive:
        if time.monotonic() > deadline:
            raise WriterBusy(
                f"the JVM {jvm.pid} of a dead run does not end", where=str(note), hint=f"kill -9 {jvm.pid}"
            )
        time.sleep(0.05)
