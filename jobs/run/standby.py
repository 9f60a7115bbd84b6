"""The rows of a view's next definition, made ready in a table of their own beside the view's.

    inputs ──> inner stages, numbered on from the former ones ──> v__standby          v and all that reads it go on

It is refreshed like any view, so it can be brought up to its inputs as often as one likes, and after any kill.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jobs.ivm.plan.plan import plan
from jobs.ivm.refresh.guarded_stage import BREAKS, REASON
from jobs.model import tables
from jobs.model.definitions import View
from jobs.model.errors import RefreshFailed
from jobs.run.refresh_views import refresh_all
from jobs.run.schedule import maintained
from state_store.delta import reader
from state_store.folders import remove_folder
from state_store.layout import name_of
from state_store.paths import folders_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from jobs.catalog.catalog import Catalog
    from jobs.ivm.refresh.context import RunContext
    from jobs.run.schedule import Maintained
    from state_store.commits import Head
    from state_store.layout import Lake


def next_to(present: View, definition: View, catalog: Catalog) -> View:
    """The definition with inner stages whose tables stand beside those of the present one, in its pipeline."""
    first = present.first_stage + len(plan(present, catalog).stages) - 1
    return replace(definition, pipeline=present.pipeline, first_stage=first)


def standby_item(definition: View, catalog: Catalog) -> Maintained:
    """What maintains the standby of a definition that is not in the catalog yet."""
    supposed = catalog.supposing(definition)
    [item] = (item for level in maintained([definition], supposed) for item in level)
    table = tables.standby(definition.name)
    stages = (*item.stages[:-1], replace(item.stages[-1], table=table))
    # Its expectations are asked of the view, when it has the rows.
    return replace(item, name=table, target=table, stages=stages, blocking=())


def catch_up(context: RunContext, item: Maintained) -> Head:
    """Bring the standby to the present heads of its inputs; from history, when it is not there yet.

    Raises:
        RefreshFailed: an expression of the definition fails on a row, or an input has no table yet.
        StrandlineError: as of a refresh.
    """
    failures = refresh_all(context, [[item]], frozenset()).failures
    if failures:
        raise next(iter(failures.values()))
    letters = (tables.dead_letters(stage.table) for stage in item.stages)
    found = next((each for each in letters if _has_failed_rows(each, context.lake)), None)
    if found is not None:
        raise RefreshFailed(
            f"an expression of the next definition fails on some rows; '{found}' has them",
            hint="write TRY_CAST, NULLIF or CASE, so that every row of the history has a value",
        )
    head = reader.head(context.lake.table(item.target))
    if head is None:
        missing = ", ".join(repr(n) for n in item.inputs if reader.head(context.lake.table(n)) is None)
        raise RefreshFailed(f"the next definition reads {missing}, of which there is no table yet")
    return head


def _has_failed_rows(letters: str, lake: Lake) -> bool:
    """True if a table of dead letters has rows on which an expression fails: those that break an expectation belong
    there, and the next definition says so."""
    path = lake.table(letters)
    if reader.head(path) is None:
        return False
    reasons = reader.read_rows(path, columns=[REASON]).column(REASON).to_pylist()
    return not all(reason.startswith(BREAKS) for reason in reasons)


def discard_standby(definition: View, lake: Lake) -> None:
    """Remove the standby of a definition, with its inner stages: they are nobody's."""
    _remove(lake, definition, lambda number: number >= definition.first_stage)


def discard_former(definition: View, lake: Lake) -> None:
    """Remove what the swap to a definition has left: the standby, and the inner stages before its own."""
    _remove(lake, definition, lambda number: number < definition.first_stage)


def _remove(lake: Lake, definition: View, goes: Callable[[int], bool]) -> None:
    ready = tables.standby(definition.name)
    there = [name_of(path.name) for path in folders_in(lake.tables)]
    for name in tables.owned_by(definition.name, there):
        number = tables.stage_number(definition.name, name)
        if name in (ready, tables.dead_letters(ready)) or (number is not None and goes(number)):
            remove_folder(lake.table(name))
