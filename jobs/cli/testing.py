"""The command `strandline test`: the tests of a pipeline's views, run in every way that rows can come."""

from __future__ import annotations

import random
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from strandline.jobs.cli.exits import BROKEN, exit_codes
from strandline.jobs.cli.name_map import load_settings
from strandline.jobs.cli.output import say, show_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.testing.trials import TrialResult
    from strandline.jobs.testing.typed import TypedCase

_SEEDS = 1 << 31


class Engines(StrEnum):
    """The engines that a test runs on."""

    BOTH = "both"
    DUCKDB = "duckdb"
    SPARK = "spark"


def add_testing(app: typer.Typer) -> None:
    """Add the command to the command `strandline`."""
    app.command("test")(run_tests)


def run_tests(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="NAME.sql or NAME.test.yaml")],
    engine: Annotated[Engines, typer.Option(help="duckdb takes no JVM")] = Engines.BOTH,
    only: Annotated[str | None, typer.Option(metavar="TEXT", help="tests whose names hold it")] = None,
    cuts: Annotated[int, typer.Option(min=0, help="how often a test is cut into random epochs")] = 3,
    kills: Annotated[bool, typer.Option("--kills/--no-kills", help="kill and resume each step once")] = True,
    seed: Annotated[int | None, typer.Option(help="of the random places; default: another one each time")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object for each test and trial")] = False,
) -> None:
    """Test the views of FILE: given rows go in, in random epochs, on both engines and through kills."""
    from strandline.jobs.testing.suite import read_suite
    from strandline.jobs.testing.trials import prepared, run_suite, trials

    with exit_codes():
        suite = read_suite(file)
        chosen = random.randrange(_SEEDS) if seed is None else seed  # noqa: S311 - a place to cut, no secret
        with prepared(load_settings(), suite) as (bench, cases):
            cases = _named(cases, only)
            spark, duckdb = engine is not Engines.DUCKDB, engine is not Engines.SPARK
            wanted = trials(cuts, chosen, kills=kills, duckdb=duckdb, spark=spark)
            results = []
            for result in run_suite(bench, cases, wanted):
                results.append(result)
                show_json([_as_json(result)]) if json else _print_fault(result)
        failed = [result for result in results if not result.passed]
        if not json:
            _print_cases(cases, results)
        say(_summary(cases, results, suite.path, chosen))
        if failed:
            raise typer.Exit(BROKEN)


def _named(cases: Sequence[TypedCase], text: str | None) -> tuple[TypedCase, ...]:
    found = tuple(case for case in cases if text is None or text.lower() in case.name.lower())
    if not found:
        raise typer.BadParameter(f"no test's name holds '{text}'")
    return found


def _print_fault(result: TrialResult) -> None:
    if result.passed:
        return
    print(f"FAILED  {result.case} ({result.trial}), step {result.step}")
    for fault in result.faults:
        for line in fault.lines():
            print(f"        {line}")


def _print_cases(cases: Sequence[TypedCase], results: Sequence[TrialResult]) -> None:
    for case in cases:
        own = [result for result in results if result.case == case.name]
        failed = sum(not result.passed for result in own)
        word, what = ("FAILED", f"{failed} of {len(own)} trials") if failed else ("ok    ", f"{len(own)} trials")
        print(f"{word}  {case.name}: {what}, {sum(result.seconds for result in own):.1f} s")


def _summary(cases: Sequence[TypedCase], results: Sequence[TrialResult], path: Path, seed: int) -> str:
    broken = {result.case for result in results if not result.passed}
    counted = f"{len(cases) - len(broken)} of {len(cases)} tests passed, {len(results)} trials"
    return f"{counted}; to see them again: strandline test {path} --seed {seed}" if broken else counted


def _as_json(result: TrialResult) -> dict[str, Any]:
    return {
        "test": result.case,
        "trial": result.trial.kind,
        "seed": result.trial.seed,
        "passed": result.passed,
        "step": result.step,
        "seconds": round(result.seconds, 3),
        "faults": [fault.as_json() for fault in result.faults],
    }
