"""The tables of a source that gets further columns: its event log, then the rows of a keyed one.

    t__log  a, b    ──columns──>  a, b, c
    t       a, b                  ──columns──>  a, b, c      the last commit decides: from then on the definition stands

Nothing of a pipeline comes in between: its lock is held, and what was begun is ended before any epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog import replacements
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import digest_with, widen
from strandline.state_store.delta.schema import columns_of
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.failpoints import failpoint
from strandline.state_store.tablespec import schema_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.replacements import Replacement
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.tablespec import TableSpec

    Keyed = tuple[Stage, str]


@dataclass(frozen=True)
class _Widening:
    """A table that lacks columns, and the commit that gives them."""

    spec: TableSpec
    head: Head
    record: CommitRecord

    @property
    def schema(self) -> str:
        return schema_json(self.spec.stored)


def widen_source(context: RunContext, intent: Replacement, source: Source, keyed: Keyed | None) -> None:
    """Give the tables of a source the columns of its next definition; those that have them are left as they are.

    A source without tables has only its definition to be changed. Whatever reads rows comes before the first commit:
    from then on there is no way back, and only the storage can fail.

    Args:
        keyed: of a keyed source: the stage that maintains its rows under the next definition, and its fingerprint.

    Raises:
        RefreshFailed: the intent was taken back.
        CommitConflict: another writer committed to a table.
        CorruptState, VersionGone: the rows of a table do not read.
    """
    lake = context.lake
    todo = [each for spec, given in _specs(source, keyed) if (each := _planned(context, spec, given)) is not None]
    if not todo:
        return
    replacements.plan_epoch(intent, todo[-1].record.epoch, todo[-1].spec.name, lake)
    failpoint("before-source-columns")
    for each in todo:
        widen(lake.table(each.spec.name), each.head, each.schema, each.record)
        failpoint("after-source-columns")


def _specs(source: Source, keyed: Keyed | None) -> Iterator[tuple[TableSpec, str | None]]:
    """The tables of a source, each with the fingerprint that its records carry; None: as before."""
    yield log_spec(source), None
    if keyed is not None:
        stage, fingerprint = keyed
        yield spec_of(stage), fingerprint


def _planned(context: RunContext, spec: TableSpec, fingerprint: str | None) -> _Widening | None:
    """The commit for a table; None where there is none, or it has the columns."""
    path = context.lake.table(spec.name)
    head = reader.head(path)
    if head is None:
        return None
    present = columns_of(read_snapshot(path, head.version).metadata["schemaString"])
    added = [name for name in spec.visible if name not in present]
    if not added:
        return None
    before = head.record
    record = replace(
        before,
        epoch=before.epoch + 1,
        fingerprint=before.fingerprint if fingerprint is None else fingerprint,
        writer=context.writer,
        reason=f"the source was given columns: {', '.join(added)}",
        digest=str(digest_with(path, head, schema_json(spec.stored))),
    )
    return _Widening(spec, head, record)
