"""The rows of a view's next definition, made ready in a table of their own beside the view's.

    inputs ──> inner stages, numbered on from the former ones ──> v__standby          v and all that reads it go on
           └─> shared stages: see `jobs.run.shared` ──────────┘

It is refreshed like any view, so it can be brought up to its inputs as often as one likes, and after any kill.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from strandline.jobs.functions.failing_rows import BREAKS
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.guarded_stage import REASON
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import at_one_cut, cut, made_apart, made_elsewhere, standing_in
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import forget
from strandline.state_store.files import remove_folder
from strandline.state_store.layout import name_of
from strandline.state_store.paths import folders_in
from strandline.state_store.wording import Name, quoted, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout


@dataclass(frozen=True)
class Standby:
    """What makes the rows of a view's next definition ready.

    Attributes:
        item: maintains the rows, with the inner stages that are the definition's own.
        shared: maintain the stages that other views may read as well, each after what it reads.
    """

    definition: View
    item: RefreshUnit
    shared: tuple[RefreshUnit, ...]

    def apart(self, lake: LakeLayout) -> dict[str, str]:
        """{shared table: the table in which it is made apart}, see `made_apart`."""
        return made_apart(self.definition, [item.target for item in self.shared], lake)

    def seen_in(self, lake: LakeLayout) -> LakeLayout:
        """The lake as the standby reads it, with what is made apart in its place."""
        return standing_in(self.apart(lake), lake)

    def at_one_cut(self, lake: LakeLayout) -> bool:
        """True if its rows reflect one version of each input, by whatever way it is read."""
        seen = self.seen_in(lake)
        head = reader.head(seen.table(self.item.target))
        return head is not None and at_one_cut(head.record.vector, seen)


def next_to(present: View, definition: View, catalog: Catalog) -> View:
    """The definition with inner stages whose tables stand beside those of the present one, in its pipeline."""
    first = present.first_stage + len(plan(present, catalog).stages) - 1
    return replace(definition, pipeline=present.pipeline, first_stage=first)


def standby_of(definition: View, catalog: Catalog) -> Standby:
    """What makes the rows ready of a definition that is not in the catalog yet."""
    supposed = catalog.supposing(definition)
    items = [item for level in maintained([definition], supposed) for item in level]
    shared = tuple(item for item in items if tables.is_shared(item.target))
    [item] = (item for item in items if item not in shared)
    table = tables.standby(definition.name)
    stages = (*item.stages[:-1], replace(item.stages[-1], table=table))
    # Its expectations are asked of the view, when it has the rows.
    return Standby(definition, replace(item, name=table, target=table, stages=stages, blocking=()), shared)


def catch_up(context: RunContext, standby: Standby, *, locked: bool = False) -> Head:
    """Bring the standby to the present heads of its inputs; from history, when it is not there yet.

    Args:
        locked: the lock of the pipeline is held: shared tables that others read are brought up as well. Otherwise they
            are read as they stand, and their inputs at the versions that they reflect.

    Raises:
        RefreshFailed: an expression of the definition fails on a row, or an input has no table yet.
        StrandlineError: as of a refresh.
    """
    apart = standby.apart(context.lake)
    if locked and made_elsewhere(apart, context.lake):
        # What was computed from our own is begun anew, from those that stand.
        discard_standby(standby.definition, context.lake)
        apart = standby.apart(context.lake)
    lake = standing_in(apart, context.lake)
    ours = [item for item in standby.shared if locked or item.target in apart]
    standing = [item.target for item in standby.shared if item not in ours]
    levels = [*([item] for item in ours), [standby.item]]
    done = refresh_all(replace(context, lake=lake), levels, frozenset(), cut(standing, lake))
    if done.failures:
        raise next(iter(done.failures.values()))
    letters = (tables.dead_letters(stage.table) for item in (*standby.shared, standby.item) for stage in item.stages)
    found = next((each for each in letters if _has_failed_rows(each, lake)), None)
    if found is not None:
        raise RefreshFailed(
            sentence("an expression of the next definition fails on some rows; '{}' has them", Name(found)),
            hint="write TRY_CAST, NULLIF or CASE, so that every row of the history has a value",
        )
    head = reader.head(lake.table(standby.item.target))
    if head is None:
        inputs = standby.item.inputs
        missing = quoted(name for name in inputs if reader.head(lake.table(name)) is None)
        raise RefreshFailed(sentence("the next definition reads {}, of which there is no table yet", missing))
    return head


def _has_failed_rows(letters: str, lake: LakeLayout) -> bool:
    """True if a table of dead letters has rows on which an expression fails: those that break an expectation belong
    there, and the next definition says so."""
    path = lake.table(letters)
    if reader.head(path) is None:
        return False
    reasons = reader.read_rows(path, columns=[REASON]).column(REASON).to_pylist()
    return not all(reason.startswith(BREAKS) for reason in reasons)


def discard_standby(definition: View, lake: LakeLayout) -> None:
    """Remove the standby of a definition, with its inner stages: they are nobody's."""
    _remove(lake, definition, lambda number: number >= definition.first_stage)


def discard_former(definition: View, lake: LakeLayout) -> None:
    """Remove what the swap to a definition has left: the standby, and the inner stages before its own.

    Of a definition that shares its stages, those that were made apart and are adopted by now.
    """
    shares = definition.maintenance.state == "shared"
    _remove(lake, definition, lambda number: shares or number < definition.first_stage)


def _remove(lake: LakeLayout, definition: View, goes: Callable[[int], bool]) -> None:
    ready = tables.standby(definition.name)
    there = [name_of(path.name) for path in folders_in(lake.tables)]
    for name in tables.owned_by(definition.name, there):
        number = tables.stage_number(definition.name, name)
        if name in (ready, tables.dead_letters(ready)) or (number is not None and goes(number)):
            forget(lake, name)
            remove_folder(lake.table(name))
