"""The identity of a process: alive only where and while it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from strandline.state_store.lock import Process, process


def test_a_process_is_itself_as_long_as_it_runs() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    found = process(child.pid)
    assert found is not None
    assert found.is_alive
    assert Process.from_json(found.as_json()) == found
    child.kill()
    assert not _alive_after_wait(child, found)


def _alive_after_wait(child: subprocess.Popen[bytes], found: Process) -> bool:
    child.wait()
    return found.is_alive


def test_the_same_pid_elsewhere_or_at_another_time_is_another_process() -> None:
    me = process(os.getpid())
    assert me is not None
    assert me.is_alive
    assert not replace(me, started="1").is_alive
    assert not replace(me, boot="another").is_alive
    assert not replace(me, host="another").is_local


@pytest.mark.parametrize("value", [None, 7, [], {}, {"pid": 1}, {"pid": "7", "started": "", "boot": "", "host": ""}])
def test_what_names_no_process_is_none(value: object) -> None:
    assert Process.from_json(value) is None
