"""ALTER … ADD COLUMN of a source whose events are in the lake, also while its pipeline runs.

    intent ──> hand over to whoever holds the pipeline's lock: a run at its next micro-batch, or us

A kill before the intent leaves the source as it was; after it, the run that is at work, or the next one, ends the work;
so does the same statement, said again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog import replacements
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lock import locked
from strandline.jobs.catalog.replacements import Replacement
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.operate.hand_over import changing, hand_over, stands
from strandline.state_store.errors import WriterBusy
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings


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
    lake = Lake(settings.lake)
    with changing(settings, definition) as (lock, _):
        if stands(definition, lake):
            return
        with locked(lake.catalog):
            _check(present, lake)
            replacements.put(Replacement(definition), lake)
        hand_over(settings, Replacement(definition), lock)


def _check(present: Source, lake: Lake) -> None:
    """Check that the source is what it was, and that no view which reads it is about to have another definition."""
    if Catalog(lake).find(present.name) != present:
        raise RefreshFailed(
            sentence("'{}' was dropped or got another definition meanwhile", Name(present.name)),
            hint="see what it is, and say it again",
        )
    for each in replacements.begun(lake):
        if isinstance(each.definition, View) and present.name in each.definition.inputs:
            raise WriterBusy(
                sentence("'{}' reads '{}', and is being replaced", Name(each.name), Name(present.name)),
                hint=f"try again when that has ended; a run of pipeline '{each.definition.pipeline}' ends it",
            )
