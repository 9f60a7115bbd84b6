"""CREATE OR REPLACE of a view that has rows: its next definition is built beside it, proved, and swapped in.

    build ──> prove ──> intent ──> hand over to whoever holds the pipeline's lock: a run at its next micro-batch, or us

A kill before the intent leaves the view as it was; after it, the run that is at work, or the next one, ends the work.
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from jobs.catalog import replacements
from jobs.catalog.catalog import Catalog
from jobs.catalog.lock import locked
from jobs.catalog.replacements import Replacement
from jobs.functions.python.register import Library
from jobs.ivm.refresh.context import RunContext
from jobs.ivm.refresh.spark_sessions import SparkSessions
from jobs.model import tables
from jobs.model.definitions import View
from jobs.model.errors import RefreshFailed
from jobs.operate.verify.opened import opened
from jobs.operate.verify.recompute import check_recompute
from jobs.operate.verify.rows import check_digest
from jobs.operate.verify.subjects import Subject
from jobs.run.end_replacements import end_replacements
from jobs.run.orphans import sole_writer
from jobs.run.pipeline import kernel_for
from jobs.run.session import Session
from jobs.run.standby import catch_up, discard_standby, next_to, standby_item
from state_store.delta import reader
from state_store.errors import WriterBusy
from state_store.failpoints import failpoint
from state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jobs.model.settings import Settings
    from jobs.operate.verify.findings import Outcome
    from jobs.run.orphans import HeldLock
    from jobs.run.schedule import Maintained

_PAUSE_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 600.0
"""A run takes the definition between two micro-batches; one of a backlog takes minutes."""


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
        WriterBusy: the view is being replaced by another process, or a run has not taken the definition for minutes.
        StrandlineError: as of a refresh. The view is as it was.
    """
    lake = Lake(settings.lake)
    owner = f"{definition.name}/{os.getpid()}"
    with sole_writer(lake, tables.standby(definition.name), owner) as lock:
        left = replacements.find(definition.name, lake)
        if left is not None and left.refused is None:
            _hand_over(settings, left, lock)  # of a process that was killed
        catalog = _unchanged(present, lake)
        made = next_to(present, definition, catalog)
        discard_standby(made, lake)
        unproved = None
        try:
            if reader.head(lake.table(made.name)) is not None:
                unproved = _make_ready(settings, made, catalog, lock)
            with locked(lake.catalog):
                _unchanged(present, lake)  # the build may have taken long
                replacements.put(Replacement(made), lake)
        except BaseException:
            discard_standby(made, lake)
            raise
        _hand_over(settings, Replacement(made), lock)
    return unproved


def _unchanged(present: View, lake: Lake) -> Catalog:
    """The catalog, in which the view still is what the next definition was checked against. Raises RefreshFailed."""
    catalog = Catalog(lake)
    if catalog.find(present.name) != present:
        raise RefreshFailed(
            f"'{present.name}' was dropped or got another definition meanwhile", hint="see what it is, and say it again"
        )
    return catalog


def _make_ready(settings: Settings, definition: View, catalog: Catalog, lock: HeldLock) -> str | None:
    """Build the standby and prove it. Returns and raises as `_prove`."""
    item = standby_item(definition, catalog)
    with _engines(settings, definition.pipeline, catalog, lock) as context:
        catch_up(context, item)
        failpoint("after-standby-build")
        unproved = _prove(item, definition, catalog, context)
        catch_up(context, item)  # what came meanwhile, so that the run that swaps has little to take in
    failpoint("after-standby-proof")
    return unproved


@contextmanager
def _engines(settings: Settings, pipeline: str, catalog: Catalog, lock: HeldLock) -> Iterator[RunContext]:
    """The surroundings of refreshes that this process makes for a pipeline."""
    lake = Lake(settings.lake)
    functions = Library(catalog.functions.values(), settings.functions.modules)
    with Session(settings, lake, lock) as session, kernel_for(settings) as kernel:
        yield RunContext(SparkSessions(session), lake, f"{pipeline}/{os.getpid()}", functions, kernel, settings.engine)


def _prove(item: Maintained, definition: View, catalog: Catalog, context: RunContext) -> str | None:
    """Compare the standby with the definition's SQL, computed by DuckDB without the engine's rules.

    Returns:
        why that cannot be done; None when they are the same.

    Raises:
        RefreshFailed: they differ, or the files do not hold the rows that were committed.
    """
    lake, functions = context.lake, context.functions
    assert functions is not None
    table = opened(_subject(item, definition, lake))
    proofs: tuple[Callable[[], Outcome], ...] = (
        lambda: check_digest(table, reader.digest_of_rows(table.path, table.snapshot)),
        lambda: check_recompute(table, catalog, lake, functions),
    )
    # One after the other: rows that are not those of their record cannot be read for the second.
    for proof in proofs:
        outcome = proof()
        if outcome.ok is False:
            raise RefreshFailed(
                f"the rows of the next definition of '{definition.name}' do not prove right: {outcome.what}",
                hint="nothing was changed; this is a fault of Strandline: report it with the definition",
            )
        if outcome.ok is None:
            return outcome.what
    return None


def _subject(item: Maintained, definition: View, lake: Lake) -> Subject:
    as_standby = replace(definition, name=item.target)
    return Subject(item.target, lake.table(item.target), definition.name, as_standby, "rows", item.fingerprint, "")


def _hand_over(settings: Settings, intent: Replacement, lock: HeldLock) -> None:
    """Wait until the intent has ended, or end it when no run holds the pipeline's lock.

    Raises:
        RefreshFailed: it was given up.
        WriterBusy: a run has not taken it for minutes; it was taken back.
    """
    lake, name = Lake(settings.lake), intent.name
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (found := replacements.find(name, lake)) is not None and found.refused is None:
        try:
            pipeline = intent.definition.pipeline
            with (
                sole_writer(lake, pipeline, f"{name}/{os.getpid()}"),
                _engines(settings, pipeline, Catalog(lake), lock) as context,
            ):
                end_replacements(context, pipeline)
        except WriterBusy:
            if time.monotonic() > deadline and _taken_back(intent, lake):
                raise
            time.sleep(_PAUSE_SECONDS)
    if found is not None:
        with locked(lake.catalog):
            replacements.end(name, lake)
        raise RefreshFailed(f"'{name}' keeps its definition: {found.refused}")


def _taken_back(intent: Replacement, lake: Lake) -> bool:
    """Take the intent back, unless a run is at it already."""
    with locked(lake.catalog):
        if replacements.find(intent.name, lake) != intent:
            return False
        replacements.end(intent.name, lake)
    discard_standby(intent.definition, lake)
    return True
