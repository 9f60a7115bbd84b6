"""The client that runs a pipeline's drain as a child process and never leaves it behind.

Dagster's own subprocess client leaves children alive: on cancel it sends SIGINT to one process, waits, and gives up.
This client ends the child's whole session (the JVM is in it), by SIGTERM and then SIGKILL. When the process that
watches the child is itself killed, the child's lifeline (`jobs.run.orphans`) closes and the child ends itself.

A child process with everything it starts, as one group that can be waited for and ended.

The child leads a session of its own, so that its children (a JVM, and the Python workers of Spark, which leave the
process group but not the session) can be found and ended with it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, TYPE_CHECKING, Any

import dagster as dg

from strandline.jobs.run.orphans import LIFELINE_FD
from strandline.state_store.errors import Action

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


Context = dg.OpExecutionContext | dg.AssetExecutionContext

# A JVM that is asked to end stops its streaming query, removes its temporary files and exits within 1–3 s; a machine
# that swaps takes longer. Must stay below run_monitoring.cancel_timeout_seconds in dagster.yaml.
GRACE_SECONDS = 30.0
# The end of a Spark stack trace with its `Caused by` chain fits; the whole output is in the run's compute logs.
_TAIL_LINES = 60
# The group has ended by then; only a process that left the session could still hold the other end open.
_ECHO_ENDS_WITHIN_SECONDS = 5.0


class DrainClient(dg.PipesClient):
    """A Pipes client for child processes that never outlive their step.

    Args:
        grace_seconds: between SIGTERM and SIGKILL.
        timeout_seconds: ends a child that runs longer; None lets it run. Drains are bounded by what the topics hold,
            and a first backfill may take hours, so there is no limit unless the caller knows one.
        env: added to the environment of the child.
    """

    def __init__(
        self,
        *,
        grace_seconds: float = GRACE_SECONDS,
        timeout_seconds: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.grace_seconds = grace_seconds
        self.timeout_seconds = timeout_seconds
        self.env = dict(env or {})

    def run(  # type: ignore[override]
        self,
        *,
        context: Context,
        extras: dict[str, Any] | None = None,
        command: Sequence[str],
    ) -> dg.PipesClientCompletedInvocation:
        """Run `command` in a Pipes session until it ends.

        Returns:
            The child's reports. Take the results with `implicit_materializations=False`: an asset that the child did
            not report is not materialized.

        Raises:
            Failure: the child ended with another code than 0, took too long, or sent no report. Retries are allowed
                when it was killed from outside, or when the action of its error is a retry.
        """
        with dg.open_pipes_session(
            context=context,
            context_injector=dg.PipesTempFileContextInjector(),
            message_reader=dg.PipesTempFileMessageReader(),
            extras=extras,
        ) as session:
            code, tail = self._run_child(command, session.get_bootstrap_env_vars(), context)
        messages = _merged(session.get_custom_messages())
        if code != 0:
            raise _failure(code, messages.get("error", {}), tail, self.timeout_seconds)
        if "report" not in messages:
            raise dg.Failure(
                "the drain ended with exit code 0, but without its report: nothing is known of the tables",
                metadata={"standard error (end)": _fenced(tail)},
            )
        return dg.PipesClientCompletedInvocation(session)

    def _run_child(
        self, command: Sequence[str], bootstrap: Mapping[str, str], context: Context
    ) -> tuple[int | None, str]:
        """The exit code (None: ended by us at the time limit) and the end of standard error."""
        with lifeline() as descriptor:
            environment = {
                **os.environ,
                **self.env,
                **bootstrap,
                LIFELINE_FD: str(descriptor),
                # Lines reach the run's logs when they are written, not when a buffer is full.
                "PYTHONUNBUFFERED": "1",
            }
            child = ProcessGroup(command, env=environment, stderr=subprocess.PIPE, pass_fds=[descriptor])
            echo = Echo(child.stderr)
            code: int | None = None
            try:
                context.log.info("started process %d: %s", child.pid, " ".join(command))
                code = child.wait(self.timeout_seconds)
            except subprocess.TimeoutExpired:
                context.log.error("process %d took longer than %s s: ending it", child.pid, self.timeout_seconds)
            finally:
                child.stop(self.grace_seconds)
                tail = echo.finish()
        return code, tail


class Echo:
    """Copies a child's standard error to ours, where Dagster's compute logs pick it up, and keeps its end."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=_TAIL_LINES)
        self._thread = Thread(target=self._copy, name="stderr", daemon=True)
        self._thread.start()

    def finish(self) -> str:
        """The last lines, once every process that could write has ended."""
        self._thread.join(_ECHO_ENDS_WITHIN_SECONDS)
        return "".join(self._lines)

    def _copy(self) -> None:
        with self._stream:
            for line in self._stream:
                self._lines.append(line)
                sys.stderr.write(line)


@contextmanager
def lifeline() -> Iterator[int]:
    """A child's lifeline: the reading end of a pipe whose writing end only this process holds."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(reading)
        os.close(writing)


def _merged(messages: Sequence[Any]) -> dict[str, dict[str, Any]]:
    merged: dict[str, dict[str, Any]] = {}
    for message in messages:
        if isinstance(message, dict):
            merged.update(message)
    return merged


def _failure(code: int | None, error: Mapping[str, Any], tail: str, limit: float | None) -> dg.Failure:
    """The failure of a step whose child failed, with the child's own error if it sent one."""
    if code is None:
        told, again = f"the drain took longer than {limit:g} s and was ended", False
    elif error:
        hint = f"\nhint: {error['hint']}" if error.get("hint") else ""
        where = f" ({error['where']})" if error.get("where") else ""
        told = f"[{error['code']}] {error['message']}{where}{hint}"
        again = error["action"] == Action.RETRY
    elif code < 0:
        told, again = f"the drain was killed by signal {-code} (out of memory?)", True
    else:
        told, again = f"the drain failed with exit code {code}; see the end of its standard error", False
    metadata: dict[str, dg.MetadataValue[Any]] = {"standard error (end)": _fenced(tail)}
    if code is not None:
        metadata["exit code"] = dg.MetadataValue.int(code)
    if error:
        metadata["error code"] = dg.MetadataValue.text(error["code"])
        metadata["action"] = dg.MetadataValue.text(error["action"])
    return dg.Failure(told, metadata=metadata, allow_retries=again)


def _fenced(text: str) -> dg.MetadataValue[Any]:
    return dg.MetadataValue.md(f"```\n{text.rstrip() or '(nothing)'}\n```")


def drain_command(pipeline: str) -> list[str]:
    """The command that drains a pipeline, with the interpreter that runs this process: it has the packages."""
    return [sys.executable, "-m", "strandline.jobs.run.dagster_child", "drain", pipeline]
