"""The vital signs of a view: what can be told from commits and offsets alone, cheap enough to look at after every run.

| check | fails when |
| --- | --- |
| `freshness` | something waits for longer than the view's FRESHNESS; without one, it is only measured |
| `dead_letters` | more than a hundredth of what came is kept aside |
| `late_rows` | more than a hundredth of what came was too late for its window |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobs.expect.verdict import Verdict
from jobs.ivm.plan.plan import plan
from jobs.ivm.refresh.late import late_in
from jobs.model import tables
from jobs.model.definitions import Source, View
from jobs.model.stewardship import Stewardship
from jobs.operate.verify.findings import counted
from state_store.delta import reader
from state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jobs.catalog.catalog import Catalog
    from jobs.operate.quality.freshness import Waiting
    from state_store.layout import Lake

VITAL_SIGNS: Final = ("freshness", "dead_letters", "late_rows")
"""The names of the checks."""

_MOST = 0.01
"""Single broken or late records are a fact of every stream; one in a hundred means a wrong producer, or GRACE."""


class VitalSigns:
    """The vital signs of the views of one lake, at one moment.

    Args:
        now_ms: the moment, in milliseconds since the epoch.
    """

    def __init__(self, catalog: Catalog, lake: Lake, waiting: Waiting, now_ms: int) -> None:
        self._catalog, self._lake, self._waiting, self._now_ms = catalog, lake, waiting, now_ms
        made = (self._freshness, self._dead_letters, self._late_rows)
        self._checks: Mapping[str, Callable[[View], Verdict]] = dict(zip(VITAL_SIGNS, made, strict=True))

    def check(self, view: View, name: str) -> Verdict:
        """Make one of `VITAL_SIGNS`. What keeps it from being made becomes its verdict."""
        try:
            return self._checks[name](view)
        except StrandlineError as error:
            return Verdict(name, None, f"it could not be made: {error.message}", "warn")

    def _freshness(self, view: View) -> Verdict:
        target = Stewardship.read(view.options).freshness_seconds
        stale = round(self._waiting.seconds(view.name, self._now_ms), 3)
        numbers: dict[str, int | float] = {"stale seconds": stale}
        if target is None:
            return Verdict("freshness", True, f"stale for {stale:g} s; no FRESHNESS is asked for", numbers=numbers)
        numbers["freshness target seconds"] = target
        return Verdict("freshness", stale <= target, f"stale for {stale:g} s of {target:g} s", numbers=numbers)

    def _dead_letters(self, view: View) -> Verdict:
        aside = self._rows(tables.dead_letters(view.name))
        came = self._rows(view.name)
        for name in view.inputs:
            found = self._catalog.get(name)
            if isinstance(found, Source):
                aside += self._rows(tables.dead_letters(name))
                came += self._rows(tables.event_log(found))
        rate = aside / (aside + came) if aside else 0.0
        what = f"{counted(aside, 'row')} kept aside, beside {came} that came"
        numbers = {"dead letters": aside, "dead-letter rate": rate}
        return Verdict("dead_letters", rate <= _MOST, what, "warn", numbers)

    def _late_rows(self, view: View) -> Verdict:
        late = late_in(self._lake, plan(view, self._catalog).stages)
        if late is None:
            return Verdict("late_rows", True, "no row of this view is ever late")
        came = sum(self._rows(name) for name in view.inputs)
        rate = late / came if came else 0.0
        numbers = {"late rows": late, "late rate": rate}
        return Verdict("late_rows", rate <= _MOST, f"{late} of {came} rows were too late", "warn", numbers)

    def _rows(self, table: str) -> int:
        head = reader.head(self._lake.table(table))
        return 0 if head is None else head.record.rows
