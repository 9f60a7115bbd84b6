"""A JVM that outlived its driver is ended before the next run reads a head; no other process is.

The JVM is a process that sleeps, noted as a run notes its JVM.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.run.orphans import end_orphan, noted, sole_writer
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import LockLost, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import WriterLock, writer_lock
from tests.support.on_disk import on_disk
from tests.support.waiting import PATIENCE_SECONDS

_KILLED_RUN = """
import os, signal, sys
from pathlib import Path
from strandline.jobs.run.orphans import noted, sole_writer
from strandline.state_store.layout import LakeLayout

with sole_writer(LakeLayout(Path(sys.argv[1])), "p", "run/1") as lock, noted(int(sys.argv[2]), lock):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield child
    child.kill()
    child.wait()


def _note(lake: LakeLayout) -> Path:
    return on_disk(lake.lock("p")).with_suffix(".jvm")


def _killed_run(lake: LakeLayout, jvm: subprocess.Popen[bytes]) -> None:
    done = subprocess.run([sys.executable, "-c", _KILLED_RUN, str(lake.root), str(jvm.pid)], check=False)
    assert done.returncode == -9
    assert _note(lake).exists()


@contextmanager
def _file_lock(lake: LakeLayout, owner: str) -> Iterator[WriterLock]:
    """The writer's lock of a lake on a disk: only beside a file is there a note."""
    with sole_writer(lake, "p", owner) as lock:
        assert isinstance(lock, WriterLock)
        yield lock


@pytest.mark.kill
def test_the_jvm_of_a_killed_run_is_ended_by_the_next(lake: LakeLayout, jvm: subprocess.Popen[bytes]) -> None:
    _killed_run(lake, jvm)
    with sole_writer(lake, "p", "run/2"):
        assert jvm.wait(timeout=PATIENCE_SECONDS) == -9


@pytest.mark.kill
@pytest.mark.parametrize(("field", "value"), [("started", "1"), ("host", "elsewhere"), ("boot", "another")])
def test_another_process_with_the_same_pid_is_left_alone(
    lake: LakeLayout, jvm: subprocess.Popen[bytes], field: str, value: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Pids are used again: only pid, start time, boot and host together name a process."""
    _killed_run(lake, jvm)
    note = json.loads(_note(lake).read_bytes())
    note["jvm"][field] = value
    _note(lake).write_text(json.dumps(note))
    with sole_writer(lake, "p", "run/2"):
        assert jvm.poll() is None
    assert ("neither seen nor ended" in caplog.text) is (field != "started")


def test_the_jvm_of_a_run_whose_lock_was_taken_away_is_not_ended(
    lake: LakeLayout, settings: Settings, jvm: subprocess.Popen[bytes]
) -> None:
    """The second run gets a lock on a new file; it stops, and the first one notices its loss."""
    list(Interpreter(settings, "p").run("CREATE STREAM s (id INT);"))
    with _file_lock(lake, "run/1") as first, noted(jvm.pid, first):
        on_disk(lake.lock("p")).unlink()
        with pytest.raises(WriterBusy, match=f"the JVM {jvm.pid} .* still alive"):
            drain(settings, "p")
        assert jvm.poll() is None
        with pytest.raises(LockLost):
            first.check()
    assert not _note(lake).exists()


def test_a_run_that_lost_its_lock_leaves_the_note_of_the_next_alone(
    lake: LakeLayout, jvm: subprocess.Popen[bytes]
) -> None:
    with _file_lock(lake, "run/1") as first:
        with noted(jvm.pid, first):
            on_disk(lake.lock("p")).unlink()
            _note(lake).unlink()
            with _file_lock(lake, "run/2") as second:
                inner = noted(jvm.pid, second)
                inner.__enter__()
        assert _note(lake).exists()
        inner.__exit__(None, None, None)
    assert not _note(lake).exists()


@pytest.mark.parametrize("text", ["", "not a note", "999999999 5", "[]", '{"jvm": {"pid": 7}, "token": "x"}'])
def test_a_note_that_names_nobody_is_no_orphan(text: str, lake: LakeLayout) -> None:
    with writer_lock(on_disk(lake.lock("p")), "run/1") as lock:
        _note(lake).write_text(text)
        assert not end_orphan(_note(lake), lock)


def test_without_a_note_there_is_no_orphan(lake: LakeLayout) -> None:
    with writer_lock(on_disk(lake.lock("p")), "run/1") as lock:
        assert not end_orphan(_note(lake), lock)
