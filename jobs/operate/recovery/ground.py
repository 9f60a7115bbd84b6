"""The ground of a drill: a copy of what one view is computed from, in a scratch folder, which may be damaged at will.

The copy shares the immutable files with the live lake by hard links where both lie on one disk; a drill removes files
and writes new ones, and never writes into one.

The closure of a view: all tables that it is computed from, directly or through others, and the items that do so.

    python -m strandline.jobs.operate.recovery.ground VIEW      refreshes one view: a driver to be killed
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import EngineRefused, UnknownName
from strandline.jobs.model.settings import load_settings
from strandline.jobs.operate.recovery.image import check_definitions, lake_image
from strandline.jobs.operate.verify.difference import difference
from strandline.jobs.operate.verify.recompute import lasting_key
from strandline.jobs.operate.verify.subjects import opened, subjects
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.state_store.delta import log, reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import StrandlineError, VersionGone
from strandline.state_store.files import remove_file
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    import pyarrow as pa

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.recovery.image import ImageFile
    from strandline.jobs.operate.verify.subjects import Opened, Subject
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.delta.log import Commit
    from strandline.state_store.paths import LakePath


def levels(view: str, catalog: Catalog) -> list[list[RefreshUnit]]:
    """What maintains a view and all it reads, of whatever pipeline, in levels: a level reads earlier ones only.

    Raises:
        SqlError, RefreshFailed: a definition has no plan.
    """
    definitions = [each for pipeline in catalog.pipelines() for each in catalog.pipeline(pipeline)]
    planned = maintained(definitions, catalog)
    wanted = {view}
    for level in reversed(planned):
        wanted |= {name for item in level if item.target in wanted for name in item.inputs}
    # A recovery is rehearsed, not the rows: what is approved in the lake is what is approved in its copy.
    kept = [[replace(item, blocking=()) for item in level if item.target in wanted] for level in planned]
    return [level for level in kept if level]


def _closure(view: str, catalog: Catalog) -> frozenset[str]:
    """The names of all tables that a view needs: its own and its stages', its inputs', what was kept aside of each.

    Raises: as `levels`.
    """
    items = [item for level in levels(view, catalog) for item in level]
    names = {view, *(name for item in items for name in (item.target, *item.inputs))}
    names |= {stage.table for item in items for stage in item.stages}
    sources = (each for each in catalog.definitions() if isinstance(each, Source) and each.name in names)
    names |= {name for source in sources for name in tables.own_tables(source)}
    return frozenset(names | {tables.dead_letters(name) for name in names})


def drillable(catalog: Catalog) -> list[str]:
    """The names of views and keyed sources: what is computed, and can be computed again."""
    found = (each for each in catalog.definitions() if (isinstance(each, View) and not each.partial) or _keyed(each))
    return [each.name for each in found]


def _keyed(definition: object) -> bool:
    return isinstance(definition, Source) and definition.kind == "table"


# A scenario: one way in which something is lost, and how it is won back; data, of which `scenarios` is the list.


@dataclass(frozen=True)
class Recovery:
    """What a rehearsal came to.

    Attributes:
        seconds: from the loss to rows that are right again.
        rows: of the view afterwards.
        fault: why the rows are not what they must be; empty when they are.
        lost_versions, lost_rows: commits of the view, and changed rows in them, that the rows do not reflect.
        what: one sentence: what was done.
    """

    seconds: float
    rows: int
    what: str
    fault: str = ""
    lost_versions: int = 0
    lost_rows: int = 0


@dataclass(frozen=True)
class Scenario:
    """One kind of loss.

    Attributes:
        name: what people type.
        what: what is lost.
        target_seconds: the longest that the recovery may take.
        rehearse: loses it on a copy, and recovers. Any StrandlineError is a failed drill.
    """

    name: str
    what: str
    target_seconds: float
    rehearse: Callable[[Ground], Recovery]


class DrillNotApplicable(Exception):
    """The loss cannot be staged for this view: the reason. The drill has neither passed nor failed."""


@dataclass(frozen=True)
class Ground:
    """A copy of one view with all that it is computed from.

    Attributes:
        settings: of the copy: its lake lies in `folder`.
        folder: the scratch folder, where a drill may put what it needs.
        live: the lake that was copied; it is only read.
        backup: the backup to restore; None: one of the copy is made.
    """

    settings: Settings
    folder: Path
    live: LakeLayout
    view: str
    backup: LakePath | None = None

    @property
    def lake(self) -> LakeLayout:
        """The copy."""
        return LakeLayout(self.settings.lake)

    @property
    def path(self) -> Path:
        """The folder of the view's table in the copy."""
        path = self.lake.table(self.view)
        assert isinstance(path, Path), "a copy lies on this machine's disk"
        return path

    @cached_property
    def catalog(self) -> Catalog:
        """The definitions of the copy."""
        return Catalog(self.lake)

    @cached_property
    def definition(self) -> View | Source:
        """The definition of the view."""
        found = self.catalog.find(self.view)
        assert isinstance(found, View | Source), "the plan names views and keyed sources only"
        return found

    @cached_property
    def library(self) -> Library:
        """The functions that users wrote."""
        return Library(self.catalog.functions.values(), self.settings.functions.modules)

    def table(self) -> Opened:
        """The view's table at its head. Raises as `opened`."""
        return next(opened(each) for each in self._subjects() if each.table == self.view)

    def tables(self) -> list[Opened]:
        """All tables of the copy at their heads. Raises as `opened`."""
        return [opened(each) for each in self._subjects() if reader.head(each.path) is not None]

    def _subjects(self) -> list[Subject]:
        names = _closure(self.view, self.catalog)
        return [each for each in subjects((), self.catalog, self.lake) if each.table in names]

    def rows(self) -> pa.Table:
        """The visible rows of the view, compared with the digest of their record. Raises CorruptState, VersionGone."""
        return reader.read_rows(self.path)

    def differing(self, expected: pa.Table) -> str:
        """How the view's rows differ from those that it must have, doubles at 1e-9; empty when they do not."""
        definition = self.definition
        return difference(expected, self.rows(), lasting_key(definition))


