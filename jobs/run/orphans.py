"""Ends the JVM that a killed driver left behind, before the next run starts.

A JVM does not notice at once that its driver was killed, and until then it may still commit. So a run notes its JVM
beside the writer's lock, and the next holder of the lock ends that JVM before it reads any head.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from state_store.errors import WriterBusy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# A killed JVM is gone within milliseconds; a machine that swaps may take seconds.
_GONE_WITHIN_SECONDS = 20.0


def _started(pid: int) -> str | None:
    """The start time of a live process in clock ticks, which with the pid identifies it; None if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def end_orphan(note: Path) -> bool:
    """End the JVM that `note` names, if it is still alive.

    Returns:
        True when there was one.

    Raises:
        WriterBusy: it does not die.
    """
    try:
        pid_text, started = note.read_text().split()
    except (OSError, ValueError):
        return False
    pid = int(pid_text)
    if _started(pid) != started:
        return False
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _GONE_WITHIN_SECONDS
    while _started(pid) == started:
        if time.monotonic() > deadline:
            raise WriterBusy(f"the JVM {pid} of a dead run does not end", where=str(note), hint=f"kill -9 {pid}")
        time.sleep(0.05)
    return True


@contextmanager
def noted_jvm(spark: SparkSession, note: Path) -> Iterator[None]:
    """Keep a note of the session's JVM while the body runs."""
    jvm = spark.sparkContext._jvm  # noqa: SLF001 - the only way to the JVM's pid
    assert jvm is not None
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(f"{pid} {_started(pid) or 0}")
    try:
        yield
    finally:
        note.unlink(missing_ok=True)
