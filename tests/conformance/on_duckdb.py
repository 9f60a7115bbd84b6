"""Cases on DuckDB: the rules' own SQL, in memory, a case in some tens of milliseconds."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

import duckdb

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.duckdb import elementary
from strandline.state_store.layout import LakeLayout
from tests.conformance.cases import Case
from tests.conformance.compare import Unreadable
from tests.conformance.program import Program, Stopped, build
from tests.conformance.report import Outcome
from tests.conformance.run_case import prepared, run_case
from tests.support.duck_lake import DuckLake


def run(cases: Iterable[Case], modes: Sequence[str], cuts: int) -> Iterator[Outcome]:
    """The outcomes of the cases, one for each mode, in order."""
    for case in cases:
        yield from run_one(case, modes, cuts)


def run_one(case: Case, modes: Sequence[str], cuts: int) -> list[Outcome]:
    """One case in each of the modes."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        lake = LakeLayout(Path(folder))
        try:
            ready = prepared(case, build(case, Catalog(lake), lake))
        except Stopped as stopped:
            return [failed(case, mode, stopped.stage, stopped.error) for mode in modes]
        except Unreadable as error:
            return [failed(case, mode, "compare", error) for mode in modes]
        outcomes = []
        for mode in modes:
            try:
                problem = run_case(ready, mode, cuts, _open)
            except Exception as error:
                outcomes.append(failed(case, mode, "run", error))
                continue
            outcomes.append(compared(case, mode, problem))
        return outcomes


def compared(case: Case, mode: str, problem: str | None) -> Outcome:
    """The outcome of a case that ran."""
    if problem is None:
        return Outcome(case.file, case.name, case.kind, mode, "passed")
    return Outcome(case.file, case.name, case.kind, mode, "failed", problem, "compare")


def failed(case: Case, mode: str, stage: str, error: Exception) -> Outcome:
    """The outcome of a case that stopped."""
    reason = f"{stage}: {type(error).__name__}: {' '.join(str(error).split())[:500]}"
    return Outcome(case.file, case.name, case.kind, mode, "failed", reason, stage)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"threads": 1})
    elementary.register(connection)
    return connection


def _open(program: Program) -> DuckLake:
    return DuckLake(program.catalog, program.definitions, _connection())
