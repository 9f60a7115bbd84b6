"""The quarantine of an expectation: the rows that it keeps out of a view, which are in the view's dead letters.

Great Expectations sees only the rows that are in the view, so its own verdict of such an expectation says nothing of
those that are not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.functions.failing_rows import BREAKS
from strandline.jobs.ivm.refresh.guarded_stage import REASON, ROW
from strandline.jobs.model import tables
from strandline.jobs.operate.verify.findings import counted
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.expect.verdict import Verdict
    from strandline.jobs.model.options import Expectation
    from strandline.state_store.layout import Lake

_SAMPLES: Final = 10
"""Rows to look at, as many as Great Expectations gives of those that fail."""


def with_quarantine(verdict: Verdict, lake: Lake, view: str, expectation: Expectation) -> Verdict:
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


def _kept_out(lake: Lake, view: str, expectation: Expectation) -> Sequence[str]:
    path = lake.table(tables.dead_letters(view))
    if reader.head(path) is None:
        return ()
    kept = reader.read_rows(path, columns=(REASON, ROW)).to_pylist()
    return [each[ROW] for each in kept if each[REASON].startswith(f"{BREAKS}{expectation.name} of ")]
