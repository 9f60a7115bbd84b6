"""Who keeps the events of an event log: everything that may read one of them again, or has not read it yet.

    definitions ──plan──> stages over the log ──┬─> looks back at it ───────────> keeps every event
    partial views, REFRESH = 'full' ────────────┘
    vectors of stages, leases of readers ───────────> version ──record──> offsets: keeps the events from there on

A view that only folds changes (filters, COUNT, SUM, MIN and MAX over events, the newest row of a key) keeps nothing but
what it has not taken in. Whatever cannot be told (a definition that does not plan) keeps every event.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.context import Heads, Owner
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.rules.maintenance import looks_back
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.options import ViewOptions
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, inputs_of
from strandline.state_store import leases
from strandline.state_store.delta import reader
from strandline.state_store.delta.trims import Keeper
from strandline.state_store.errors import StrandlineError, VersionGone
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.layout import Lake

_PARTIAL: Final = "STATE = 'partial': a key that is asked for is computed from every event"


def keepers_of(source: Source, lake: Lake, catalog: Catalog, now: int) -> list[Keeper]:
    """Who keeps events of a source's log.

    Args:
        now: milliseconds since the epoch, by which leases have ended.

    Raises:
        CorruptState, ForeignWrite: a table's log is broken, so nobody can say what it needs.
    """
    log = tables.event_log(source)
    found = [Keeper(sentence("'{}'", Name(name)), "its definition does not read") for name in catalog.broken]
    found += [
        Keeper(sentence("'{}'", Name(query.name)), "it inserts into the stream, and its rows are compared with its SQL")
        for query in catalog.whole_queries(source.name)
    ]
    found += [Keeper(sentence("'{}'", Name(view.name)), _PARTIAL) for view in _partial_over(source.name, catalog)]
    heads = Heads(lake)
    for definition in (each for each in catalog.definitions() if _is_maintained(each)):
        try:
            stages = plan(definition, catalog).stages
        except StrandlineError as error:
            found.append(Keeper(sentence("'{}'", Name(definition.name)), f"it has no plan: {error.message}"))
            continue
        read = [each for each in stages if log in {one.relation.name for one in inputs_of(each)}]
        found += [_of_stage(OwnedStage(definition, each, each is stages[-1]), source, heads, lake) for each in read]
    return [*found, *_of_leases(log, source, lake, now)]


@dataclass(frozen=True)
class OwnedStage:
    """A stage over the log, and the definition that it belongs to.

    Attributes:
        last: its table is the definition's.
    """

    definition: Definition
    stage: Stage
    last: bool

    @property
    def options(self) -> ViewOptions:
        return self.definition.maintenance if isinstance(self.definition, View) else ViewOptions()

    @property
    def letters(self) -> str:
        """The table of the rows on which an expression fails."""
        return tables.dead_letters(self.definition.name if self.last else self.stage.table)

    def entry(self, log: str) -> str:
        """The log's name in the vector."""
        prefixed = self.last and isinstance(self.definition, InsertQuery)
        return Owner("", self.definition.name if prefixed else None).entry(log)


def _is_maintained(definition: Definition) -> bool:
    """False for a stream, and for a partial view, of which nothing is stored."""
    if isinstance(definition, View):
        return not definition.partial
    return isinstance(definition, InsertQuery) or definition.kind == "table"


def _of_stage(owned: OwnedStage, source: Source, heads: Heads, lake: Lake) -> Keeper:
    """What a stage over the log keeps of it."""
    who, log = sentence("'{}'", Name(owned.definition.name)), tables.event_log(source)
    why = keeps_all(owned, log, heads)
    if why:
        return Keeper(who, why)
    head = heads.find(owned.stage.table)
    at = head.record.vector.get(owned.entry(log)) if head is not None else None
    return Keeper(who, "it was not computed yet") if at is None else _upto(who, at.version, source, lake)


def keeps_all(owned: OwnedStage, log: str, heads: Heads) -> str:
    """Why a stage may read every event of the log again; empty when it never does."""
    stage = owned.stage
    if owned.options.state == "partial":
        return _PARTIAL
    if owned.options.refresh == "full":
        return "REFRESH = 'full': all its rows are computed from every event"
    decision = decide(stage, owned.options.errors, owned.letters, heads)
    if any(log in looks_back(each) for each in (stage, *decision.stages)):
        return _in_words(stage)
    head = heads.find(stage.table)
    uncounted = isinstance(stage, AggregateStage) and stage.late and head is not None and head.record.epoch
    if uncounted and head is not None and head.record.late is None:
        return "its late events were not counted yet"
    return ""


def _in_words(stage: Stage) -> str:
    match stage:
        case AggregateStage() if stage.session is not None:
            return "its sessions are cut again from former events"
        case AnalyticStage():
            return "its functions OVER a window are computed again from former events"
        case _ if len(inputs_of(stage)) > 1:
            return "its join looks up former events"
        case _:
            return "its rule reads former events again"


def _partial_over(name: str, catalog: Catalog) -> list[View]:
    """The partial views that may read a source, also by way of other partial views."""
    partial = [each for each in catalog.definitions() if isinstance(each, View) and each.partial]
    reached, found = {name}, list[View]()
    while further := [each for each in partial if each not in found and reached & set(each.inputs)]:
        found += further
        reached |= {each.name for each in further}
    return found


def _of_leases(log: str, source: Source, lake: Lake, now: int) -> Iterator[Keeper]:
    for lease in leases.living(lake.table(log), now):
        yield _upto(f"the lease of '{lease.reader}'", lease.version, source, lake)


def _upto(who: str, version: int, source: Source, lake: Lake) -> Keeper:
    """What a reader keeps that stands at a version of the log."""
    try:
        record = reader.record_at(lake.table(tables.event_log(source)), version)
    except VersionGone:
        return Keeper(who, f"it stands at version {version}, which is gone")
    offsets = record.offsets.get(source.topic, {})
    return Keeper(who, f"it has the events up to version {version}", {int(each): at for each, at in offsets.items()})
