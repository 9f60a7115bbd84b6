"""Files, each in a process of its own, several beside one another, none for longer than it may take."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Final

from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.outside.sqllogic.outcomes import Outcome
from tests.outside.sqllogic.run_file import Runner
from tests.outside.sqllogic.suites import SUITES, Suite

SECONDS: Final = 180.0
"""A file that takes longer is stopped: what it has not come to is not asked."""

_FORKED: Final = multiprocessing.get_context("fork")


def run(
    files: Iterable[tuple[Suite, Path]], place: Path, seed: int, jobs: int, seconds: float = SECONDS
) -> Iterator[Outcome]:
    """The outcomes of all queries of these files; those of a file come together, as it ends."""
    todo = iter(files)
    running: list[_Running] = []
    while True:
        while len(running) < jobs and (file := next(todo, None)) is not None:
            running.append(_Running.of(file, place, seed))
        if not running:
            return
        ready = wait([each.end for each in running], timeout=1.0)
        for each in list(running):
            if each.end in ready and not each.more():
                each.process.join()
            elif time.monotonic() - each.began <= seconds:
                continue
            else:
                each.stop(f"the file takes longer than {seconds:.0f} s")
            running.remove(each)
            yield from each.found


@dataclass
class _Running:
    """A file that is run, and what it has come to so far."""

    suite: str
    name: str
    process: ForkProcess
    end: Connection
    began: float = field(default_factory=time.monotonic)
    found: list[Outcome] = field(default_factory=list)

    @classmethod
    def of(cls, file: tuple[Suite, Path], place: Path, seed: int) -> _Running:
        suite, path = file
        ours, theirs = _FORKED.Pipe(duplex=False)
        process = _FORKED.Process(target=_send, args=(theirs, suite.name, path, place, seed))
        process.start()
        theirs.close()
        return cls(suite.name, str(path.relative_to(suite.folder(place))), process, ours)

    def more(self) -> bool:
        """Take an outcome in; False: there is none any more."""
        try:
            outcome = self.end.recv()
        except EOFError:
            self.process.join()
            self._say("wrong", f"the process ended with {self.process.exitcode}")
            return False
        if outcome is None:
            return False
        self.found.append(outcome)
        return True

    def stop(self, why: str) -> None:
        self.process.kill()
        self.process.join()
        self._say("not asked", why)

    def _say(self, result: str, why: str) -> None:
        last = self.found[-1].line if self.found else 0
        self.found.append(
            Outcome(self.suite, self.name, last, "file", "wrong" if result == "wrong" else "not asked", why)
        )


def _send(end: Connection, suite: str, file: Path, place: Path, seed: int) -> None:
    for outcome in outcomes_of(suite, file, place, seed):
        end.send(outcome)
    end.send(None)


def outcomes_of(suite: str, file: Path, place: Path, seed: int) -> Iterator[Outcome]:
    """The outcomes of one file of a suite; where the runner itself fails at it, that is wrong."""
    script = SUITES[suite].read(file, place)
    with DuckDBEngine("1GB", 1) as duckdb_engine:
        try:
            yield from Runner(suite, script, duckdb_engine, seed).outcomes()
        except Exception as error:
            yield Outcome(suite, script.name, 0, "file", "wrong", f"the runner: {error!r}"[:300])
