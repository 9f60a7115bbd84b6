"""A child process with everything it starts, as one group that can be waited for and ended.

The child leads a session of its own, so that its children (a JVM, and the Python workers of Spark, which leave the
process group but not the session) can be found and ended with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Seconds between two looks whether a group has ended. Reading /proc takes about a millisecond on an ordinary machine.
_POLL_SECONDS = 0.05
# SIGKILL cannot be refused; only a process stuck inside the kernel (a dead network mount) outlives it that long.
_KILLED_WITHIN_SECONDS = 10.0
# Some hundred lines, whatever stands in them.
_END_BYTES = 1 << 16


def last_lines(output: Path, count: int) -> list[str]:
    """The last lines of what a child wrote to a file; of its end alone, since the file may be long."""
    with output.open("rb") as file:
        file.seek(max(0, output.stat().st_size - _END_BYTES))
        return file.read().decode(errors="replace").splitlines()[-count:]


@contextmanager
def signals_held_back() -> Iterator[None]:
    """Let a cancel wait until the body is done: a child that was just started must be known to whoever ends it.

    The handlers that raise for SIGINT and SIGTERM run at the end. Elsewhere than in the main thread none ever runs.
    A child that the body starts begins with the system's handlers, also where a shell has this process ignore SIGINT
    (`make up &` in a script): Dagster takes SIGTERM for what SIGINT is, and would not hear that it is to end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    found = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    # None: set by what is no Python, and not to be set back from here.
    before = {number: handler for number, handler in found.items() if handler is not None}
    try:
        for number in before:
            signal.signal(number, lambda heard, _frame: came.append(heard))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for each in dict.fromkeys(came):
        signal.raise_signal(each)


class Group:
    """The processes of one session, known by the pid of the one that leads or led it."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def stop(self, grace_seconds: float) -> None:
        """End the whole group: SIGTERM, and SIGKILL for what is left after `grace_seconds`.

        Returns at once when nothing is left. An exception that a signal raises in here (a second cancel) skips the
        grace, never the SIGKILL.
        """
        try:
            if self.members():
                self._signal(signal.SIGTERM)
                self._gone_within(grace_seconds)
        finally:
            if self.members():
                self._signal(signal.SIGKILL)
                self._gone_within(_KILLED_WITHIN_SECONDS)

    def members(self) -> list[int]:
        """The live processes of the group, the leader first if it lives. Zombies do not count."""
        if Path("/proc/self/stat").exists():
            return _session_members(self.pid)
        return _group_leader(self.pid)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self.members():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
            except PermissionError:
                # Only a process that changed its user refuses; it is not ours to end any more.
                continue

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.members():
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True


class ProcessGroup(Group):
    """One started child and its descendants.

    Args:
        command: program and arguments; never a shell's text.
        env: the whole environment; None inherits ours.
        stdout, stderr: as for `subprocess.Popen`; None inherits ours.
        pass_fds: descriptors the child keeps.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdout: int | IO[str] | None = None,
        stderr: int | IO[str] | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        with signals_held_back():
            self._process = subprocess.Popen(
                list(command),
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                pass_fds=tuple(pass_fds),
                start_new_session=True,
                text=True,
                errors="replace",
            )
        super().__init__(self._process.pid)

    @property
    def stderr(self) -> IO[str]:
        """The child's standard error; only when started with `stderr=subprocess.PIPE`."""
        assert self._process.stderr is not None, "started without stderr=PIPE"
        return self._process.stderr

    def poll(self) -> int | None:
        """The child's exit code; None while it runs."""
        return self._process.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the child itself and return its exit code (negative: the signal that ended it).

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        # Never without a limit: a cancel is a signal, which the kernel may hand to any thread, and then nothing wakes
        # a wait that blocks. With a limit Python looks every 50 ms, and runs the handler that raises.
        return self._process.wait(threading.TIMEOUT_MAX if timeout is None else timeout)

    def members(self) -> list[int]:
        """The live processes of the group, the child first if it lives. Zombies do not count."""
        self._process.poll()
        return super().members()


def _session_members(session: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            # `pid (name) state ppid pgrp session …`; the name may hold spaces and brackets.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(entry.name))
    return sorted(members)


def _group_leader(group: int) -> list[int]:
    """The group, if it lives, as a negative pid for `kill`: without /proc (macOS) its members are not listed."""
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return []
    return [-group]
