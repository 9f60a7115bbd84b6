"""What a test may leave behind for those after it: signal handlers, the environment, the folder, threads, children.

A handler that stays, as of Dagster's runs in this process, is inherited by every child of a later test, which then
does not hear SIGTERM.
"""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.waiting import wait_until

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGUSR1)
# Of the environment: pytest's own word for the test at hand, and what the session of Spark sets, which the first test
# that needs one starts for all.
_LASTING: Final = ("PYTEST_CURRENT_TEST", "PYSPARK_", "SPARK_", "PYARROW_")
# Servers that the first test that needs one starts for all: those of multiprocessing, and of fixtures of the session.
_SHARED: Final = ("from multiprocessing.", "tests.support.s3_server", "java")


@dataclass(frozen=True)
class Settled:
    """What this process has set, at one moment."""

    handlers: dict[int, object]
    environment: dict[str, str]
    folder: str

    @classmethod
    def now(cls) -> Settled:
        return cls({number: signal.getsignal(number) for number in _SIGNALS}, _environment(), os.getcwd())

    def left(self) -> list[str]:
        """What is not as it was, in words."""
        now = Settled.now()
        handled = [
            f"{signal.Signals(number).name} is handled by {now.handlers[number]}, not by {handler}"
            for number, handler in self.handlers.items()
            if now.handlers[number] != handler
        ]
        changed = {name for name, _ in self.environment.items() ^ now.environment.items()}
        folder = [] if now.folder == self.folder else [f"the working folder is {now.folder}"]
        return [*handled, *(f"the environment's {name} has changed" for name in sorted(changed)), *folder]

    def restore(self) -> None:
        """Set all of it back, so that the leak of one test fails no other."""
        for number, handler in self.handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        for name in _environment().keys() - self.environment.keys():
            del os.environ[name]
        os.environ.update(self.environment)
        os.chdir(self.folder)


@dataclass(frozen=True)
class Running:
    """The threads that keep this process from ending, and its children, at one moment."""

    threads: frozenset[threading.Thread]
    children: frozenset[int]

    @classmethod
    def now(cls) -> Running:
        return cls(frozenset(thread for thread in threading.enumerate() if not thread.daemon), _children())

    def left(self) -> list[str]:
        """What runs besides, in words. What is about to end is waited for."""
        if self._besides():
            try:
                wait_until(lambda: not self._besides(), "")
            except AssertionError:
                return self._besides()
        return []

    def _besides(self) -> list[str]:
        now = Running.now()
        commands = ((pid, _command(pid)) for pid in now.children - self.children)
        return [
            *(f"the thread '{thread.name}' runs" for thread in now.threads - self.threads),
            *(f"process {pid} runs: {text}" for pid, text in commands if text and not any(s in text for s in _SHARED)),
        ]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(_LASTING)}


def _children() -> frozenset[int]:
    """Of any thread; none where /proc does not tell them."""
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        try:
            found.update(int(pid) for pid in task.read_text().split())
        except OSError:
            continue  # the thread has ended
    return frozenset(found)


def _command(pid: int) -> str:
    """The command of a process; empty for one that has ended, waited for or not."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
