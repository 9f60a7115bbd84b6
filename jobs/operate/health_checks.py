"""The health checks of a view: what commits and offsets alone tell, cheaply after every run.

| check | fails when |
| --- | --- |
| `state` | the view does not go on: it is damaged, stopped or held, as below |
| `freshness` | something waits for longer than the view's FRESHNESS; without one, it is only measured |
| `dead_letters` | more than a hundredth of what came is kept aside |
| `late_rows` | more than a hundredth of what came was too late for its window |

What keeps a view from going on: the one answer of `strandline status`, of the check `state`, and of Dagster.

| state | the view |
| --- | --- |
| `damaged` | does not read back, or is lost, or lacks commits from which another table was computed |
| `stopped` | failed in the last run of its pipeline, and is not refreshed any more |
| `held` | stays where it is: what it reads breaks a blocking expectation, or is itself kept from going on |

A view that none of these keeps goes on. Whether it is behind is a question of its lag and its FRESHNESS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.expect.expectations import Verdict, read_approval
from strandline.jobs.ivm.refresh.late import late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Ownership, Source, View
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.run.heartbeat import read_beat
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import StoreError, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition, Severity
    from strandline.jobs.operate.freshness import Waiting
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.state_store.layout import LakeLayout


State = Literal["damaged", "stopped", "held"]


@dataclass(frozen=True)
class Hindrance:
    """What keeps a table from going on.

    Attributes:
        why: one sentence.
        hint: what to type, or to do, next.
    """

    state: State
    why: str
    hint: str


class Hindrances:
    """The hindrances of the tables of one lake, at one moment. Each table and heartbeat is looked at once.

    Args:
        definitions: every definition of the lake: what holds a view may stand in another pipeline.
        heads: of the lake's tables, at that moment.
    """

    def __init__(self, definitions: Iterable[Definition], heads: WholeHeads) -> None:
        self._heads, self._lake = heads, heads.lake
        self._relations: dict[str, Source | View] = {}
        self._fed: dict[str, list[str]] = {}
        for each in definitions:
            if isinstance(each, InsertQuery):
                self._fed.setdefault(each.target, []).extend(each.inputs)
            else:
                self._relations[each.name] = each
        self._beats: dict[str, Heartbeat | None] = {}
        self._known: dict[str, Hindrance | None] = {}

    def of(self, name: str) -> Hindrance | None:
        """The hindrance of a stream, table or view; None when it goes on, or is not known."""
        if name not in self._known:
            self._known[name] = None  # a query that feeds an earlier stream may close a circle
            self._known[name] = self._find(name)
        return self._known[name]

    def _find(self, name: str) -> Hindrance | None:
        definition = self._relations.get(name)
        if definition is None or (isinstance(definition, View) and definition.partial):
            return None
        return self._damage(definition) or self._stop(definition) or self._hold(definition)

    def _damage(self, definition: Source | View) -> Hindrance | None:
        names = (definition.name,) if isinstance(definition, View) else tables.own_tables(definition)
        for table in names:
            try:
                self._heads.head(table)
            except StoreError as error:
                return Hindrance("damaged", error.message, error.hint or f"type: strandline rebuild {table}")
        return None

    def _stop(self, definition: Source | View) -> Hindrance | None:
        beat = self._beat(definition.pipeline)
        why = beat.failures.get(definition.name) if beat is not None else None
        if beat is None or why is None or self._committed_at(definition.name) > beat.at:
            return None  # a rebuild since then has set it right
        return Hindrance("stopped", why, f"type: strandline rebuild {definition.name}")

    def _beat(self, pipeline: str) -> Heartbeat | None:
        if pipeline not in self._beats:
            self._beats[pipeline] = read_beat(self._lake, pipeline)
        return self._beats[pipeline]

    def _committed_at(self, table: str) -> int:
        """The time of a table's last commit, in milliseconds since the epoch; 0 if it has none."""
        path = self._lake.table(table)
        version = delta_log.newest_version(path)
        return 0 if version is None else delta_log.read_commit(path, version).timestamp

    def _hold(self, definition: Source | View) -> Hindrance | None:
        inputs = [*(definition.inputs if isinstance(definition, View) else ()), *self._fed.get(definition.name, ())]
        for name in dict.fromkeys(inputs):
            refused = self._refused(name)
            if refused is not None:
                return refused
            above = self.of(name)
            if above is not None and above.state == "held":
                return above
            if above is not None:
                return Hindrance("held", f"it waits for '{name}', which is {above.state}: {above.why}", above.hint)
        return None

    def _refused(self, name: str) -> Hindrance | None:
        """The hold upon whoever reads a table with blocking expectations; None if there is none."""
        above = self._relations.get(name)
        if above is None or not Ownership.read(above.options).blocking:
            return None
        try:
            approval = read_approval(self._lake, name)
        except StoreError as error:
            return Hindrance("held", error.message, error.hint or "")
        if approval.refused is None:
            return None
        hint = f"correct what '{name}' is computed from, or the expectation; the next refresh looks again"
        return Hindrance("held", f"it waits for '{name}', which breaks {approval.why}", hint)


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
