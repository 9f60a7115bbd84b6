"""CREATE OR REPLACE of a view that has rows, and ALTER of a source that has events.

The next definition of a view is built beside it, proved, and swapped in.

    build ──> prove ──> intent ──> hand over to whoever holds the pipeline's lock: a run at its next micro-batch, or us

A kill before the intent leaves the view as it was; after it, the run that is at work, or the next one, ends the work;
so does the same statement, said again.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.definitions import about_to_change
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.functions.python import Library
from strandline.jobs.ingest.foreign.delta_versions import check_new_columns
from strandline.jobs.ingest.foreign.table import Origin, origin_of
from strandline.jobs.ingest.logs.foreign_log import PLACES
from strandline.jobs.ivm.refresh.begun_logs import check_stage
from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext, SparkSessions
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View, same
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.operate.verify.recompute import check_recompute
from strandline.jobs.operate.verify.subjects import Subject, opened
from strandline.jobs.operate.verify.tables import check_digest
from strandline.jobs.run.end_replacements import end_replacements
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import duckdb_engine_for, spread_of
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import shared_tables
from strandline.jobs.run.spark import Session
from strandline.jobs.run.standby import catch_up, discard_standby, next_to, standby_of
from strandline.state_store.delta import reader
from strandline.state_store.errors import WriterBusy
from strandline.state_store.failpoints import failpoint
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.run.orphans import HeldLock
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.jobs.run.standby import Standby


# The way of a definition from the process that says it to whoever holds the lock of its pipeline.
#
# intent in the catalog ──> a run takes it between two micro-batches, or this process where none is at work ──> gone

_LOOKS_SECONDS: Final = 0.2
_HANDED_OVER_SECONDS: Final = 600.0
"""A run takes the definition between two micro-batches; one of a backlog takes minutes."""


@contextmanager
def changing(settings: Settings, definition: Source | View) -> Iterator[tuple[HeldLock, Replacement | None]]:
    """The lock of a change of this name, under which no other process changes it; and what a killed one had begun,
    which is ended first. None: there was nothing, or another definition that was given up, so all is as it was.

    Raises:
        WriterBusy: another process is changing it, or a run has not taken what was left for minutes.
        RefreshFailed: what was left is this definition, and was given up.
    """
    lake = LakeLayout(settings.lake)
    with sole_writer(lake, tables.standby(definition.name), f"{definition.name}/{os.getpid()}") as lock:
        left = intents.find_replacement(definition.name, lake)
        if left is not None and left.refused is not None:
            left = None
        if left is not None:
            try:
                hand_over(settings, left, lock)
            except RefreshFailed:
                if same(left.definition, definition):
                    raise
                left = None
        yield lock, left


def stands(definition: Source | View, lake: LakeLayout) -> bool:
    """True if the definition stands: what a killed process had begun, and was ended, has led to the same one."""
    found = Catalog(lake).find(definition.name)
    return found is not None and same(found, definition)


@contextmanager
def engines(settings: Settings, pipeline: str, catalog: Catalog, lock: HeldLock) -> Iterator[RunContext]:
    """The surroundings of refreshes that this process makes for a pipeline."""
    lake = LakeLayout(settings.lake)
    functions = Library(catalog.functions.values(), settings.functions.modules)
    with Session(settings, lake, lock) as session, duckdb_engine_for(settings) as duckdb_engine:
        writer, spread = f"{pipeline}/{os.getpid()}", spread_of(settings)
        yield RunContext(SparkSessions(session), lake, writer, functions, duckdb_engine, settings.engine, spread)


def hand_over(settings: Settings, intent: Replacement, lock: HeldLock) -> None:
    """Wait until the intent has ended, or end it when no run holds the pipeline's lock.

    Raises:
        RefreshFailed: it was given up.
        WriterBusy: a run has not taken it for minutes; it was taken back.
    """
    lake, name = LakeLayout(settings.lake), intent.name
    deadline = time.monotonic() + _HANDED_OVER_SECONDS
    while (found := intents.find_replacement(name, lake)) is not None and found.refused is None:
        try:
            pipeline = intent.definition.pipeline
            with (
                sole_writer(lake, pipeline, f"{name}/{os.getpid()}"),
                engines(settings, pipeline, Catalog(lake), lock) as context,
            ):
                end_replacements(context, pipeline)
        except WriterBusy:
            if time.monotonic() > deadline and _taken_back(intent, lake):
                raise
            time.sleep(_LOOKS_SECONDS)
    if found is not None:
        with locked(lake.catalog):
            intents.end_replacement(name, lake)
        raise RefreshFailed(sentence("'{}' keeps its definition: {}", Name(name), found.refused))


def _taken_back(intent: Replacement, lake: LakeLayout) -> bool:
    """Take the intent back, unless a run is at it already."""
    with locked(lake.catalog):
        if intents.find_replacement(intent.name, lake) != intent:
            return False
        intents.end_replacement(intent.name, lake)
    if isinstance(intent.definition, View):
        discard_standby(intent.definition, lake)
    return True


# ALTER … ADD COLUMN of a source whose events are in the lake, also while its pipeline runs.
#
#     intent ──> hand over to whoever holds the pipeline's lock: a run at its next micro-batch, or us
#
# A kill before the intent leaves the source as it was; after it, the run that is at work, or the next one, ends the
# work; so does the same statement, said again.


def alter_source(settings: Settings, present: Source, definition: Source) -> None:
    """Give a source further columns. Its pipeline may be running: it takes them in between two micro-batches.

    Args:
        present: what the definition was checked against.

    Raises:
        RefreshFailed: the source has another definition than `present` by now, or is gone; or its tables cannot be
            given the columns. It is as it was.
        WriterBusy: it, or a view that reads it, is being changed by another process; or a run has not taken the columns
            for minutes. It is as it was.
        StrandlineError: a fault after the columns were given; what is left, the next run does.
    """
    lake = LakeLayout(settings.lake)
    with changing(settings, definition) as (lock, _):
        if stands(definition, lake):
            return
        origin = origin_of(definition.topic)
        with ExitStack() as held:
            if origin is not None:  # a run that goes on would read further rows without the columns
                held.enter_context(sole_writer(lake, present.pipeline, f"{present.name}/{os.getpid()}"))
                new = definition.columns[len(present.columns) :]
                check_new_columns(present, new, _taken(present, origin, lake), origin, settings.storage.options())
            held.enter_context(locked(lake.catalog))
            _check(present, lake)
            intents.put_replacement(Replacement(definition), lake)
        hand_over(settings, Replacement(definition), lock)


def _taken(source: Source, origin: Origin, lake: LakeLayout) -> int | None:
    """The newest version of a table of others of which rows are in the lake."""
    head = reader.head(lake.table(tables.event_log(source)))
    offsets = head.record.offsets.get(source.topic, {}) if head is not None else {}
    ends = [end for end in offsets.values() if end > origin.first_version * PLACES]
    return (max(ends) - 1) // PLACES if ends else None


def _check(present: Source, lake: LakeLayout) -> None:
    """Check that the source is what it was, and that no view which reads it is about to have another definition."""
    if Catalog(lake).find(present.name) != present:
        raise RefreshFailed(
            sentence("'{}' was dropped or got another definition meanwhile", Name(present.name)),
            hint="see what it is, and say it again",
        )
    for each in intents.begun_replacements(lake):
        if isinstance(each.definition, View) and present.name in each.definition.inputs:
            raise WriterBusy(
                sentence("'{}' reads '{}', and is being replaced", Name(each.name), Name(present.name)),
                hint=f"try again when that has ended; a run of pipeline '{each.definition.pipeline}' ends it",
            )


_PAUSE_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 60.0
"""A run brings the stages that views share to their inputs one after the other, at each of its refreshes."""


def replace_view(settings: Settings, present: View, definition: View) -> str | None:
    """Put a definition in the place of a view's; what reads the view follows by the difference.

    The view's pipeline may be running.

    Args:
        present: what the definition was checked against.

    Returns:
        why its rows were not proved; None when they were, or when the view has no rows yet.

    Raises:
        RefreshFailed: its rows are not those of its SQL, or do not compute; or the view has another definition than
            `present` by now, or is gone. The view is as it was.
        EventsGone: retention has taken events that its rows were computed from.
        WriterBusy: the view is being replaced by another process, or a run has not taken the definition for minutes.
        StrandlineError: as of a refresh. The view is as it was.
    """
    lake = LakeLayout(settings.lake)
    with changing(settings, definition) as (lock, left):
        if stands(definition, lake):
            return None if left is None else left.unproved
        catalog = _unchanged(present, lake)
        made = next_to(present, definition, catalog)
        discard_standby(made, lake)
        unproved = None
        check_events(present, catalog, lake)
        try:
            if reader.head(lake.table(made.name)) is not None:
                unproved = _make_ready(settings, made, catalog, lock)
                check_events(present, catalog, lake)  # a run may have trimmed a log before the build read it
            with locked(lake.catalog):
                _check_inputs(made, catalog, _unchanged(present, lake), lake)  # the build may have taken long
                shared = tuple(sorted(shared_tables(present, catalog)))
                intent = Replacement(made, shared=shared, unproved=unproved)
                intents.put_replacement(intent, lake)
        except BaseException:
            discard_standby(made, lake)
            raise
        hand_over(settings, intent, lock)
    return unproved


def _unchanged(present: View, lake: LakeLayout) -> Catalog:
    """The catalog, in which the view still is what the next definition was checked against. Raises RefreshFailed."""
    catalog = Catalog(lake)
    if catalog.find(present.name) != present:
        raise RefreshFailed(
            sentence("'{}' was dropped or got another definition meanwhile", Name(present.name)),
            hint="see what it is, and say it again",
        )
    return catalog


def check_events(present: View, catalog: Catalog, lake: LakeLayout) -> None:
    """Check that nothing is lost that only the present rows hold: the next ones are computed from what is left of the
    event logs. Raises EventsGone."""
    heads = Heads(lake)
    for item in (item for level in maintained([present], catalog) for item in level):
        for stage in item.stages:
            check_stage(lake, heads, stage, Owner(item.fingerprint))


def _check_inputs(definition: View, before: Catalog, now: Catalog, lake: LakeLayout) -> None:
    """Check that the next definition was made over the columns that its inputs have, and keep. Raises RefreshFailed."""
    for name in definition.inputs:
        source = now.find(name)
        if isinstance(source, Source) and (source != before.find(name) or about_to_change(name, lake)):
            raise RefreshFailed(
                sentence("'{}' was altered meanwhile", Name(name)),
                hint=sentence("say the definition of '{}' again", Name(definition.name)),
            )


def _make_ready(settings: Settings, definition: View, catalog: Catalog, lock: HeldLock) -> str | None:
    """Build the standby and prove it. Returns and raises as `_prove`."""
    standby = standby_of(definition, catalog)
    with engines(settings, definition.pipeline, catalog, lock) as context:
        catch_up(context, standby)
        failpoint("after-standby-build")
        unproved = _proved(standby, catalog, context)
        catch_up(context, standby)  # what came meanwhile, so that the run that swaps has little to take in
    failpoint("after-standby-proof")
    return unproved


def _proved(standby: Standby, catalog: Catalog, context: RunContext) -> str | None:
    """Prove the standby, at a moment when the shared tables that it reads stand at the same versions of their inputs.

    Returns and raises as `_prove`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return _prove(standby, catalog, context)
        except RefreshFailed as error:
            if standby.at_one_cut(context.lake):
                raise
            if time.monotonic() > deadline:
                raise RefreshFailed(
                    sentence(
                        "the stages that '{}' would share do not come to the same versions",
                        Name(standby.definition.name),
                    ),
                    hint="nothing was changed; say it again, or while the pipeline is not running",
                ) from error
        _bring_together(standby, context)


