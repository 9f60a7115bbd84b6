"""The proofs of a view: checks that read all of its rows, and so are made on a schedule.

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

from strandline.jobs.expect.verdict import Verdict
from strandline.jobs.functions.failing_rows import BREAKS
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.guarded_stage import REASON, ROW
from strandline.jobs.model import tables
from strandline.jobs.model.stage import AggregateStage
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.operate.verify.proved import note_proofs
from strandline.jobs.operate.verify.verify import verify
from strandline.state_store.delta import reader
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import View
    from strandline.jobs.model.options import Expectation
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.operate.verify.findings import Check
    from strandline.state_store.layout import LakeLayout


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
