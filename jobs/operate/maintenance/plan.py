"""The plan of a maintenance: per table what is merged, what goes, what stays and for whom. Nothing is changed by it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.retention import plan_log_trim
from strandline.jobs.model.definitions import Source
from strandline.jobs.operate.assurance import LogCost, log_cost
from strandline.jobs.operate.verify.findings import sized
from strandline.jobs.operate.verify.subjects import subjects
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS, plan_cleanup
from strandline.state_store.delta.compaction import plan_compaction
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.layout import LakeLayout
from strandline.state_store.leases import Need, Retention

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.ivm.retention import LogTrim
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.verify.subjects import Subject
    from strandline.state_store.delta.cleanup import CleanupPlan
    from strandline.state_store.delta.compaction import CompactionPlan
    from strandline.state_store.paths import LakePath


# The versions of tables that other tables still need: those that their version vectors name.
#
# A refresh reads its inputs from the version in the vector on, so a view that has stopped holds its inputs as a
# reader's lease does. When it is dropped, or has caught up, it holds them no more.


def needs_by_vector(lake: LakeLayout, catalog: Catalog) -> dict[str, list[Need]]:
    """{table: the versions of it that other tables' vectors name}.

    Raises:
        CorruptState, ForeignWrite: a head does not read: nobody can say what its table needs.
    """
    found: dict[str, list[Need]] = {}
    for subject in subjects((), catalog, lake):
        head = reader.head(subject.path)
        for entry, at in head.record.vector.items() if head is not None else ():
            found.setdefault(subject.input_of(entry), []).append(Need("vector", at.version, subject.table))
    return found


# The cost of a restore from a table's changelog, in rows: known from the records alone, no file is read.


@dataclass(frozen=True)
class RestoreCost:
    """What a restore plays that begins with all rows of one version and takes in every change since.

    Attributes:
        base: that version.
        rows: its rows, one per key.
        changes: the rows inserted and retracted after it.
    """

    base: int
    rows: int
    changes: int

    @property
    def plays(self) -> int:
        """The rows to play in all."""
        return self.rows + self.changes


def restore_cost(path: LakePath, base: int | None, upto: int) -> RestoreCost:
    """The cost from one version to another.

    Args:
        base: default: the oldest version in the log.

    Raises:
        VersionGone, CorruptState, ForeignWrite: the log does not read.
    """
    first = log.versions(path)[0] if base is None else base
    records = (commit.record for commit in log.read_history(path, first, upto))
    changes = sum(record.inserted + record.deleted for record in records if record is not None)
    return RestoreCost(first, reader.record_at(path, first).rows, changes)


@dataclass(frozen=True)
class TablePlan:
    """What is done to one table.

    Attributes:
        subject: the table, with its definition.
        size: the bytes of the live files.
        merges: live files that become fewer, in one commit that changes no row.
        cleanup: what goes, and who needs which version.
        before, after: what a restore from the oldest version plays, as it is and with the feed folded.
        log: of an event log, what it keeps.
        trim: of an event log with a retention, what goes of it and who keeps what is beyond.
    """

    subject: Subject
    size: int
    merges: CompactionPlan
    cleanup: CleanupPlan
    before: RestoreCost
    after: RestoreCost
    log: LogCost | None
    trim: LogTrim | None = None

    @property
    def table(self) -> str:
        return self.subject.table

    @property
    def pipeline(self) -> str:
        """The pipeline whose writer's lock a merge takes."""
        assert self.subject.definition is not None
        return self.subject.definition.pipeline

    @property
    def due(self) -> bool:
        """True if there is anything to do."""
        return bool(self.merges.merges or self.cleanup.files or self.trims)

    @property
    def trims(self) -> bool:
        """True if retention takes events."""
        return self.trim is not None and bool(self.trim.plan.files)

    def brief(self) -> str:
        """The plan of a table to which nothing is done, as people read it."""
        kept = f"keep all rows: {self.log}" if self.log is not None else f"keep from {self.cleanup.needs[0]}"
        beyond = [f"; {line}" for line in self.trim.lines()] if self.trim is not None else []
        return f"{self._standing()}; nothing to do; {kept}{''.join(beyond)}"

    def lines(self) -> Iterator[str]:
        """The plan as people read it."""
        yield self._standing()
        yield from (f"  merge {merge}" for merge in self.merges.merges)
        yield from (f"  remove {text.strip()}" for text in str(self.cleanup).splitlines()[1:])
        yield from (f"  keep from {need}" for need in self.cleanup.needs)
        yield from (f"  the lease of '{lease.reader}' at {lease.version} has ended" for lease in self.cleanup.expired)
        yield from (f"  {line}" for line in (self.trim.lines() if self.trim is not None else ()))
        if self.log is not None and not self.trims:
            held = "somebody needs those beyond its retention"
            within = held if self.trim is not None and self.trim.plan.due else "none is beyond its retention"
            yield f"  keep all rows, since {'it has no retention' if self.trim is None else within}: {self.log}"
        if self.after.plays < self.before.plays:
            yield f"  a restore plays {self.after.plays:,} rows instead of {self.before.plays:,}"

    def _standing(self) -> str:
        return f"{self.table}: {self.merges.files} files, {sized(self.size)}, version {self.cleanup.version}"

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        return {
            "table": self.table,
            "version": self.cleanup.version,
            "files": self.merges.files,
            "bytes": self.size,
            "merges": [
                {"files": len(each.files), "rows": each.rows, "bytes": each.size, "why": each.reason}
                for each in self.merges.merges
            ],
            "removes": {"files": len(self.cleanup.files), "bytes": self.cleanup.size},
            "kept_from": self.cleanup.first,
            "kept_for": [_need(need) for need in self.cleanup.needs],
            "expired_leases": [{"reader": each.reader, "version": each.version} for each in self.cleanup.expired],
            "restore_rows": {"before": self.before.plays, "after": self.after.plays},
            "keeps_all_rows": self.log.as_json() if self.log is not None and not self.trims else None,
            "trim": self.trim.as_json() if self.trim is not None else None,
        }


@dataclass(frozen=True)
class MaintenancePlan:
    """What is done to some tables of a lake, and which tables are left alone, with the reason.

    Attributes:
        in_full: what stays and for whom is said of every table, also where nothing goes.
    """

    tables: tuple[TablePlan, ...]
    left: tuple[tuple[str, str], ...] = ()
    in_full: bool = False

    def __str__(self) -> str:
        said: list[str] = []
        for table in self.tables:
            idle = not (self.in_full or table.due or table.cleanup.expired)
            said += [table.brief()] if idle else table.lines()
        return "\n".join([*said, *(f"{name}: left alone, {why}" for name, why in self.left)])


def plan_maintenance(
    settings: Settings, names: Sequence[str] = (), *, before: int | None = None, now: int | None = None
) -> MaintenancePlan:
    """The plan for some tables.

    Args:
        names: of definitions, for all their tables, or of tables; without names all tables of the lake.
        before: fold the feed of the one table that is named up to this version, whatever its age.
        now: milliseconds since the epoch; default: the clock.

    Raises:
        UnknownName: nothing has one of the names.
        LeaseHeld: `before` is above a version that a reader has leased.
        CorruptState, VersionGone, ForeignWrite: a table is broken: verify it first.
    """
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    chosen = subjects(names, catalog, lake)
    vectors = needs_by_vector(lake, catalog)
    horizon = int(settings.retention.horizon_days * DAY_MS)
    plans, left = [], []
    for subject in chosen:
        if log.newest_version(subject.path) is None:
            continue
        if subject.definition is None or subject.fault is not None:
            left.append((subject.table, "no definition that can be planned owns it"))
            continue
        needs = tuple(vectors.get(subject.table, ()))
        retention = Retention(horizon, before if [*names] == [subject.table] else None, needs, fold=True)
        at = log.now_ms() if now is None else now
        planned = _planned(subject, at, retention)
        if planned.log is not None and isinstance(subject.definition, Source):
            planned = replace(planned, trim=plan_log_trim(subject.definition, settings, catalog, at))
        plans.append(planned)
    return MaintenancePlan(tuple(plans), tuple(left), in_full=bool(names))


def _planned(subject: Subject, now: int, retention: Retention) -> TablePlan:
    path = subject.path
    cleanup = plan_cleanup(path, now, retention)
    snapshot = read_snapshot(path, cleanup.version)
    is_log = isinstance(subject.definition, Source) and subject.role == "event log"
    return TablePlan(
        subject=subject,
        size=sum(int(body["size"]) for body in snapshot.files.values()),
        merges=plan_compaction(snapshot),
        cleanup=cleanup,
        before=restore_cost(path, None, cleanup.version),
        after=restore_cost(path, cleanup.first, cleanup.version),
        log=log_cost(subject.table, reader.record_at(path, cleanup.version), snapshot) if is_log else None,
    )


def _need(need: Need) -> Mapping[str, Any]:
    return {"kind": need.kind, "who": need.who, "version": need.version, "until": need.until}
