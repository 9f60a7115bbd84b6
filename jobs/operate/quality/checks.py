"""The health checks of a view: what commits and offsets alone tell, cheaply after every run.

| check | fails when |
| --- | --- |
| `state` | the view does not go on: it is damaged, stopped or held (`hindrances`) |
| `freshness` | something waits for longer than the view's FRESHNESS; without one, it is only measured |
| `dead_letters` | more than a hundredth of what came is kept aside |
| `late_rows` | more than a hundredth of what came was too late for its window |

The proofs of a view: checks that read all of its rows, and so are made on a schedule.

| check | holds when |
| --- | --- |
| `recompute` | DuckDB gets the same rows from the view's SQL over its inputs |
| `feed` | the changelog, applied in order, gives the rows |
| `digest`, `row_count` | the rows in the files are those that the record speaks of |
| `log`, `files`, … | see `jobs.operate.verify` |
| `counts` | no COUNT of the view is below zero |
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.expect.approvals import Verdict
from strandline.jobs.functions.failing_rows import BREAKS
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.guarded_stage import REASON, ROW
from strandline.jobs.ivm.refresh.late import late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.options import Ownership
from strandline.jobs.model.stage import AggregateStage
from strandline.jobs.operate.quality.hindrances import Hindrance, Hindrances
from strandline.jobs.operate.verify.findings import counted, note_proofs
from strandline.jobs.operate.verify.verify import verify
from strandline.state_store.delta import reader
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.options import Expectation, Severity
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.operate.quality.freshness import Waiting
    from strandline.jobs.operate.verify.findings import Check
    from strandline.state_store.layout import LakeLayout


HEALTH_CHECKS: Final = {
    "state": "The view goes on: it is neither damaged, nor stopped, nor held by a blocking expectation.",
    "freshness": "Nothing waits for longer than the view's FRESHNESS; without one, the staleness is only measured.",
    "dead_letters": "At most one row in a hundred of what it reads is kept aside.",
    "late_rows": "At most one row in a hundred of what it reads came too late for its window.",
}
"""{name of a check: what it says when it holds}."""

_MOST = 0.01
"""Single broken or late records are a fact of every stream; one in a hundred means a wrong producer, or GRACE."""


class HealthChecks:
    """The health checks of the views of one lake, at one moment.

    Args:
        now_ms: the moment, in milliseconds since the epoch.
    """

    def __init__(self, catalog: Catalog, lake: LakeLayout, waiting: Waiting, now_ms: int) -> None:
        self._catalog, self._lake, self._waiting, self._now_ms = catalog, lake, waiting, now_ms
        self._hindrances = Hindrances(catalog.definitions(), waiting.heads)
        made = (self._state, self._freshness, self._dead_letters, self._late_rows)
        self._checks: Mapping[str, Callable[[View], Verdict]] = dict(zip(HEALTH_CHECKS, made, strict=True))

    def check(self, view: View, name: str) -> Verdict:
        """Make one of `HEALTH_CHECKS`. What keeps it from being made becomes its verdict."""
        try:
            return self._checks[name](view)
        except StrandlineError as error:
            return Verdict(name, None, f"it could not be made: {error.message}", "warn")

    def _state(self, view: View) -> Verdict:
        return state_verdict(self._hindrances.of(view.name))

    def _freshness(self, view: View) -> Verdict:
        target = Ownership.read(view.options).freshness_seconds
        stale = round(self._waiting.seconds(view.name, self._now_ms), 3)
        numbers: dict[str, int | float] = {"stale seconds": stale}
        if target is None:
            return Verdict("freshness", True, f"stale for {stale:g} s; no FRESHNESS is asked for", numbers=numbers)
        numbers["freshness target seconds"] = target
        return Verdict("freshness", stale <= target, f"stale for {stale:g} s of {target:g} s", numbers=numbers)

    def _dead_letters(self, view: View) -> Verdict:
        aside, came = (
            sum(head.record.rows for head in letters_of(self._lake, stage_tables(self._lake, view.name)).values()),
            0,
        )
        for name in view.inputs:
            came += self._came(name)
            if isinstance(self._catalog.get(name), Source):
                broken = self._rows(tables.dead_letters(name))
                aside, came = aside + broken, came + broken
        # A join may keep aside more rows than either side has.
        rate = min(aside / came, 1.0) if came else float(aside > 0)
        what = f"{counted(aside, 'row')} kept aside, of {came} that came"
        numbers = {"dead letters": aside, "dead-letter rate": rate}
        return Verdict("dead_letters", rate <= _MOST, what, "warn", numbers)

    def _late_rows(self, view: View) -> Verdict:
        late = late_in(self._lake, stage_tables(self._lake, view.name))
        if late is None:
            return Verdict("late_rows", True, "no row of this view is ever late")
        came = sum(self._came(name) for name in view.inputs)
        rate = late / came if came else 0.0
        numbers = {"late rows": late, "late rate": rate}
        return Verdict("late_rows", rate <= _MOST, f"{late} of {came} rows were too late", "warn", numbers)

    def _came(self, name: str) -> int:
        """The rows that an input gave; of a source all events, also those that retention took."""
        found = self._catalog.find(name)
        head = reader.head(self._lake.table(tables.event_log(found) if isinstance(found, Source) else name))
        return 0 if head is None else head.record.rows + head.record.gone

    def _rows(self, table: str) -> int:
        head = reader.head(self._lake.table(table))
        return 0 if head is None else head.record.rows


def state_verdict(found: Hindrance | None) -> Verdict:
    """The check `state` of a view with that hindrance. A view that is held only warns: what holds it fails itself."""
    if found is None:
        return Verdict("state", True, "it goes on")
    severity: Severity = "warn" if found.state == "held" else "error"
    return Verdict("state", False, f"{found.state}: {found.why}", severity, markdown=found.hint)


PROOFS: Final = {
    "recompute": "DuckDB gets the same rows from the view's SQL over its inputs.",
    "feed": "The changelog, applied in order, gives the rows.",
    "digest": "The rows in the files are those that the last commit speaks of.",
    "counts": "No COUNT of the view is below zero.",
    "storage": "The log, the files and the definition read back as they were written.",
}
"""{name of a check: what it says when it holds}; `storage` stands for all others of `verify`."""


def prove(view: View, settings: Settings, catalog: Catalog, lake: LakeLayout) -> list[Verdict]:
    """Make every proof of a view. A table without a commit has nothing to prove.

    Raises:
        UnknownName: the view is not in the catalog any more.
    """
    if reader.head(lake.table(view.name)) is None:
        return [Verdict(name, True, "no commit yet: nothing has come") for name in PROOFS]
    checks = verify(settings, [view.name], deep=True)
    note_proofs(lake, [view], checks, now_ms())
    named = {"recompute": ("recompute",), "feed": ("feed",), "digest": ("digest", "row_count")}
    rest = tuple({each.check for each in checks} - {name for names in named.values() for name in names})
    found = [_folded(name, [c for c in checks if c.check in names]) for name, names in named.items()]
    return [*found, _counts(view, catalog, lake), _folded("storage", [c for c in checks if c.check in rest])]


def _folded(name: str, checks: Sequence[Check]) -> Verdict:
    """One verdict of several checks: the worst of them speaks."""
    broken = next((each for each in checks if each.ok is False), None)
    if broken is not None:
        hint = f"\n\n{broken.hint}" if broken.hint else ""
        return Verdict(name, False, f"{broken.table}: {broken.what}", markdown=f"`{broken.where}`{hint}")
    made = [each for each in checks if each.ok]
    if not made:
        why = checks[0].what if checks else "there is no such check of this view"
        return Verdict(name, None, why, "warn")
    return Verdict(name, True, made[-1].what, numbers={"checks": len(made)})


def _counts(view: View, catalog: Catalog, lake: LakeLayout) -> Verdict:
    """The visible counts: a negative one is an upstream fault, which the engine refuses to store."""
    try:
        names = _count_columns(plan(view, catalog).stages[-1])
        if not names:
            return Verdict("counts", True, "no column of this view is a COUNT")
        import pyarrow.compute as pc

        rows = reader.read_rows(lake.table(view.name), columns=names)
        negative = {name: int(pc.sum(pc.less(rows[name], 0)).as_py() or 0) for name in names}
    except StrandlineError as error:
        return Verdict("counts", None, f"it could not be made: {error.message}", "warn")
    wrong = sum(negative.values())
    what = ", ".join(f"{count} rows have a negative {name}" for name, count in negative.items() if count)
    return Verdict("counts", wrong == 0, what or f"no negative {', '.join(names)}", numbers={"negative counts": wrong})


def _count_columns(stage: Stage) -> list[str]:
    """The visible columns that are a COUNT and nothing else."""
    if not isinstance(stage, AggregateStage):
        return []
    counts = {call.name for call in stage.aggregates if call.function == "COUNT"}
    columns = (each for each in stage.outputs if isinstance(each.expression, exp.Column))
    return [output.name for output in columns if output.expression.name in counts]


# The quarantine of an expectation: the rows that it keeps out of a view, which are in the view's dead letters.
#
# Great Expectations sees only the rows that are in the view, so its own verdict of such an expectation says nothing
# of those that are not.

_SAMPLES: Final = 10
"""Rows to look at, as many as Great Expectations gives of those that fail."""


def with_quarantine(verdict: Verdict, lake: LakeLayout, view: str, expectation: Expectation) -> Verdict:
    """The verdict of an expectation, with the number of the rows that it keeps out of the view, and some of them.

    Raises:
        VersionGone, CorruptState, ForeignWrite: the view's dead letters do not read.
    """
    if not expectation.quarantine:
        return verdict
    rows = _kept_out(lake, view, expectation)
    # Indented, so that nothing in a row is Markdown; JSON has no line ends.
    sample = "\n".join(f"    {row}" for row in sorted(rows)[:_SAMPLES])
    return replace(
        verdict,
        what=f"{verdict.what}; {counted(len(rows), 'row')} in quarantine",
        numbers={**verdict.numbers, "rows in quarantine": len(rows)},
        markdown=f"{verdict.markdown}\n\n### In quarantine\n\n{sample}" if rows else verdict.markdown,
    )


def _kept_out(lake: LakeLayout, view: str, expectation: Expectation) -> Sequence[str]:
    path = lake.table(tables.dead_letters(view))
    if reader.head(path) is None:
        return ()
    kept = reader.read_rows(path, columns=(REASON, ROW)).to_pylist()
    return [each[ROW] for each in kept if each[REASON].startswith(f"{BREAKS}{expectation.name} of ")]