def copied(settings: Settings, view: str, folder: Path, backup: LakePath | None) -> Ground:
    """Copy what a view is computed from to `<folder>/lake`, which is not there yet.

    Raises:
        UnknownName: there is no such view.
        CorruptState, ForeignWrite, VersionGone, InputReplaced: a table's log is broken.
    """
    live = LakeLayout(settings.lake)
    catalog = Catalog(live)
    if catalog.find(view) is None:
        raise UnknownName.among("table or view", view, [each.name for each in catalog.definitions()])
    copy = copy_tables(live, _closure(view, catalog), folder)
    local = settings.model_copy(update={"lake": copy.root, "engine": "duckdb"})
    return Ground(local, folder, live, view, backup)


def copy_tables(live: LakeLayout, names: Collection[str], folder: Path) -> LakeLayout:
    """Copy some tables of a lake, with all definitions, to `<folder>/lake`, which is not there yet.

    Raises: as `copied`, but for the view.
    """
    copy = LakeLayout(folder / "lake")
    image = lake_image(live, names)
    for file in image.files:
        _copy(file, live, copy)
    check_definitions(image, live)
    return copy


def _copy(file: ImageFile, live: LakeLayout, copy: LakeLayout) -> None:
    source, target = file.path(live), file.path(copy)
    assert isinstance(target, Path), "a copy lies on this machine's disk"
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        if not isinstance(source, Path):
            target.write_bytes(source.read_bytes())
        elif not (file.lasting and _linked(source, target)):
            shutil.copyfile(source, target)
    except FileNotFoundError as error:
        message = sentence("'{}' was removed while the lake was copied", file.name)
        raise VersionGone(message, where=str(source), hint="run the drill again") from error


def _linked(source: Path, target: Path) -> bool:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:  # another disk, or one without links
        return False
    return True


# The refresh of a copy by DuckDB, without a JVM: a view and all it reads, brought to the heads of the copy.


def refreshed(settings: Settings, view: str, catalog: Catalog) -> None:
    """Refresh a view and all that it reads.

    Raises:
        DrillNotApplicable: DuckDB cannot run a rule.
        StrandlineError: what stopped the first view that failed.
    """
    library = Library(catalog.functions.values(), settings.functions.modules)
    with DuckDBEngine(*settings.kernel_size) as duckdb_engine:
        context = RunContext(None, LakeLayout(settings.lake), f"drill/{os.getpid()}", library, duckdb_engine, "duckdb")
        done = refresh_all(context, levels(view, catalog), frozenset())
    for error in done.failures.values():
        if isinstance(error, EngineRefused):
            raise DrillNotApplicable(f"it needs Spark: {error.message}")
        raise error


# The history of a table in a copy: a version by time, and the way back to it.


def readable(path: Path, base: int) -> list[Commit]:
    """The commits from `base` (−1: the first) to the head that hold rows of the present definition.

    What was before a view was replaced has other columns, and is no state that the present definition goes on from. A
    log that was cleaned up may begin after its checkpoint: the commit of `base` itself is gone then.

    Raises:
        VersionGone: one is missing.
    """
    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    commits = log.read_history(path, max(base, *log.versions(path)[:1], 0) - 1, newest)
    said = [commit.record.fingerprint if commit.record is not None else "" for commit in commits]
    present = next((each for each in reversed(said) if each), "")
    # A table may be made without one: that of a stream, by a query into it.
    former = max((place for place, each in enumerate(said) if each not in ("", present)), default=-1)
    return commits[former + 1 :]


def midway(commits: list[Commit]) -> Commit:
    """The commit in the middle of a history: what stood at its time.

    Raises:
        DrillNotApplicable: there are fewer than two.
    """
    if len(commits) < 2:
        raise DrillNotApplicable("its table has too few versions: none lies between the first and the last")
    at = commits[(len(commits) - 1) // 2].timestamp
    return [commit for commit in commits[:-1] if commit.timestamp <= at][-1]


def rolled_back(path: Path, version: int) -> None:
    """Take a table of a copy back to a version: later entries and checkpoints go, their files stay behind unnamed."""
    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    remove_file(log.hint_file(path))
    for each in range(version + 1, newest + 1):
        remove_file(log.commit_file(path, each))
        remove_file(log.checkpoint_file(path, each))


def main() -> int:
    """Refresh the view that the command line names, as a driver to be killed; 0 when it is up to its inputs."""
    settings = load_settings()
    try:
        refreshed(settings, sys.argv[1], Catalog(LakeLayout(settings.lake)))
    except StrandlineError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
