"""The plan of `strandline apply`: what a file would create and replace, what that reads, and who follows it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog.called import Called
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Source, View, gives_the_same_rows
from strandline.jobs.run.shared.reading import shared_tables
from strandline.jobs.session.catalog_changes import OTHER_BEGUN, described
from strandline.jobs.session.define.replaced import ColumnDiff
from strandline.state_store.delta import reader
from strandline.state_store.wording import Name, Text, joined, quoted, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.session.catalog_changes import Change
    from strandline.state_store.layout import Lake


_OUTCOMES = {"created": "create", "replaced": "replace", "altered": "alter", "repaired": "repair"}
_ENDS = "what has been begun of it comes to its end"
_COMES_FIRST = "another definition of it has been begun, and comes first: then say this one again"


@dataclass(frozen=True)
class Step:
    """What happens to one definition.

    Attributes:
        outcome: as of `Change`; `kept` for what belongs to the pipeline and is not in the file any more.
        what: the definition, in words.
        columns: of a view that is replaced, or a source that is altered, the difference in columns.
        reads: (input, its rows now) of a view whose rows are computed from history.
        followers: what reads a view that is replaced, and takes in the difference.
        unproved: why the rows of a view that is replaced will not be compared with its SQL; None: they will.
        untouched: what reads a source that is altered, and keeps the columns that it knows.
        shared_with: the views that have some of the stages of a view that is replaced.
        only_adds: of a view that is replaced, rows are only ever added to it.
        late: of what is computed from history, the logs that begin late, in words.
        begun: what was found begun of its name, in words.
    """

    outcome: str
    what: str
    columns: str | None = None
    reads: tuple[tuple[str, int], ...] = ()
    followers: tuple[str, ...] = ()
    unproved: str | None = None
    untouched: tuple[str, ...] = ()
    shared_with: tuple[str, ...] = ()
    only_adds: bool = False
    late: tuple[str, ...] = ()
    begun: str | None = None

    def __str__(self) -> str:
        return self.said

    @property
    def said(self) -> Text:
        """The step, in a sentence."""
        parts: list[str] = [sentence("{} {}", f"{self.outcome:<9}", self.what)]
        parts += [] if self.columns is None else [self.columns]
        parts += [sentence("reads {} rows of '{}'", f"{rows:,}", Name(name)) for name, rows in self.reads]
        parts += self.late
        if self.only_adds:
            parts.append("rows are added, and it stays as it is if one would go")
        if self.shared_with:
            parts.append(sentence("shares stages with {}", quoted(self.shared_with)))
        if self.followers:
            parts.append(sentence("{} follow by the difference", quoted(self.followers)))
        if self.unproved is not None:
            parts.append(sentence("its rows will not be proved: {}", self.unproved))
        if self.untouched:
            stays = "stays as it is" if len(self.untouched) == 1 else "stay as they are"
            parts.append(sentence("{} {}", quoted(self.untouched), stays))
        if self.begun is not None:
            parts.append(self.begun)
        return joined("; ", parts)


@dataclass(frozen=True)
class ApplyPlan:
    """The steps of applying a file, in order. Nothing was changed yet. Steps have the names that are stored."""

    pipeline: str
    steps: tuple[Step, ...]
    called: Called = field(default_factory=Called)

    @property
    def replaces(self) -> tuple[str, ...]:
        """The definitions, in words, that others take the place of."""
        return tuple(self.called.shown(step.what) for step in self.steps if step.outcome == "replace")

    @property
    def alters(self) -> tuple[str, ...]:
        """The sources, in words, that get columns."""
        return tuple(self.called.shown(step.what) for step in self.steps if step.outcome == "alter")

    def __str__(self) -> str:
        steps = (self.called.shown(step.said) for step in self.steps)
        return "\n".join([f"pipeline '{self.pipeline}':", *(f"  {step}" for step in steps)])


def plan_of(
    pipeline: str, changes: Sequence[Change], missing: Sequence[str], catalog: Catalog, lake: Lake
) -> ApplyPlan:
    """The plan of these changes.

    Args:
        changes: as a rehearsal made them.
        missing: names of the pipeline that are not in the file.
        catalog: as it is before.
    """
    steps = [_step(change, catalog, lake) for change in changes]
    steps += [Step("kept", sentence("'{}': it is not in the file; DROP removes it", Name(name))) for name in missing]
    return ApplyPlan(pipeline, tuple(steps), catalog.called)


def _step(change: Change, catalog: Catalog, lake: Lake) -> Step:
    definition, what = change.definition, described(change.definition)
    outcome = _OUTCOMES.get(change.outcome, change.outcome)
    bare = Step(outcome, what, begun=_ENDS if change.begun == "this" else _COMES_FIRST if change.begun else None)
    if outcome == "alter":
        source = catalog.get(definition.name)
        assert isinstance(source, Source)
        assert isinstance(definition, Source)
        return replace(bare, columns=str(ColumnDiff.of(source, definition)), untouched=catalog.readers(source.name))
    present = catalog.find(definition.name) if outcome == "replace" else None
    stays = present is not None and gives_the_same_rows(present, definition)
    if outcome == "unchanged" or stays:
        return replace(bare, begun=OTHER_BEGUN) if change.begun == "other" else bare
    if isinstance(definition, Source):
        return bare
    if change.begun != "this":
        reads = tuple((name, _rows(name, catalog, lake)) for name in definition.inputs)
        bare = replace(bare, reads=reads, late=change.late)
    if not isinstance(present, View) or not isinstance(definition, View):
        return bare
    return replace(
        bare,
        columns=str(ColumnDiff.of(present, definition)),
        followers=catalog.readers(definition.name),
        unproved=change.unproved,
        shared_with=_sharing(definition, catalog),
        only_adds=present.storage == "append" and reader.head(lake.table(present.name)) is not None,
    )


def _sharing(definition: View, catalog: Catalog) -> tuple[str, ...]:
    """The other views of the pipeline that read shared tables which the definition would read."""
    wanted = shared_tables(definition, catalog.supposing(definition))
    others = (each for each in catalog.pipeline(definition.pipeline) if each.name != definition.name)
    return tuple(each.name for each in others if wanted and wanted & shared_tables(each, catalog))


def _rows(name: str, catalog: Catalog, lake: Lake) -> int:
    """The rows that a definition's table has now: 0 of one that is not there yet."""
    found: Definition | None = catalog.find(name)
    table = tables.event_log(found) if isinstance(found, Source) else name
    head = None if isinstance(found, InsertQuery) else reader.head(lake.table(table))
    return 0 if head is None else head.record.rows
