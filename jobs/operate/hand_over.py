"""The way of a definition from the process that says it to whoever holds the lock of its pipeline.

intent in the catalog ──> a run takes it between two micro-batches, or this process where none is at work ──> gone
"""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog import replacements
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lock import locked
from strandline.jobs.functions.python.register import Library
from strandline.jobs.ivm.refresh.context import RunContext, SparkSessions
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import View, same
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.run.end_replacements import end_replacements
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import duckdb_engine_for
from strandline.jobs.run.session import Session
from strandline.jobs.run.standby import discard_standby
from strandline.state_store.errors import WriterBusy
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.replacements import Replacement
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.orphans import HeldLock

_PAUSE_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 600.0
"""A run takes the definition between two micro-batches; one of a backlog takes minutes."""


@contextmanager
def changing(settings: Settings, definition: Source | View) -> Iterator[tuple[HeldLock, Replacement | None]]:
    """The lock of a change of this name, under which no other process changes it; and what a killed one had begun,
    which is ended first. None: there was nothing, or another definition that was given up, so all is as it was.

    Raises:
        WriterBusy: another process is changing it, or a run has not taken what was left for minutes.
        RefreshFailed: what was left is this definition, and was given up.
    """
    lake = Lake(settings.lake)
    with sole_writer(lake, tables.standby(definition.name), f"{definition.name}/{os.getpid()}") as lock:
        left = replacements.find(definition.name, lake)
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


def stands(definition: Source | View, lake: Lake) -> bool:
    """True if the definition stands: what a killed process had begun, and was ended, has led to the same one."""
    found = Catalog(lake).find(definition.name)
    return found is not None and same(found, definition)


@contextmanager
def engines(settings: Settings, pipeline: str, catalog: Catalog, lock: HeldLock) -> Iterator[RunContext]:
    """The surroundings of refreshes that this process makes for a pipeline."""
    lake = Lake(settings.lake)
    functions = Library(catalog.functions.values(), settings.functions.modules)
    with Session(settings, lake, lock) as session, duckdb_engine_for(settings) as duckdb_engine:
        yield RunContext(
            SparkSessions(session), lake, f"{pipeline}/{os.getpid()}", functions, duckdb_engine, settings.engine
        )


def hand_over(settings: Settings, intent: Replacement, lock: HeldLock) -> None:
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
                engines(settings, pipeline, Catalog(lake), lock) as context,
            ):
                end_replacements(context, pipeline)
        except WriterBusy:
            if time.monotonic() > deadline and _taken_back(intent, lake):
                raise
            time.sleep(_PAUSE_SECONDS)
    if found is not None:
        with locked(lake.catalog):
            replacements.end(name, lake)
        raise RefreshFailed(sentence("'{}' keeps its definition: {}", Name(name), found.refused))


def _taken_back(intent: Replacement, lake: Lake) -> bool:
    """Take the intent back, unless a run is at it already."""
    with locked(lake.catalog):
        if replacements.find(intent.name, lake) != intent:
            return False
        replacements.end(intent.name, lake)
    if isinstance(intent.definition, View):
        discard_standby(intent.definition, lake)
    return True
