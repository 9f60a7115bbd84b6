"""Maintenance of tables: small files merged, old events and what nobody needs removed, the feed folded; proved.

The plan says per table what is merged, what goes, what stays and for whom; nothing is changed by it.

    plan ──> writer's lock free?  yes: merge, trim, a commit each     no: its holder does both as it goes ──┐
             clean up: what no kept version needs <────────────────────────────────────────────────────────┘
             prove: rows = digest of the record, kept feed folds to the rows

Merges and trims make commits, and a commit by a second process would make the running writer lose its epoch; so they
are done under the writer's lock. A clean-up removes what no version can be about to name, and may run beside any
writer.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.event_logs import dead_letter_spec, log_spec
from strandline.jobs.ivm.retention import plan_log_trim, trim_log
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.operate.assurance import LogCost, log_cost
from strandline.jobs.operate.verify.findings import sized
from strandline.jobs.operate.verify.subjects import opened, subjects
from strandline.jobs.operate.verify.tables import check_digest, check_feed
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.schedule import maintained
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.cleanup import DAY_MS, clean, plan_cleanup
from strandline.state_store.delta.compaction import compact, plan_compaction
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CommitConflict, StoreError, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.leases import Need, Retention
from strandline.state_store.tablespec import TableSpec, arrow_schema
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.ivm.retention import LogTrim
    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.verify.subjects import Opened, Subject
    from strandline.state_store.delta.cleanup import CleanupPlan
    from strandline.state_store.delta.compaction import CompactionPlan
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath


# The versions of tables that other tables still need: those that their version vectors name.
#
# A refresh reads its inputs from the version in the vector on, so a view that has stopped holds its inputs as a
# reader's lease does. When it is dropped, or has caught up, it holds them no more.


def _needs_by_vector(lake: LakeLayout, catalog: Catalog) -> dict[str, list[Need]]:
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


def _restore_cost(path: LakePath, base: int | None, upto: int) -> RestoreCost:
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
    vectors = _needs_by_vector(lake, catalog)
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
        before=_restore_cost(path, None, cleanup.version),
        after=_restore_cost(path, cleanup.first, cleanup.version),
        log=log_cost(subject.table, reader.record_at(path, cleanup.version), snapshot) if is_log else None,
    )


def _need(need: Need) -> Mapping[str, Any]:
    return {"kind": need.kind, "who": need.who, "version": need.version, "until": need.until}


# The proof that a maintenance changed no row: the rows have the record's digest, and the kept feed folds to them.


@dataclass(frozen=True)
class Proof:
    """Whether a table is what its record says, by two ways of counting; `seconds` is what both took."""

    ok: bool
    fault: str
    seconds: float


def proved(table: Opened) -> Proof:
    """The proof for a table at its head. What does not read is a fault, not an error."""
    began = time.monotonic()
    try:
        rows = reader.digest_of_rows(table.path, table.snapshot)
        outcomes = [check_digest(table, rows), check_feed(table, rows)]
        fault: str = joined("; ", (outcome.what for outcome in outcomes if outcome.ok is False))
    except StoreError as error:
        fault = error.message
    return Proof(not fault, fault, round(time.monotonic() - began, 3))


# The stored form of each table of a lake, as its definition has it: what a merge sorts by and keeps statistics of.


def _specs(catalog: Catalog) -> dict[str, TableSpec]:
    """{table: its stored form} of event logs, dead letters of sources, and all that is maintained.

    Raises:
        SqlError: a definition no longer fits its inputs.
    """
    found: dict[str, TableSpec] = {}
    for pipeline in catalog.pipelines():
        definitions = catalog.pipeline(pipeline)
        for source in (each for each in definitions if isinstance(each, Source)):
            found |= {spec.name: spec for spec in (log_spec(source), dead_letter_spec(source))}
        for item in (item for level in maintained(definitions, catalog) for item in level):
            found |= {stage.table: spec_of(stage) for stage in item.stages}
    return found


def _kept_aside(table: str, snapshot: Snapshot) -> TableSpec:
    """The form of a table of rows kept aside: they are only ever added, and have no order."""
    names = arrow_schema(snapshot.metadata["schemaString"]).names
    return TableSpec(table, tuple((name, "") for name in names), "append")


@dataclass(frozen=True)
class TableResult:
    """What was done to one table.

    Attributes:
        version: the head afterwards.
        files_before, files_after: live files.
        bytes_after: of the live files.
        removed: files that went; `freed` their bytes.
        trimmed: events that retention took, of an event log; their files go when no kept version needs them.
        restore_rows_before, restore_rows_after: the rows that a restore from the oldest version plays.
        digest: of the rows; the same before and after.
        proved: the rows have that digest, and the kept feed folds to them; None when nothing was done.
        prove_seconds: how long a fold of the kept feed took.
        note: why a part of the plan was left to somebody else, or what the proof found.
    """

    table: str
    version: int
    files_before: int
    files_after: int
    bytes_after: int
    removed: int
    freed: int
    restore_rows_before: int
    restore_rows_after: int
    digest: str
    proved: bool | None
    prove_seconds: float = 0.0
    note: str = ""
    trimmed: int = 0

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return asdict(self)


@dataclass(frozen=True)
class MaintenanceResult:
    """What was done to some tables of a lake."""

    tables: tuple[TableResult, ...]

    @property
    def proved(self) -> bool:
        """False if a table is not what it was: verify it."""
        return all(table.proved is not False for table in self.tables)


def execute_maintenance(
    settings: Settings, plan: MaintenancePlan, now: int | None = None, *, steps: Steps = UNWATCHED
) -> MaintenanceResult:
    """Carry out a plan, table by table. A kill at any point is harmless: the next plan finds what is left.

    Args:
        now: milliseconds since the epoch, by which leases have ended; default: the clock.

    Raises:
        LeaseHeld: a reader has leased an older version since the plan was made. What was done before stays.
        CorruptState, VersionGone: a file does not read back: nothing of its table was removed.
        DiskFailed: the disk is full or broken.
    """
    lake = LakeLayout(settings.lake)
    forms = _specs(Catalog(lake))
    results: list[TableResult] = []
    for pipeline, tables in groupby(sorted(plan.tables, key=_pipeline), _pipeline):
        with _writer(lake, pipeline) as busy:
            for table in tables:
                steps.begin(
                    sentence("compacting '{}', table {} of {}", Name(table.table), len(results) + 1, len(plan.tables))
                )
                trimmed, note = _trimmed(settings, table, busy, now)
                done = _maintained(table, forms.get(table.table), busy, now)
                results.append(replace(done, trimmed=trimmed, note="; ".join(filter(None, (done.note, note)))))
    return MaintenanceResult(tuple(results))


def _pipeline(table: TablePlan) -> str:
    return table.pipeline


@contextmanager
def _writer(lake: LakeLayout, pipeline: str) -> Iterator[str]:
    """The pipeline's writer's lock for the duration of the block, and nothing; or who holds it."""
    with ExitStack() as held:
        try:
            held.enter_context(sole_writer(lake, pipeline, f"compact {os.getpid()}"))
            busy = ""
        except WriterBusy as error:
            busy = f"{error.message}, and does it as it goes"
        yield busy


def _maintained(plan: TablePlan, spec: TableSpec | None, busy: str, now: int | None) -> TableResult:
    note = (f"no merge: {busy}" if busy else _merged(plan, spec)) if plan.merges.merges else ""
    freed = clean(plan.cleanup, now)
    table = opened(plan.subject)
    proof = proved(table) if plan.due else None
    return TableResult(
        table=plan.table,
        version=table.version,
        files_before=plan.merges.files,
        files_after=len(table.snapshot.files),
        bytes_after=sum(int(body["size"]) for body in table.snapshot.files.values()),
        removed=len(plan.cleanup.files),
        freed=freed,
        restore_rows_before=plan.before.plays,
        restore_rows_after=plan.after.plays,
        digest=table.record.digest,
        proved=None if proof is None else proof.ok,
        prove_seconds=0.0 if proof is None else proof.seconds,
        note="; ".join(part for part in (note, proof.fault if proof else "") if part),
    )


def _trimmed(settings: Settings, plan: TablePlan, busy: str, now: int | None) -> tuple[int, str]:
    """Trim under the writer's lock, as planned once more: the events that went, and why it came to nothing."""
    if plan.trim is None or not plan.trims:
        return 0, ""
    if busy:
        return 0, f"no trim: {busy}"
    try:
        made = trim_log(plan.trim.source, settings, now)
    except CommitConflict as error:
        return 0, f"no trim: {error.message}"
    went = Digest.parse(made.record.trimmed.digest).count if made is not None and made.record.trimmed else 0
    return went, f"{went:,} events trimmed" if went else "nothing is left to trim"


def _merged(plan: TablePlan, spec: TableSpec | None) -> str:
    """Merge under the writer's lock, from the head as it is now; a word on why not, when it came to nothing."""
    table = opened(plan.subject)
    merges = plan_compaction(table.snapshot)
    if not merges.merges:
        return "nothing is left to merge"
    try:
        compact(table.path, spec or _kept_aside(plan.table, table.snapshot), table.head, table.snapshot, merges)
    except CommitConflict as error:
        return f"no merge: {error.message}"
    return ""
