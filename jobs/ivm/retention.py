"""The retention of event logs: what each of them may let go, planned, and done under the writer's lock.

options of the source, settings ──> limits ──┐
keepers: views and readers ──────────────────┴─> plan ──lock, once more──> one commit: see `state_store.delta.trims`
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.refresh.begun_logs import begins, moment
from strandline.jobs.ivm.refresh.context import Heads, Owner
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.rules.maintenance import looks_back
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, LogRetention, Source, View, ViewOptions
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, inputs_of
from strandline.state_store import leases
from strandline.state_store.commits import Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.trims import Keeper, TrimLimits, TrimPlan, is_due, plan_trim, trim
from strandline.state_store.errors import StoreError, StrandlineError, VersionGone
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import Trimmed


# Who keeps the events of an event log: everything that may read one of them again, or has not read it yet.
#
#     definitions ──plan──> stages over the log ──┬─> looks back at it ───────────> keeps every event
#     partial views, REFRESH = 'full' ────────────┘
#     vectors of stages, leases of readers ───────────> version ──record──> offsets: keeps the events from there on
#
# A view that only folds changes (filters, COUNT, SUM, MIN and MAX over events, the newest row of a key) keeps nothing
# but what it has not taken in. Whatever cannot be told (a definition that does not plan) keeps every event.

_PARTIAL: Final = "STATE = 'partial': a key that is asked for is computed from every event"


def keepers_of(source: Source, lake: LakeLayout, catalog: Catalog, now: int) -> list[Keeper]:
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
            stages = compiled(definition, catalog).stages
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


def _of_stage(owned: OwnedStage, source: Source, heads: Heads, lake: LakeLayout) -> Keeper:
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


def _of_leases(log: str, source: Source, lake: LakeLayout, now: int) -> Iterator[Keeper]:
    for lease in leases.living(lake.table(log), now):
        yield _upto(f"the lease of '{lease.reader}'", lease.version, source, lake)


def _upto(who: str, version: int, source: Source, lake: LakeLayout) -> Keeper:
    """What a reader keeps that stands at a version of the log."""
    try:
        record = reader.record_at(lake.table(tables.event_log(source)), version)
    except VersionGone:
        return Keeper(who, f"it stands at version {version}, which is gone")
    offsets = record.offsets.get(source.topic, {})
    return Keeper(who, f"it has the events up to version {version}", {int(each): at for each, at in offsets.items()})


@dataclass(frozen=True)
class LogTrim:
    """What retention does to one event log.

    Attributes:
        source: whose log it is.
        retention: how much of it is kept.
    """

    source: Source
    retention: LogRetention
    plan: TrimPlan

    @property
    def table(self) -> str:
        return tables.event_log(self.source)

    @property
    def said(self) -> str:
        """What goes, in words; empty when nothing does."""
        if not self.plan.files:
            return ""
        begins = ", ".join(f"{offset} of partition {each}" for each, offset in sorted(self.plan.begins.items()))
        until = moment(self.plan.until)
        went = f"{_counted(self.plan.rows, 'event')} up to {until}: {_counted(len(self.plan.files), 'file')}"
        return f"{went}; it begins with offset {begins}"

    def lines(self) -> list[str]:
        """The plan as people read it."""
        found = [f"trim {self.said}"] if self.said else []
        held = {str(keeper): _counted(self.plan.held_for(keeper), "event") for keeper in self.plan.keepers}
        found += [sentence("keep {} beyond its retention for {}", events, keeper) for keeper, events in held.items()]
        if self.plan.overlaps:
            later = _counted(self.plan.overlaps, "file")
            found.append(f"keep {later} beyond its retention with later events than one that stays")
        return found

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        return {
            "retention_ms": self.retention.age_ms,
            "retention_bytes": self.retention.size,
            "rows": self.plan.rows,
            "bytes": self.plan.size,
            "files": len(self.plan.files),
            "begins": {str(partition): offset for partition, offset in self.plan.begins.items()},
            "until": self.plan.until or None,
            "beyond_retention": sum(each.rows for each in self.plan.due),
            "kept_for": [
                {"who": each.who, "why": each.why, "rows": self.plan.held_for(each)} for each in self.plan.keepers
            ],
        }


def _counted(number: int, one: str) -> str:
    return f"{number:,} {one if number == 1 else f'{one}s'}"


def plan_log_trim(
    source: Source, settings: Settings, catalog: Catalog, now: int | None = None, *, held: bool = True
) -> LogTrim | None:
    """The plan for the log of a source; None where it has no retention, or no table yet.

    Args:
        now: milliseconds since the epoch; default: the clock.
        held: plan also where somebody keeps every event, to say who and how many. Otherwise None: no file is opened.

    Raises:
        CorruptState, VersionGone, ForeignWrite: a table does not read.
    """
    lake, days = LakeLayout(settings.lake), settings.retention.events_days
    retention = LogRetention.read(source.options, None if days is None else int(days * DAY_MS))
    path = lake.table(tables.event_log(source))
    head = None if retention.endless else reader.head(path)
    if head is None:
        return None
    now = log.now_ms() if now is None else now
    limits = TrimLimits(None if retention.age_ms is None else now - retention.age_ms, retention.size)
    snapshot = read_snapshot(path, head.version)
    keepers = keepers_of(source, lake, catalog, now) if is_due(snapshot, limits) else ()
    if not held and any(keeper.upto is None for keeper in keepers):
        return None
    return LogTrim(source, retention, plan_trim(path, snapshot, limits, keepers))


def trim_log(source: Source, settings: Settings, now: int | None = None) -> Head | None:
    """Trim the log of a source, whose pipeline's writer's lock is held; its new head, None when nothing goes.

    It is planned anew: nobody can define a view meanwhile, and who has one is asked what it needs.

    Raises:
        CommitConflict: another writer has committed since.
        Others: as of `plan_log_trim`.
    """
    lake = LakeLayout(settings.lake)
    with locked(lake.catalog):
        catalog = Catalog(lake)
        found = catalog.find(source.name)
        planned = plan_log_trim(found, settings, catalog, now, held=False) if isinstance(found, Source) else None
        if planned is None or not planned.plan.files:
            return None
        path = lake.table(planned.table)
        version = planned.plan.version
        head = Head(version, reader.record_at(path, version))
        return trim(path, head, read_snapshot(path, version), planned.plan)


# What a definition that is to be computed from history finds of logs that retention has trimmed.
#
#     log        e0 e1 e2 │ e3 e4 e5       trimmed: 3 are gone
#     newcomer   computed from e3 on       begins there; where its rule looks back, nothing more goes from the log
#
# What only a stage holds that stands already, and that others share, is not computed again: it begins where that
# began.


def begins_late(definition: View | InsertQuery, catalog: Catalog, lake: LakeLayout) -> tuple[str, ...]:
    """What a definition that is computed from history now will lack: for each trimmed log that it reads, in words,
    where the log begins, and why it keeps what is left.

    Args:
        catalog: has what the definition reads.
    """
    heads = Heads(lake)
    try:
        logs = dict(_trimmed(definition, catalog, heads))
        return tuple(_said(definition, catalog.supposing(definition), logs, heads)) if logs else ()
    except StoreError:
        return ()  # a table that does not read says nothing; the refresh that needs it says why


def _trimmed(definition: View | InsertQuery, catalog: Catalog, heads: Heads) -> Iterator[tuple[str, Trimmed]]:
    for name in definition.inputs:
        source = catalog.find(name)
        log_table = tables.event_log(source) if isinstance(source, Source) else None
        head = None if log_table is None else heads.find(log_table)
        if log_table is not None and head is not None and head.record.trimmed is not None:
            yield log_table, head.record.trimmed


def _said(definition: View | InsertQuery, catalog: Catalog, logs: dict[str, Trimmed], heads: Heads) -> Iterator[str]:
    stages = compiled(definition, catalog).stages
    computed = [each for each in stages if not tables.is_shared(each.table) or heads.find(each.table) is None]
    for log_table, trimmed in logs.items():
        over = [each for each in computed if log_table in {one.relation.name for one in inputs_of(each)}]
        owned = (OwnedStage(definition, each, each is stages[-1]) for each in over)
        why = next(filter(None, (keeps_all(each, log_table, heads) for each in owned)), "")
        if over:
            yield sentence("{}{}", begins(log_table, trimmed), sentence(", and takes no more: {}", why) if why else "")


# Retention beside a stream: a run that goes on trims its own event logs, since nobody else may commit to them.

_LOG = logging.getLogger("strandline")

EVERY_SECONDS: Final = 60.0
"""Between two looks. A look reads the log's snapshot, some milliseconds; more only where something is due."""


@dataclass
class TrimUpkeep:
    """When a run last looked at the retention of its logs."""

    looked: float = float("-inf")

    def due(self) -> bool:
        """True once a minute."""
        return time.monotonic() - self.looked >= EVERY_SECONDS

    def trim(self, sources: Iterable[Source], settings: Settings) -> None:
        """Trim what is due, between two micro-batches. A failure is logged and nothing else: the log is as it was."""
        self.looked = time.monotonic()
        for source in sources:
            try:
                made = _trimmed_now(source.name, settings)
                if made is not None:
                    _LOG.info("event log of '%s': %s", source.name, made.record.reason)
            except (OSError, StrandlineError) as error:
                _LOG.warning("the event log of '%s' was not trimmed: %s", source.name, error)


def _trimmed_now(name: str, settings: Settings) -> Head | None:
    """The trim of one source's log, as its statement says now; None when nothing goes."""
    catalog = Catalog(LakeLayout(settings.lake))
    source = catalog.find(name)
    if not isinstance(source, Source):
        return None
    planned = plan_log_trim(source, settings, catalog, held=False)
    return trim_log(source, settings) if planned is not None and planned.plan.files else None
