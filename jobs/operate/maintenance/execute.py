"""The execution of a maintenance plan, and its proof.

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
from strandline.jobs.ivm.retention import trim_log
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.operate.verify.files import check_digest
from strandline.jobs.operate.verify.history import check_feed
from strandline.jobs.operate.verify.subjects import opened
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.schedule import maintained
from strandline.state_store.delta import reader
from strandline.state_store.delta.cleanup import clean
from strandline.state_store.delta.compaction import compact, plan_compaction
from strandline.state_store.delta.schema import arrow_schema
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CommitConflict, StoreError, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import TableSpec
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.model.report import Steps
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.maintenance.plan import MaintenancePlan, TablePlan
    from strandline.jobs.operate.verify.subjects import Opened
    from strandline.state_store.delta.snapshot import Snapshot


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


def specs(catalog: Catalog) -> dict[str, TableSpec]:
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


def kept_aside(table: str, snapshot: Snapshot) -> TableSpec:
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
    forms = specs(Catalog(lake))
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
        compact(table.path, spec or kept_aside(plan.table, table.snapshot), table.head, table.snapshot, merges)
    except CommitConflict as error:
        return f"no merge: {error.message}"
    return ""
