"""The lake of an example: its sources, its views, and epochs that come into it, without a JVM unless one is given."""

from __future__ import annotations

import copy
import datetime as dt
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.settings import load_settings
from strandline.jobs.model.tables import TOMBSTONE
from strandline.jobs.publish.topic import published_views
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained, tables_of
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord, ReachedNotes
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.properties.paths.history import BEGIN
from tests.properties.paths.views import Relation, ViewOf
from tests.support.event_commits import commit_events, log_table

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import SparkSessions, Spread
    from strandline.jobs.model.definitions import View
    from strandline.state_store.duckdb.engine import DuckDBEngine
    from tests.properties.paths.history import Event

_SOURCES: Final = "sources"
_WRITER: Final = "views"


class ViewLake:
    """A lake with some relations, fed by hand, and views over them. Close it by `with`.

    Every view is a pipeline of its own, but those that share stages, so that a rebuild plans it alone. As none has a
    topic to read, it needs no JVM. A view has
    a changelog topic where one can be, and a partial view beside it.

    Attributes:
        published: the views that have a topic.
        partial: the views that have a partial one, by whose name it is read.
        kept: what a way keeps from one epoch to the next, by its name and the view's.
        duck: what subscriptions compute with.
    """

    def __init__(self, folder: Path, relations: Sequence[Relation], views: Sequence[ViewOf]) -> None:
        self.relations = {each.name: each for each in relations}
        self.partial: dict[str, str] = {}
        self._open(folder)
        session = Interpreter(self.settings, _SOURCES)
        list(session.run("".join(each.statement for each in relations)))
        for source in session.catalog.definitions():
            assert isinstance(source, Source)
            log_table(self.lake, source).ensure(CommitRecord(epoch=0))
        for view in views:
            session.pipeline = view.pipeline
            self._add(view, session)
        self._planned()

    def copied(self, folder: Path) -> ViewLake:
        """Another lake with the same definitions, if nothing has come into this one yet."""
        assert not any(self._offsets.values())
        shutil.copytree(Path(str(self.lake.root)), folder)
        made = copy.copy(self)
        made._open(folder)
        made.catalog = Catalog(made.lake)
        return made

    def replace(self, view: ViewOf) -> None:
        """Create a view again with another query. Its partial one is of the former query, and no longer asked."""
        session = Interpreter(self.settings, view.pipeline)
        topic = {"KAFKA_TOPIC": view.name} if view.name in self.published else {}
        list(session.run(view.made(view.name, **topic).again))
        self.partial = {name: other for name, other in self.partial.items() if name != view.name}
        self._planned()

    def _open(self, folder: Path) -> None:
        self.settings = load_settings(lake=folder)
        self.lake = LakeLayout(folder)
        self.kept: dict[tuple[str, str], Any] = {}
        self.duck = QueryEngine(Library((), ()))
        self._times = dict.fromkeys(self.relations, dt.datetime.min.replace(tzinfo=dt.UTC))
        self._offsets = dict.fromkeys(self.relations, 0)

    def _planned(self) -> None:
        self.catalog = Catalog(self.lake)
        self.published = {each.name for each in published_views(self.catalog.definitions())}
        self.levels = maintained(self.catalog.definitions(), self.catalog)

    def __enter__(self) -> ViewLake:
        return self

    def __exit__(self, *_: object) -> None:
        self.duck.__exit__()

    def view(self, name: str) -> View:
        """The definition of a view."""
        return self.catalog.get(name)  # type: ignore[return-value]

    def take(self, events: Sequence[Event]) -> None:
        """One commit of each relation's event log with its events."""
        batches: dict[str, list[dict[str, Any]]] = {}
        for name, row, key, seconds in events:
            relation = self.relations[name]
            at = BEGIN + dt.timedelta(seconds=seconds)
            self._times[name] = max(self._times[name], at)
            made: dict[str, Any] = {
                "_partition": 0,
                "_offset": self._offsets[name],
                "_timestamp": at,
                "_stream_time": self._times[name],
                **(row if row is not None else {relation.columns[0][0]: key}),
            }
            self._offsets[name] += 1
            batches.setdefault(name, []).append({**made, TOMBSTONE: row is None} if relation.kind == "table" else made)
        for name, rows in batches.items():
            source = self.catalog.get(name)
            assert isinstance(source, Source)
            commit_events(self.lake, source, rows)

    def refresh(
        self,
        duckdb_engine: DuckDBEngine | None,
        spark: SparkSessions | None = None,
        *,
        stopped: frozenset[str] = frozenset(),
        spread: Spread | None = None,
    ) -> dict[str, StrandlineError]:
        """Bring every view to what has come; what failed, by table."""
        context = RunContext(spark, self.lake, f"{_WRITER}/1", duckdb_engine=duckdb_engine, spread=spread)
        done = refresh_all(context, self.levels, stopped)
        # As a run does: a pull that joins a view with what it reads would be as old as the view's last change.
        notes = ReachedNotes(self.lake, _WRITER, tables_of(self.levels))
        notes.note({result.table for result in done.stages}, done.reached)
        return done.failures

    def _add(self, view: ViewOf, session: Interpreter) -> None:
        """Define a view, with a topic if it may have one, and a partial one beside it if there may be one."""
        try:
            list(session.run(view.made(view.name, KAFKA_TOPIC=view.name).statement))
        except SqlError:
            list(session.run(view.statement))
        with suppress(SqlError):
            name = f"{view.name}_partial"
            list(session.run(view.made(name, STATE="partial").statement))
            self.partial[view.name] = name
