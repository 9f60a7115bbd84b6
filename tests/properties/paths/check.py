"""The check of an example: every way against the oracle, after every epoch and at rest.

events ──epoch by epoch──> DuckDB, or Spark ──> table ──> push, replica, topic      after each epoch
                                                  ├─> verify --deep, pulls, partial    at rest
                                                  └─> a lost row is found, and mended by rebuild and backfill
events ──all at once─────> DuckDB, or Spark ──> table                               one load
events ──all at once─────> DuckDB, in tasks that share it ──> table                 spread
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import duckdb

from strandline.jobs.ivm.refresh.context import SparkSessions, Spread
from strandline.jobs.model.errors import EngineRefused, SqlError
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import StrandlineError
from tests.properties.paths import ways
from tests.properties.paths.example import Example, Tally
from tests.properties.paths.lake import ViewLake
from tests.properties.paths.oracle import Expected, oracle
from tests.properties.paths.views import relations_of
from tests.support.local_tasks import LocalTasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.properties.paths.values import Rows
    from tests.properties.paths.views import ViewOf
    from tests.properties.paths.ways import Way


_ALWAYS: Final = Spread(1, 512, (None, 0), read_again=1e9)
"""First loads are shared by tasks, whatever it costs."""


class Differs(AssertionError):
    """A way gives other rows than the oracle, fails, or does not fail where it must."""


@dataclass
class Engines:
    """What examples are checked with.

    Attributes:
        db: the oracle's, with nothing in it.
        spark: where there is one, it runs every other epoch, and the load of everything at once.
        folder: where lakes are made; None: where the system keeps temporary files.
    """

    duckdb_engine: DuckDBEngine
    db: duckdb.DuckDBPyConnection
    spark: SparkSession | None = None
    tally: Tally = field(default_factory=Tally)
    folder: Path | None = None

    def refresh(self, lake: ViewLake, *, by_spark: bool, by_tasks: bool = False) -> dict[str, StrandlineError]:
        """Bring the views of a lake to what has come; what failed, by table."""
        spark, tasks = self.spark, LocalTasks()
        if by_tasks:
            failures = lake.refresh(self.duckdb_engine, tasks.sessions, spread=_ALWAYS)
            self.tally.shared += tasks.shared
            return failures
        if spark is not None and by_spark:
            failures = lake.refresh(None, SparkSessions(lambda: spark))
            # Spark has no recursion: DuckDB goes on with what it refused.
            return failures if not _refused(failures) else lake.refresh(self.duckdb_engine)
        return lake.refresh(self.duckdb_engine)


def check(example: Example, engines: Engines) -> None:
    """Run an example, in a folder that goes again, and compare every way with the oracle.

    Raises:
        Differs: the first one that does.
    """
    with (
        TemporaryDirectory(prefix="paths", dir=engines.folder) as folder,
        ViewLake(Path(folder) / "epochs", example.relations, example.views) as lake,
        lake.copied(Path(folder) / "once") as once,
        lake.copied(Path(folder) / "spread") as spread,
    ):
        by_epochs = _Checked(example, engines, lake)
        by_epochs.by_epochs()
        _Checked(example, engines, once, accepted=by_epochs.accepted).at_once()
        _Checked(example, engines, spread, accepted=by_epochs.accepted).spread()


def failure(example: Example, engines: Engines) -> str:
    """What the check of an example fails with; empty when it passes."""
    try:
        check(example, engines)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


class _Checked:
    """An example at work in a lake.

    Its views hold what the oracle said when they last went on: one with `ERRORS = 'stop'` stays there.

    Attributes:
        accepted: the view that is to be replaced was; otherwise it is as it was.
    """

    def __init__(self, example: Example, engines: Engines, lake: ViewLake, *, accepted: bool = False) -> None:
        self._example, self._engines, self._lake = example, engines, lake
        self._views = list(example.views)
        self.accepted = accepted
        self._now: dict[str, Expected] = {}
        self._held: dict[str, Expected] = dict.fromkeys((view.name for view in example.views), Expected((), 0))

    def by_epochs(self) -> None:
        """Epoch by epoch, each way that goes on with them; then those that are asked once."""
        for number, events in enumerate(self._example.epochs):
            place = f"epoch {number}"
            if self._example.replaced is not None and self._example.replaced[0] == number:
                self._replace(self._example.replaced[1], number)
            self._lake.take(events)
            self._refresh(number + 1, place, by_spark=number % 2 == 0)
            for view in self._views:
                self._compare(view, ways.EACH_EPOCH, place)
                self._compare_letters(view, place)
        self._verify()
        for view in self._views:
            if ways.can_be_pulled(view.query):
                self._compare_select(view)
            self._compare(view, ways.AT_REST, "at rest")
            if not self._stops(view):
                self._compare(view, {"partial": ways.partial}, "at rest")
                self._compare_mended(view)

    def at_once(self) -> None:
        """The same events in one epoch, which is the first load."""
        self._lake.take(self._example.events())
        self._load("one load", by_spark=True)

    def spread(self) -> None:
        """The first load, shared by tasks that each read some of the files."""
        for events in self._example.epochs:
            self._lake.take(events)
        self._load("spread", by_tasks=True)

    def _load(self, way: str, *, by_spark: bool = False, by_tasks: bool = False) -> None:
        if self._example.replaced is not None and self.accepted:
            self._put(self._example.replaced[1])
        self._refresh(len(self._example.epochs), way, by_spark=by_spark, by_tasks=by_tasks)
        for view in self._views:
            self._compare(view, {way: ways.table}, way)
            self._compare_letters(view, way)

    def _put(self, view: ViewOf) -> None:
        self._lake.replace(view)
        self._views = [view if each.name == view.name else each for each in self._views]

    def _replace(self, view: ViewOf, epochs: int) -> None:
        """Another query for a view: its rows are that one's at once, and those that follow the table follow.

        Raises:
            Differs: it is refused though no row fails, or accepted though one does.
        """
        at = ways.At(self._lake, view, self._held[view.name])
        if not at.computed or self._lake.view(view.name).storage == "append":
            return  # it has no rows yet, or rows are only ever added to it
        with oracle(self._engines.db, self._example.relations, self._example.events(epochs)) as plain:
            wanted = {each.name: plain.expected(view if each.name == view.name else each) for each in self._views}
        fails = view.errors != "null" and wanted[view.name].failing > 0
        try:
            self._put(view)
        except StrandlineError as error:
            if not fails and not any(view.name in relations_of(each.query) for each in self._views):
                raise Differs(f"replaced: {_said(error)}\n{view.again}") from error
            return
        if fails:
            raise Differs(f"replaced: it has {wanted[view.name].failing} failing rows\n{view.again}")
        self.accepted = True
        self._engines.tally.ways["replaced"] += 1
        self._held[view.name] = wanted[view.name]
        self._compare(view, ways.EACH_EPOCH, "replaced")

    def _refresh(self, epochs: int, place: str, *, by_spark: bool, by_tasks: bool = False) -> None:
        """A refresh. A view stops where it is to stop and a row fails, and nowhere else.

        Raises:
            Differs: another one stops, or that one goes on.
        """
        failures = self._engines.refresh(self._lake, by_spark=by_spark, by_tasks=by_tasks)
        with oracle(self._engines.db, self._example.relations, self._example.events(epochs)) as plain:
            self._now = {view.name: plain.expected(view) for view in self._views}
        for view in self._views:
            error = failures.get(view.name)
            if error is not None and not self._stops(view):
                raise Differs(f"{place}: it stopped: {_said(error)}\n{view.statement}") from error
            if error is None and self._stops(view):
                raise Differs(f"{place}: it went on over {self._now[view.name].failing} failing rows\n{view.statement}")
            if error is None:
                self._held[view.name] = self._now[view.name]
        self._engines.tally.failing += (
            sum(bool(each.failing) for each in self._now.values()) if place == "one load" else 0
        )
        self._engines.tally.rows += sum(len(each.values) for each in self._now.values()) if place == "one load" else 0

    def _stops(self, view: ViewOf) -> bool:
        return view.errors == "stop" and self._now[view.name].failing > 0

    def _verify(self) -> None:
        """`verify --deep` finds nothing in tables that are what the oracle says."""
        found = ways.verified(self._lake, [view.name for view in self._views])
        self._engines.tally.ways["verify --deep"] += len(self._views)
        if found:
            raise Differs(f"verify --deep: {found}")

    def _compare_mended(self, view: ViewOf) -> None:
        """A row that is lost is found by `verify --deep`; a backfill of its period puts it back, as a rebuild does; and
        what follows the table follows both.
        """
        at = ways.At(self._lake, view, self._held[view.name])
        lost = self._lose(at)
        if lost is not None and ways.in_a_period(at, lost):
            self._compare(view, {"backfilled": ways.backfilled}, "at rest")
            self._lose(at)
        followers = ways.EACH_EPOCH if lost is not None else {}  # otherwise nothing has changed
        self._compare(view, {"rebuilt": ways.rebuilt, **followers}, "after a rebuild")

    def _lose(self, at: ways.At) -> dict[str, Any] | None:
        """A row that the table has lost.

        Raises:
            Differs: `verify --deep` does not miss it.
        """
        lost = ways.lose_a_row(at)
        if lost is not None:
            self._engines.tally.ways["a lost row"] += 1
            # Over a view that was rebuilt just now, its inner stages are what is broken.
            if not ways.verified(self._lake, [at.view.name]):
                raise Differs(f"verify --deep does not miss a row\n{at.view.statement}")
        return lost

    def _compare_letters(self, view: ViewOf, place: str) -> None:
        """The rows that are kept aside are as many as fail; if the view stops, those of one part."""
        expected = self._now[view.name]
        wanted = {0 if view.errors == "null" else expected.failing}
        if view.errors == "stop":
            wanted |= {each for each in expected.parts if each}
        found = ways.dead_letters(ways.At(self._lake, view, expected))
        if found is not None:
            self._engines.tally.ways["dead letters"] += 1
        if found is not None and found not in wanted:
            raise Differs(f"{place}, dead letters: {found}, and {wanted} rows fail\n{view.statement}")

    def _compare_select(self, view: ViewOf) -> None:
        """The view's SELECT as a pull query stops where a row fails, whatever the view does with such a row.

        Of one that changes no row of the answer it need not hear.
        """
        expected = self._now[view.name]
        try:
            found = ways.pulled_select(ways.At(self._lake, view, expected))
        except SqlError as error:
            if not expected.failing:
                raise Differs(f"pulled select: {_said(error)}\n{view.statement}") from error
        else:
            if expected.matters:
                raise Differs(f"pulled select: it answers over {expected.failing} failing rows\n{view.statement}")
            self._check_same("pulled select", view, expected, found)
        self._engines.tally.ways["pulled select"] += 1

    def _compare(self, view: ViewOf, asked: Mapping[str, Way], place: str) -> None:
        at = ways.At(self._lake, view, self._held[view.name])
        for name, way in asked.items():
            try:
                found = way(at)
            except StrandlineError as error:
                raise Differs(f"{place}, {name}: {_said(error)}\n{view.statement}") from error
            if found is not None:
                self._engines.tally.ways[name] += 1
                self._check_same(f"{place}, {name}", view, at.expected, found)

    def _check_same(self, what: str, view: ViewOf, expected: Expected, found: Rows) -> None:
        more, less = found - expected.rows, expected.rows - found
        if more or less:
            raise Differs(f"{what}: too many {dict(more)}, missing {dict(less)}\n{view.statement}")


def _refused(failures: Mapping[str, StrandlineError]) -> bool:
    return any(isinstance(each, EngineRefused) for each in failures.values())


def _said(error: StrandlineError) -> str:
    return f"{type(error).__name__}: {error.message}"
