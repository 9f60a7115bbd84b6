"""The retention of event logs: what each of them may let go, planned, and done under the writer's lock.

options of the source, settings ──> limits ──┐
keepers: views and readers ──────────────────┴─> plan ──lock, once more──> one commit: see `state_store.delta.trims`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lock import locked
from strandline.jobs.ivm.refresh.begun_logs import moment
from strandline.jobs.ivm.retention.keepers import keepers_of
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.options import LogRetention
from strandline.state_store.commits import Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.trims import Limits, TrimPlan, is_due, plan_trim, trim
from strandline.state_store.layout import Lake
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings


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
    lake, days = Lake(settings.lake), settings.retention.events_days
    retention = LogRetention.read(source.options, None if days is None else int(days * DAY_MS))
    path = lake.table(tables.event_log(source))
    head = None if retention.endless else reader.head(path)
    if head is None:
        return None
    now = log.now_ms() if now is None else now
    limits = Limits(None if retention.age_ms is None else now - retention.age_ms, retention.size)
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
    lake = Lake(settings.lake)
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