def _bring_together(standby: Standby, context: RunContext) -> None:
    """Bring shared tables to the same versions, or wait for the run that is at work and does so."""
    try:
        with sole_writer(context.lake, standby.definition.pipeline, context.writer):
            catch_up(context, standby, locked=True)
    except WriterBusy:
        time.sleep(_PAUSE_SECONDS)
        catch_up(context, standby)


def _prove(standby: Standby, catalog: Catalog, context: RunContext) -> str | None:
    """Compare the standby with the definition's SQL, computed by DuckDB without the engine's rules.

    Returns:
        why that cannot be done; None when they are the same.

    Raises:
        RefreshFailed: they differ, or the files do not hold the rows that were committed.
    """
    lake, functions = standby.seen_in(context.lake), context.functions
    assert functions is not None
    definition = standby.definition
    table = opened(_subject(standby.item, definition, lake))
    proofs: tuple[Callable[[], Outcome], ...] = (
        lambda: check_digest(table, reader.digest_of_rows(table.path, table.snapshot)),
        lambda: check_recompute(table, catalog, lake, functions),
    )
    # One after the other: rows that are not those of their record cannot be read for the second.
    for proof in proofs:
        outcome = proof()
        if outcome.ok is False:
            raise RefreshFailed(
                sentence(
                    "the rows of the next definition of '{}' do not prove right: {}",
                    Name(definition.name),
                    outcome.what,
                ),
                hint="nothing was changed; this is a fault of Strandline: report it with the definition",
            )
        if outcome.ok is None:
            return outcome.what
    return None


def _subject(item: RefreshUnit, definition: View, lake: LakeLayout) -> Subject:
    as_standby = replace(definition, name=item.target)
    return Subject(item.target, lake.table(item.target), definition.name, as_standby, "rows", item.fingerprint, "")
