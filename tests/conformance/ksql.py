"""Runs ksqlDB's query validation cases against the engine.

    python -m tests.conformance.ksql DIR [--only CLASS] [--mode A|B|both] [--engine duckdb|spark] [--json OUT] …

Ends with a table per class and, as the last line, `N passed, N failed, N skipped`. The exit status is 0 whenever the
cases could be run, however they came out; 2 when they could not (no such folder, no such class).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from tests.conformance import on_duckdb
from tests.conformance.cases import CLASSES, Case, read_cases
from tests.conformance.differences import skipped
from tests.conformance.refusals import run_refusal
from tests.conformance.report import Outcome, closing, table, write_doc, write_json

_MODES = {"A": ("A",), "B": ("B",), "both": ("A", "B")}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    options = _parser().parse_args(arguments)
    try:
        cases = chosen(read_cases(options.place), options.only, options.case)
    except (FileNotFoundError, ValueError) as error:
        print(f"cannot run: {error}", file=sys.stderr)
        return 2
    if not cases:
        print("cannot run: no case is left by --only and --case", file=sys.stderr)
        return 2
    outcomes = []
    for each in run(cases, options.mode, options.engine, options.cuts, options.jobs):
        outcomes.append(each)
        if each.outcome == "failed" and not options.quiet:
            print(f"FAILED {each.file}: {each.name} [{each.kind} {each.mode}] {each.reason}", flush=True)
    if options.json:
        write_json(outcomes, options.json)
    if options.write_doc:
        write_doc(
            outcomes,
            options.write_doc,
            f"python -m tests.conformance.ksql DIR --engine {options.engine} --mode {options.mode}",
        )
    print("\n".join([*table(outcomes), "", *closing(outcomes)]))
    return 0


def chosen(cases: Sequence[Case], kind: str | None = None, name: str | None = None) -> list[Case]:
    """The cases of one class, or whose `file: name` holds a text."""
    return [
        case
        for case in cases
        if (kind is None or case.kind == kind) and (name is None or name.lower() in f"{case.file}: {case.name}".lower())
    ]


def run(cases: Sequence[Case], mode: str, engine: str, cuts: int | None = None, jobs: int = 1) -> Iterator[Outcome]:
    """All outcomes: those that are skipped, those that must be refused, and those that run on an engine."""
    modes = _MODES[mode]
    todo = []
    for case in cases:
        reason = skipped(case)
        if reason is not None:
            for each in ("-",) if case.refused else modes:
                yield Outcome(case.file, case.name, case.kind, each, "skipped", reason)
        elif case.refused:
            yield run_refusal(case)
        else:
            todo.append(case)
    if engine == "spark":
        from tests.conformance import on_spark

        yield from on_spark.run(todo, modes, 0 if cuts is None else cuts)
    elif jobs == 1:
        yield from on_duckdb.run(todo, modes, 3 if cuts is None else cuts)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            one = partial(on_duckdb.run_one, modes=modes, cuts=3 if cuts is None else cuts)
            for outcomes in pool.map(one, todo, chunksize=8):
                yield from outcomes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.ksql", description=__doc__.splitlines()[0])
    parser.add_argument("place", type=Path, metavar="DIR", help="folder with query/ in it, or of *.json files")
    parser.add_argument("--only", metavar="CLASS", help=f"one class: {', '.join(CLASSES)}")
    parser.add_argument("--case", metavar="NAME", help="cases whose `file: name` holds this text")
    parser.add_argument("--mode", choices=_MODES, default="A", help="A final state, B changelog order")
    parser.add_argument("--cuts", type=int, metavar="N", help="mode A: also N random cuts into epochs")
    parser.add_argument("--engine", choices=("duckdb", "spark"), default="duckdb")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes (duckdb)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="an object per case and mode")
    parser.add_argument("--write-doc", type=Path, metavar="FILE", help="refresh the marked places of this document")
    parser.add_argument("--quiet", action="store_true", help="only the table and the closing lines")
    return parser


if __name__ == "__main__":
    sys.exit(main())
