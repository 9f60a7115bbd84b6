"""The writer's lock: one holder at a time, named to the others, and gone with its process."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from strandline.state_store.errors import Action, DiskFailed, LockLost, WriterBusy
from strandline.state_store.lock import writer_lock
from strandline.state_store.processes import Process, process

_HOLD = """
import sys, time
from pathlib import Path
from typing import NoReturn
from strandline.state_store.lock import writer_lock

with writer_lock(Path(sys.argv[1]), "a test's child"):
    print("held", flush=True)
    time.sleep(600)
"""


def _holder(path: Path) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, "-c", _HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    return child


def test_a_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "tickets.lock"
    child = _holder(path)
    try:
        with pytest.raises(WriterBusy) as error, writer_lock(path, "me"):
            pytest.fail("two writers hold the lock")
        assert f"'tickets' is being written by process {child.pid} (a test's child)" in error.value.message
        assert error.value.action is Action.RETRY
    finally:
        child.kill()
        child.wait()


@pytest.mark.kill
def test_the_lock_is_free_as_soon_as_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "tickets.lock"
    for _ in range(3):
        child = _holder(path)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        with writer_lock(path, "the next"):
            pass


def test_two_threads_of_one_process_exclude_each_other_too(tmp_path: Path) -> None:
    path = tmp_path / "tickets.lock"
    with writer_lock(path, "first"), pytest.raises(WriterBusy, match=str(os.getpid())), writer_lock(path, "second"):
        pytest.fail("the lock was given twice")


def test_a_child_process_does_not_keep_the_lock_alive(tmp_path: Path) -> None:
    """The JVM is a child of the writer; it may outlive it by some seconds."""
    path = tmp_path / "tickets.lock"
    with writer_lock(path, "parent"):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], close_fds=False)
    try:
        with writer_lock(path, "next"):
            pass
    finally:
        child.kill()
        child.wait()


def test_the_lock_is_released_after_an_error_and_names_nobody(tmp_path: Path) -> None:
    path = tmp_path / "tickets.lock"
    with pytest.raises(RuntimeError, match="boom"), writer_lock(path, "first"):
        raise RuntimeError("boom")
    assert path.read_bytes() == b""
    with writer_lock(path, "second"):
        assert b"second" in path.read_bytes()


def test_a_holder_notices_that_its_file_was_removed_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "tickets.lock"
    with writer_lock(path, "first") as lock:
        lock.check()
        path.unlink()
        with pytest.raises(LockLost, match="'tickets'") as error:
            lock.check()
        assert error.value.action is Action.RETRY
        path.write_text("")
        with pytest.raises(LockLost):
            lock.check()


def test_a_file_that_was_replaced_after_it_was_opened_is_not_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is taken away between open and flock: what is locked then is nobody's lock."""
    path, opened = tmp_path / "tickets.lock", os.open

    def slow(name: Path, flags: int, mode: int = 0o777) -> int:
        descriptor = opened(name, flags, mode)
        if removals:
            removals.pop()
            path.unlink()
        return descriptor

    removals = [1, 2]
    monkeypatch.setattr(os, "open", slow)
    with writer_lock(path, "first") as lock:
        lock.check()
        with pytest.raises(WriterBusy), writer_lock(path, "second"):
            pytest.fail("the lock was given twice")
    assert removals == []


def test_only_a_holder_that_died_hands_its_token_over(tmp_path: Path) -> None:
    path = tmp_path / "tickets.lock"
    with writer_lock(path, "first") as first:
        assert first.taken_over is None
    child = _holder(path)
    token = json.loads(path.read_bytes())["token"]
    child.kill()
    child.wait()
    with writer_lock(path, "second") as second:
        assert second.taken_over == token
        path.unlink()
        with writer_lock(path, "third") as third:
            assert third.taken_over is None


@pytest.mark.parametrize("place", ["host", "boot"])
def test_a_pid_of_another_host_or_boot_is_not_believed(tmp_path: Path, place: str) -> None:
    path = tmp_path / "tickets.lock"
    with writer_lock(path, "run tickets.sql"):
        note = json.loads(path.read_bytes())
        note["process"][place] = "elsewhere"
        path.write_text(json.dumps(note))
        with pytest.raises(WriterBusy, match="on another host or in another boot") as error, writer_lock(path, "me"):
            pytest.fail("two writers hold the lock")
        assert "kill" not in str(error.value.hint)


@pytest.mark.parametrize("note", [b"", b"[]", b"null", b"{", b'{"process": {"pid": 1}}', b"\xff"])
def test_a_note_that_names_nobody_is_another_process(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "tickets.lock"
    with writer_lock(path, "run tickets.sql"):
        path.write_bytes(note)
        with pytest.raises(WriterBusy, match="by another process"), writer_lock(path, "me"):
            pytest.fail("two writers hold the lock")


# The identity of a process: alive only where and while it runs.


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


@pytest.mark.parametrize("step", ["pwrite", "ftruncate", "open"])
def test_a_full_disk_is_said_and_leaves_the_lock_free(tmp_path: Path, step: str) -> None:
    path = tmp_path / "locks" / "shop.lock"

    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, step, full)
        with pytest.raises(DiskFailed, match="the disk is full"), writer_lock(path, "one"):
            pass
    with writer_lock(path, "another"):
        pass
