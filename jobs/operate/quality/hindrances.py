"""What keeps a view from going on: the one answer of `strandline status`, of the check `state`, and of Dagster.

| state | the view |
| --- | --- |
| `damaged` | does not read back, or is lost, or lacks commits from which another table was computed |
| `stopped` | failed in the last run of its pipeline, and is not refreshed any more |
| `held` | stays where it is: what it reads breaks a blocking expectation, or is itself kept from going on |

A view that none of these keeps goes on. Whether it is behind is a question of its lag and its FRESHNESS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from strandline.jobs.expect.approvals import read_approval
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.options import Ownership
from strandline.jobs.run.heartbeat import read_beat
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.run.heartbeat import Heartbeat

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
