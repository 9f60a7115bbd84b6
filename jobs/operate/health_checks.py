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

The staleness of a view is how long the oldest event or change has waited that its rows do not reflect:

    topic ── offset 7 waits since 12:00:03 ──> event log ── version 4 is of 12:00:05 ──> view at version 3

A view is as stale as the oldest thing that waits anywhere above it: here since 12:00:03. When nothing waits, it is
fresh, however long ago its last commit was.

A change that changes no row of a view leaves its vector where it is (`jobs.ivm.refresh.refresh`). So a change does not
wait either when the pipeline noted that the view reflects it, or has refreshed all views since: a rebuild has no
heartbeat, and the heartbeat of a run says when. Commits that change no row
(merged files, a trimmed log, further columns) are waited for by nobody.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.expect.expectations import Verdict, read_approval
from strandline.jobs.ingest.topics import waiting_since
from strandline.jobs.ivm.refresh.late import late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Ownership, Source, View
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.serve.consistent_snapshot import Notes
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import HINTED, StoreError, StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Severity
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.state_store.layout import LakeLayout


_NEVER: Final = -1
"""In place of the version of an input that a table does not reflect at all."""


class Waiting:
    """What waits above the views of one lake. Each topic, table and heartbeat is looked at once.

    Args:
        heads: of the lake's tables, at that moment.
        log: the topics.
    """

    def __init__(self, catalog: Catalog, heads: WholeHeads, log: Log) -> None:
        self.heads = heads
        self._catalog, self._lake, self._log = catalog, heads.lake, log
        self._known: dict[str, int | None] = {}
        self._beats: dict[str, Heartbeat | None] = {}
        self._notes = Notes(heads.lake)

    def seconds(self, name: str, now_ms: int) -> float:
        """The staleness of a definition's rows; 0 when nothing waits. Raises as `since`."""
        since = self.since(name)
        return 0.0 if since is None else max(now_ms - since, 0) / 1000

    def since(self, name: str) -> int | None:
        """The moment since when a definition's rows lack something: milliseconds since the epoch; None: nothing waits.

        Raises:
            SourceError: the broker does not answer, or has not what the lake has read.
            StoreError: its table or one above it does not read, is lost, or lacks commits that others have read.
        """
        if name not in self._known:
            self._known[name] = None  # a query that feeds an earlier stream may close a circle
            self._known[name] = min(self._moments(self._catalog.get(name)), default=None)
        return self._known[name]

    def versions(self, name: str) -> int:
        """The versions of all that a definition reads which its rows do not reflect, nor has a refresh found since that
        they change none of its rows. Of what it has never read, all versions."""
        lag = 0
        for _, table, seen, until in self._read(name, never=_NEVER):
            if seen == _NEVER:  # its first versions may be gone
                newest = delta_log.newest_version(self._lake.table(table))
                lag += 0 if newest is None else newest - seen
                continue
            _, versions = self._after(table, seen, until)
            lag += len(versions) if self._first_change(table, versions) is not None else 0
        return lag

    def _moments(self, definition: Definition) -> Iterator[int]:
        self.heads.head(definition.name)
        if isinstance(definition, Source):
            waiting = waiting_since(definition, self._lake, self._log)
            yield from () if waiting is None else (waiting,)
        for each, table, seen, until in self._read(definition.name):
            first = self._first_change(*self._after(table, seen, until))
            yield from () if first is None else (first,)
            above = self._whole(each)
            if above is not None and not isinstance(above, InsertQuery):
                since = self.since(each)
                yield from () if since is None else (since,)

    def _read(self, name: str, never: int = 0) -> Iterator[tuple[str, str, int, int]]:
        """What a definition reads: its name, the table that is read of it, the version that the rows reflect, and the
        moment before which commits have been looked at.

        Args:
            never: in place of the version of what they do not reflect at all. Version 0 only makes a table.
        """
        definition = self._catalog.get(name)
        inputs: list[str] = []
        if isinstance(definition, Source) and definition.kind == "table":
            inputs = [tables.event_log(definition)]
        if isinstance(definition, View):
            inputs = list(definition.inputs)
        for query in self._catalog.whole_queries(name):
            inputs += query.inputs
        seen = self._reflected(name)
        for each in dict.fromkeys(inputs):
            log = tables.log_below(each)
            table = log if log in seen and each not in seen else each  # a join may read the events below a table
            yield each, table, seen.get(table, never), self._looked_at(definition, each)

    def _looked_at(self, definition: Definition, read: str) -> int:
        """The moment before which its pipeline has looked at the commits of what a definition reads; 0 when that is not
        known. What the pipeline commits itself during a refresh, the views above take in before its end."""
        beat = self._beat(definition.pipeline)
        if beat is None or beat.refreshed is None or definition.name in beat.failures:
            return 0
        began, ended = beat.waiting.get(definition.name, (beat.refreshed, beat.settled))
        above = self._whole(tables.definition_of(read))
        if above is None or above.pipeline != definition.pipeline or ended is None:
            return began
        held = isinstance(above, View | Source) and Ownership.read(above.options).blocking
        return began if held else ended

    def _beat(self, pipeline: str) -> Heartbeat | None:
        if pipeline not in self._beats:
            self._beats[pipeline] = read_beat(self._lake, pipeline)
        return self._beats[pipeline]

    def _reflected(self, table: str) -> dict[str, int]:
        """{input: version} by the vectors of a table and of the inner stages that stand in it, and by what is noted."""
        head = reader.head(self._lake.table(table))
        found: dict[str, int] = {}
        versions = {} if head is None else head.record.versions
        if head is not None:
            beyond = self._notes.beyond(table, head.version, head.record)
            versions = {**versions, **{entry: at.version for entry, at in beyond.items()}}
        for entry, version in versions.items():
            name = entry.rpartition("/")[2]
            found[name] = max(version, found.get(name, 0))
            owner = tables.definition_of(name)
            if owner not in self._catalog.broken and self._catalog.find(owner) is None:
                found |= self._reflected(name)
        return found

    def _whole(self, name: str) -> Definition | None:
        """A definition whose file is whole; a broken one is said elsewhere."""
        return None if name in self._catalog.broken else self._catalog.find(name)

    def _after(self, table: str, version: int, moment: int) -> tuple[str, range]:
        """The table, and its versions after one that were committed after a moment."""
        path = self._lake.table(table)
        newest = delta_log.newest_version(path)
        versions = range(version + 1, (-1 if newest is None else newest) + 1)
        first = bisect_right(versions, moment, key=lambda each: delta_log.read_commit(path, each).timestamp)
        return table, versions[first:]

    def _first_change(self, table: str, versions: range) -> int | None:
        """The time of the first of these commits that changes rows."""
        commits = (delta_log.read_commit(self._lake.table(table), each) for each in versions)
        return next((commit.timestamp for commit in commits if commit.changes_rows), None)


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
        said, _, hint = why.partition(HINTED)
        return Hindrance("stopped", said, hint or f"type: strandline rebuild {definition.name}")

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
    return Verdict("state", False, f"{found.state}: {found.why}", severity, hint=found.hint)
