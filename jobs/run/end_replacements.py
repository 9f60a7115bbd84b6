"""The end of replacements: by whoever holds the lock of the pipeline, from wherever a kill has left them.

view    caught up to its inputs ──> epoch noted in the intent ──> swap ──> definition ──> former tables go ──> intent
        before the swap shared stages that were made apart are adopted; those that nobody reads go with the former's
source                              epoch noted in the intent ──> columns for its tables ──> definition ──> intent
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog import replacements
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lock import locked
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.context import Heads, Owner
from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.ivm.refresh.refresh import refresh_stage
from strandline.jobs.ivm.refresh.widen_source import widen_source
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.options import Ownership
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared.apart import adopt
from strandline.jobs.run.shared.reading import remove_shared, shared_tables, unread
from strandline.jobs.run.standby import catch_up, discard_former, discard_standby, standby_of
from strandline.jobs.run.swap import swap
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.errors import LockLost, StrandlineError
from strandline.state_store.failpoints import failpoint

if TYPE_CHECKING:
    from strandline.jobs.catalog.replacements import Replacement
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.state_store.layout import Lake

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
    begun = replacements.begun_in(pipeline, context.lake)
    return [done for each in begun if (done := _ended(context, each)) is not None]


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
        replacements.end(intent.name, context.lake)
    return done


def _give_up(intent: Replacement, error: StrandlineError, lake: Lake) -> None:
    """Give an intent up that cannot be ended.

    Raises:
        StrandlineError: `error`, when it came after the commit of the swap, which stands, or after the first of a
            source's tables may have its columns: the next run ends the rest.
    """
    with locked(lake.catalog):
        found = replacements.find(intent.name, lake)
        if found is None or found.definition != intent.definition:
            return  # taken back: the standby may be another one's by now
        if found.done(lake) or (isinstance(found.definition, Source) and found.epoch is not None):
            raise error
        # First the standby: who reads the refusal may make the next one ready at once.
        if isinstance(intent.definition, View):
            discard_standby(intent.definition, lake)
            _discard_adopted(intent.definition, Catalog(lake), lake)
        replacements.refuse(found, error.message, lake)
    log.error("'%s' keeps its definition: %s", intent.name, error)


def _discard_adopted(definition: View, catalog: Catalog, lake: Lake) -> None:
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
    replacements.plan_epoch(intent, head.record.epoch + 1, name, lake)
    adopt(standby.apart(lake), lake)
    failpoint("before-replacement-swap")
    made = swap(context, plan(present, catalog).stages[-1], standby.item.stages[-1], head, ready)
    failpoint("after-replacement-swap")
    return Swapped(name, made.record.inserted, made.record.deleted)
