"""Files, run one after the other or in several processes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from state_store.kernel.kernel import Kernel
from tests.outside.sqllogic.outcomes import Outcome
from tests.outside.sqllogic.run_file import Runner
from tests.outside.sqllogic.suites import SUITES, Suite


def run(files: Iterable[tuple[Suite, Path]], place: Path, seed: int, jobs: int) -> Iterator[Outcome]:
    """The outcomes of all queries of these files, in order."""
    named = [(suite.name, file) for suite, file in files]
    if jobs == 1:
        for each in named:
            yield from run_file(each, place, seed)
        return
    with ProcessPoolExecutor(jobs) as pool:
        for outcomes in pool.map(partial(run_file, place=place, seed=seed), named):
            yield from outcomes


def run_file(named: tuple[str, Path], place: Path, seed: int) -> list[Outcome]:
    """The outcomes of one file of a suite; where the runner itself fails at it, that is wrong."""
    suite, file = SUITES[named[0]], named[1]
    script = suite.read(file, place)
    found: list[Outcome] = []
    with Kernel("1GB", 1) as kernel:
        try:
            found.extend(Runner(suite.name, script, kernel, seed).outcomes())
        except Exception as error:
            found.append(Outcome(suite.name, script.name, 0, "file", "wrong", f"the runner: {error!r}"[:300]))
    return found
