"""A JVM that outlived its driver is ended before the next run reads a head."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jobs.run.orphans import _started, end_orphan


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_living_orphan_is_killed(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    note = tmp_path / "x.jvm"
    note.write_text(f"{sleeper.pid} {_started(sleeper.pid)}")
    assert end_orphan(note)
    assert sleeper.wait(timeout=5) == -9


def test_another_process_with_the_same_pid_is_left_alone(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Pids are used again: only pid and start time together name a process."""
    note = tmp_path / "x.jvm"
    note.write_text(f"{sleeper.pid} 1")
    try:
        assert not end_orphan(note)
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


@pytest.mark.parametrize("text", ["", "not a note", "999999999 5"])
def test_a_note_that_names_nobody_is_no_orphan(text: str, tmp_path: Path) -> None:
    note = tmp_path / "x.jvm"
    note.write_text(text)
    assert not end_orphan(note)


def test_without_a_note_there_is_no_orphan(tmp_path: Path) -> None:
    assert not end_orphan(tmp_path / "none.jvm")
