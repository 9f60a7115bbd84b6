"""The health checks of a view: what commits and offsets alone tell, cheaply after every run.

| check | fails when |
| --- | --- |
| `state` | the view does not go on: it is damaged, stopped or held (`hindrances`) |
| `freshness` | something waits for longer than the view's FRESHNESS; without one, it is only measured |
| `dead_letters` | more than a hundredth of what came is kept aside |
| `late_rows` | more than a hundredth of what came was too late for its window |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.expect.approvals import Verdict
from strandline.jobs.ivm.refresh.late import late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.options import Ownership
from strandline.jobs.operate.quality.hindrances import Hindrance, Hindrances
from strandline.jobs.operate.verify.findings import counted
from strandline.state_store.delta import reader
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.options import Severity
    from strandline.jobs.operate.quality.freshness import Waiting
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
