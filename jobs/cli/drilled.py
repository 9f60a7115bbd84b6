"""Shows drills: what would be rehearsed, and what each came to, a line for each view.

|view     |changelog  |recompute  |killed-driver  |backup            |
|by_shop  |0.1 s      |0.3 s      |1.9 s          |0.5 s, 3 rows lost|
|large    |0.1 s      |FAILED     |skipped        |0.4 s             |

FAILED recompute of large: the rows are not those of its SQL …
skipped killed-driver of large: …
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.cli.operated import show_json
from strandline.jobs.cli.output import Output, say
from strandline.jobs.operate.drills.scenarios import scenario
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.serve.results import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.operate.drills.plan import Drill
    from strandline.jobs.operate.drills.run import DrillResult


def show_drill_plan(plan: Sequence[Drill], *, json: bool) -> None:
    """Write what would be rehearsed: the scenarios, then the views."""
    if json:
        show_json([each.as_json() for each in plan])
        return
    targets = {each.scenario: each.target_seconds for each in plan}
    rows = [(name, scenario(name).what, f"{seconds:g}") for name, seconds in targets.items()]
    Output().write(Rows(("scenario", "what is lost", "target s"), rows))
    views = list(dict.fromkeys(each.view for each in plan))
    print(f"each of {counted(len(views), 'view')}: {', '.join(views)}")


def show_drills(results: Sequence[DrillResult], *, json: bool) -> bool:
    """Write the results of drills; false if one failed."""
    failed = [result for result in results if result.passed is False]
    if json:
        show_json([result.as_json() for result in results])
    elif results:
        scenarios = list(dict.fromkeys(each.drill for each in results))
        views = list(dict.fromkeys(each.view for each in results))
        cells = {(each.view, each.drill): _cell(each) for each in results}
        rows = [(view, *(cells.get((view, each), "") for each in scenarios)) for view in views]
        Output().write(Rows(("view", *scenarios), rows))
        for line in _reasons(results):
            print(line)
    skipped = sum(result.passed is None for result in results)
    end = f"failed: {', '.join(f'{each.drill} of {each.view}' for each in failed)}" if failed else "all is well"
    say(f"{counted(len(results), 'drill')}, {skipped} skipped: {end}")
    return not failed


def _cell(result: DrillResult) -> str:
    if not result.passed:
        return "skipped" if result.passed is None else "FAILED"
    lost = f", {result.rpo_rows:,} rows lost" if result.rpo_rows else ""
    return f"{result.rto_seconds:.1f} s{lost}"


def _reasons(results: Sequence[DrillResult]) -> Iterator[str]:
    """Why drills failed or were skipped; views of which the same is to be said share a line."""
    for passed, word in ((False, "FAILED"), (None, "skipped")):
        views: dict[tuple[str, str], list[str]] = {}
        for each in results:
            if each.passed is passed:
                views.setdefault((each.drill, each.why), []).append(each.view)
        for (drill, why), names in views.items():
            yield f"{word} {drill} of {', '.join(names)}: {why}"
