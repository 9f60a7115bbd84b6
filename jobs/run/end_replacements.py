"""The end of replacements: by whoever holds the lock of the pipeline, from wherever a kill has left them.

view    caught up to its inputs ──> epoch noted in the intent ──> swap ──> definition ──> former tables go ──> intent
        before the swap shared stages that were made apart are adopted; those that nobody reads go with the former's
source                              epoch noted in the intent ──> columns for its tables ──> definition ──> intent
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ivm.compiled import compiled, keep_compiled
from strandline.jobs.ivm.refresh.context import Heads, Owner
from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.ivm.refresh.refresh import refresh_stage
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Ownership, Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import adopt, remove_shared, shared_tables, unread
from strandline.jobs.run.standby import catch_up, discard_former, discard_standby, standby_of, swap
from strandline.state_store.delta import reader
from strandline.state_store.delta.commit import digest_with, widen
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import LockLost, StrandlineError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.tablespec import columns_of, schema_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.intents import Replacement
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.tablespec import TableSpec

    Keyed = tuple[Stage, str]


log = logging.getLogger("strandline")


@dataclass(frozen=True)
class Swapped:
    """A view or source that has its next definition.

    Attributes:
        inserted, deleted: the rows by which the two differ; 0 when the process that made the swap was killed.
        gone: shared tables that nobody reads any more.
    """

    name: str
    inserted: int = 0
    deleted: int = 0
    gone: frozenset[str] = frozenset()


def end_replacements(context: RunContext, pipeline: str) -> list[Swapped]:
    """End what was begun of the replacements of a pipeline's definitions; its lock must be held.

    One that cannot be ended is given up, and the view or source stays as it was.

    Raises:
        LockLost: the lock is not held any more.
        StrandlineError: a fault after the commit of a swap; what is left of it, the next call does.
    """
    begun = intents.begun_replacements_in(pipeline, context.lake)
    done = [ended for each in begun if (ended := _ended(context, each)) is not None]
    if done:
        catalog = Catalog(context.lake)
        keep_compiled(catalog.pipeline(pipeline), catalog)
    return done


def _ended(context: RunContext, intent: Replacement) -> Swapped | None:
    done = Swapped(intent.name)
    if not intent.done(context.lake):
        try:
            done = _put_in_place(context, intent)
        except LockLost:
            raise  # another process holds the pipeline now: the intent is its to end
        except StrandlineError as error:
            _give_up(intent, error, context.lake)
            return None
    Catalog(context.lake).replace(intent.definition)
    failpoint("after-replacement-definition")
    if isinstance(intent.definition, View):
        # What did not compute under the former definition is not this one's.
        set_aside(context.lake, tables.dead_letters(intent.name))
        _keep_aside(context, intent.definition)
        discard_former(intent.definition, context.lake)
        catalog = Catalog(context.lake)
        done = replace(done, gone=unread(intent.shared, intent.name, intent.definition, catalog, context.lake))
        remove_shared(done.gone, context.lake)
    failpoint("after-replacement-clean-up")
    with locked(context.lake.catalog):
        intents.end_replacement(intent.name, context.lake)
    return done


def _give_up(intent: Replacement, error: StrandlineError, lake: LakeLayout) -> None:
    """Give an intent up that cannot be ended.

    Raises:
        StrandlineError: `error`, when it came after the commit of the swap, which stands, or after the first of a
            source's tables may have its columns: the next run ends the rest.
    """
    with locked(lake.catalog):
        found = intents.find_replacement(intent.name, lake)
        if found is None or found.definition != intent.definition:
            return  # taken back: the standby may be another one's by now
        if found.done(lake) or (isinstance(found.definition, Source) and found.epoch is not None):
            raise error
        # First the standby: who reads the refusal may make the next one ready at once.
        if isinstance(intent.definition, View):
            discard_standby(intent.definition, lake)
            _discard_adopted(intent.definition, Catalog(lake), lake)
        intents.refuse_replacement(found, error.message, lake)
    log.error("'%s' keeps its definition: %s", intent.name, error)


def _discard_adopted(definition: View, catalog: Catalog, lake: LakeLayout) -> None:
    """Remove the shared tables of a definition that was given up, unless others read them, or the former one does."""
    try:
        made = shared_tables(definition, catalog.supposing(definition))
    except SqlError:
        return  # it has no plan, so it has made none
    remove_shared(unread(made, definition.name, catalog.find(definition.name), catalog, lake), lake)


def _keep_aside(context: RunContext, definition: View) -> None:
    """Compute the dead letters of a definition whose expectations keep rows out; from then on it runs guarded.

    Once more after a kill: what the standby kept aside names the standby, and is gone with it.
    """
    if not Ownership.read(definition.options).quarantined:
        return
    items = (item for level in maintained([definition], Catalog(context.lake)) for item in level)
    [item] = (item for item in items if item.target == definition.name)
    letters = guarded(item.stages[-1], tables.dead_letters(definition.name)).aside
    assert letters is not None
    refresh_stage(context, Heads(context.lake, gated=item.gated), letters, Owner(item.fingerprint))


def _put_in_place(context: RunContext, intent: Replacement) -> Swapped:
    if isinstance(intent.definition, View):
        return _swapped(context, intent, intent.definition)
    source, keyed = intent.definition, None
    # What is registered from the intent on notes it itself.
    Catalog(context.lake).keep_seen(source.name)
    failpoint("after-columns-seen")
    if source.kind == "table":
        [item] = (item for level in maintained([source], Catalog(context.lake).supposing(source)) for item in level)
        keyed = (item.stages[-1], item.fingerprint)
    widen_source(context, intent, source, keyed)
    return Swapped(intent.name)


def _swapped(context: RunContext, intent: Replacement, definition: View) -> Swapped:
    """Make the swap; a view that has no rows yet has only its definition to be changed.

    Raises:
        RefreshFailed: the intent was taken back, or its definition does not compute.
        StrandlineError: as of a refresh, and of `swap`.
    """
    lake, name = context.lake, intent.name
    head = reader.head(lake.table(name))
    if head is None:
        return Swapped(name)
    catalog = Catalog(lake)
    present = catalog.get(name)
    assert isinstance(present, View)
    standby = standby_of(definition, catalog)
    ready = catch_up(context, standby, locked=True)
    intents.plan_epoch(intent, head.record.epoch + 1, name, lake)
    adopt(standby.apart(lake), lake)
    failpoint("before-replacement-swap")
    made = swap(context, compiled(present, catalog).stages[-1], standby.item.stages[-1], head, ready)
    failpoint("after-replacement-swap")
    return Swapped(name, made.record.inserted, made.record.deleted)


# The tables of a source that gets further columns: its event log, then the rows of a keyed one.
#
#     t__log  a, b    ──columns──>  a, b, c
#     t       a, b                  ──columns──>  a, b, c    the last commit decides: from then on the definition stands
#
# Nothing of a pipeline comes in between: its lock is held, and what was begun is ended before any epoch.


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
    intents.plan_epoch(intent, todo[-1].record.epoch, todo[-1].spec.name, lake)
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
